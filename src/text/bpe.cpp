// See bpe.h.
#include "text/bpe.h"

#include <algorithm>
#include <bit>
#include <deque>
#include <limits>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "text/byte_alphabet.h"

namespace weir {
namespace {

constexpr int32_t no_rank = std::numeric_limits<int32_t>::max();

uint64_t pair_of(Symbol left, Symbol right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

/// Gives each distinct text a symbol: tokens their id, others the next free one.
class Interner {
 public:
  explicit Interner(const Vocabulary& vocabulary) : next_(static_cast<Symbol>(vocabulary.tokens.size())) {
    ids_.reserve(vocabulary.tokens.size() + vocabulary.tokens.size() / 8);
    for (size_t i = 0; i < vocabulary.tokens.size(); ++i) {
      // Merges never make a control token, even where the text spells one: only parsing special tokens does.
      const TokenType type = vocabulary.types[i];
      if (type == TokenType::control || type == TokenType::unknown || vocabulary.tokens[i].empty()) continue;
      ids_.emplace(vocabulary.tokens[i], static_cast<Symbol>(i));
    }
  }
  Symbol intern(std::string_view text) {
    const auto found = ids_.find(text);
    if (found != ids_.end()) return found->second;
    ids_.emplace(texts_.emplace_back(text), next_);
    return next_++;
  }

 private:
  std::unordered_map<std::string_view, Symbol> ids_;
  std::deque<std::string> texts_;  ///< of the symbols that are no tokens: addresses stay
  Symbol next_;
};

}  // namespace

MergeTable::MergeTable(size_t merges) {
  const size_t slots = std::bit_ceil(std::max<size_t>(merges * 2, 2));
  slots_.resize(slots);
  shift_ = 64 - std::countr_zero(slots);
}

size_t MergeTable::slot_of(uint64_t pair) const {
  // Fibonacci hashing: the high bits of the product depend on all bits of the pair.
  size_t slot = static_cast<size_t>(pair * 0x9e3779b97f4a7c15ull >> shift_);
  while (slots_[slot].pair != empty && slots_[slot].pair != pair) slot = (slot + 1) & (slots_.size() - 1);
  return slot;
}

void MergeTable::insert(Symbol left, Symbol right, Merge merge) {
  const uint64_t pair = pair_of(left, right);
  Slot& slot = slots_[slot_of(pair)];
  if (slot.pair == empty) slot = {pair, merge};
}

const MergeTable::Merge* MergeTable::find(Symbol left, Symbol right) const {
  const Slot& slot = slots_[slot_of(pair_of(left, right))];
  return slot.pair == empty ? nullptr : &slot.merge;
}

Bpe::Bpe(const Vocabulary& vocabulary, WholeWords whole_words)
    : source_(vocabulary.source),
      tokens_(static_cast<Symbol>(vocabulary.tokens.size())),
      unknown_(vocabulary.unknown),
      merges_(vocabulary.merges.size()) {
  Interner interner(vocabulary);
  for (int byte = 0; byte < 256; ++byte) {
    bytes_[static_cast<size_t>(byte)] = interner.intern(alphabet_character(static_cast<uint8_t>(byte)));
  }
  size_t strangers = 0, first_stranger = 0;
  std::string merged;
  for (size_t rank = 0; rank < vocabulary.merges.size(); ++rank) {
    const std::string_view text = vocabulary.merges[rank];
    // A left side may itself begin with a space, so the separator is looked for after the first byte.
    const size_t space = text.find(' ', 1);
    if (space == std::string_view::npos || space + 1 == text.size()) {
      throw input_error("{}: tokenizer.ggml.merges[{}] is '{}': two texts with a space between are needed",
                        source_, rank, text);
    }
    merged.assign(text.substr(0, space)).append(text.substr(space + 1));
    const Symbol left = interner.intern(text.substr(0, space)),
                 right = interner.intern(text.substr(space + 1));
    const Symbol result = interner.intern(merged);
    if (std::max({left, right, result}) >= tokens_ && strangers++ == 0) first_stranger = rank;
    merges_.insert(left, right, {static_cast<int32_t>(rank), result});
  }
  if (strangers > 0) {
    warn(
        "{}: {} merges name texts that are no tokens (the first is tokenizer.ggml.merges[{}], '{}'); such "
        "texts are "
        "written byte by byte",
        source_, strangers, first_stranger, vocabulary.merges[first_stranger]);
  }
  if (whole_words == WholeWords::take) {
    for (size_t i = 0; i < vocabulary.tokens.size(); ++i) {
      const Symbol symbol = vocabulary.tokens[i].empty() ? tokens_ : interner.intern(vocabulary.tokens[i]);
      if (symbol >= tokens_) continue;
      whole_words_.emplace(vocabulary.tokens[i], symbol);
      longest_whole_word_ = std::max(longest_whole_word_, vocabulary.tokens[i].size());
    }
  }
}

uint64_t Bpe::Scratch::bytes(uint64_t word) {
  // The levels above the first hold a fifteenth of it, and one rank each for what does not divide.
  return word * (sizeof(Symbol) + 2 * sizeof(int32_t)) + word / (fan_out - 1) * sizeof(int32_t) + 256;
}

/// Frees before it allocates, and at least doubles, so that a text of ever longer words moves little.
template <typename T>
static void grow(std::vector<T>& buffer, size_t size) {
  if (buffer.capacity() < size) {
    const size_t room = std::max(size, 2 * buffer.capacity());
    buffer = {};
    buffer.reserve(room);
  }
  buffer.resize(size);
}

void Bpe::Scratch::resize(size_t word) {
  grow(symbols, word);
  grow(lengths, word);
  levels.assign({0, word});
  for (size_t width = word; width > 1;) {
    width = (width + fan_out - 1) / fan_out;
    levels.push_back(levels.back() + width);
  }
  grow(ranks, levels.back());
  std::fill(ranks.begin(), ranks.end(), no_rank);
}

void Bpe::Scratch::set_rank(size_t part, int32_t rank) {
  ranks[part] = rank;
  for (size_t level = 0; level + 2 < levels.size(); ++level) {
    const size_t above = part / fan_out, first = levels[level] + above * fan_out;
    const auto begin = ranks.begin() + static_cast<std::ptrdiff_t>(first),
               end =
                   ranks.begin() + static_cast<std::ptrdiff_t>(std::min(first + fan_out, levels[level + 1]));
    const int32_t least = *std::min_element(begin, end);
    int32_t& kept = ranks[levels[level + 1] + above];
    if (kept == least) return;
    kept = least;
    part = above;
  }
}

size_t Bpe::Scratch::lowest() const {
  size_t at = 0;
  const int32_t least = ranks.back();
  if (least == no_rank) return std::string_view::npos;
  for (size_t level = levels.size() - 2; level > 0; --level) {
    at = levels[level - 1] + at * fan_out;
    while (ranks[at] != least) ++at;
    at -= levels[level - 1];
  }
  return at;
}

/// The rank of the pair that the part at `left` begins, after either of its parts has changed.
void Bpe::rank_pair(Scratch& s, size_t left, size_t size) const {
  const size_t right = left + static_cast<size_t>(s.lengths[left]);
  const MergeTable::Merge* merge = right < size ? merges_.find(s.symbols[left], s.symbols[right]) : nullptr;
  s.set_rank(left, merge ? merge->rank : no_rank);
}

void Bpe::merge(Scratch& s, size_t size) const {
  for (size_t i = 0; i + 1 < size; ++i) {
    if (const MergeTable::Merge* found = merges_.find(s.symbols[i], s.symbols[i + 1]))
      s.set_rank(i, found->rank);
  }
  for (size_t left; (left = s.lowest()) != std::string_view::npos;) {
    const size_t right = left + static_cast<size_t>(s.lengths[left]);
    const int32_t length = s.lengths[left] + s.lengths[right];
    s.symbols[left] = merges_.find(s.symbols[left], s.symbols[right])->result;
    s.set_rank(right, no_rank);
    s.lengths[left] = s.lengths[left + static_cast<size_t>(length) - 1] = length;
    rank_pair(s, left, size);
    if (left > 0) rank_pair(s, left - static_cast<size_t>(s.lengths[left - 1]), size);
  }
}

void Bpe::emit(std::string_view text, Symbol symbol, std::vector<Token>& tokens) const {
  if (symbol < tokens_) {
    tokens.push_back(symbol);
    return;
  }
  for (const char c : text) {
    const auto byte = static_cast<uint8_t>(c);
    if (bytes_[byte] < tokens_) {
      tokens.push_back(bytes_[byte]);
    } else if (unknown_ >= 0) {
      tokens.push_back(unknown_);
    } else {
      throw input_error("{}: the text has the byte 0x{:02x}, for which the vocabulary has no token", source_,
                        byte);
    }
  }
}

void Bpe::encode(std::string_view word, Scratch& scratch, std::vector<Token>& tokens) const {
  if (word.empty()) return;
  if (word.size() <= longest_whole_word_) {
    const auto found = whole_words_.find(to_alphabet(word));
    if (found != whole_words_.end()) return tokens.push_back(found->second);
  }
  scratch.resize(word.size());
  for (size_t i = 0; i < word.size(); ++i) {
    scratch.symbols[i] = bytes_[static_cast<uint8_t>(word[i])];
    scratch.lengths[i] = 1;
  }
  merge(scratch, word.size());
  for (size_t part = 0; part < word.size();) {
    const auto length = static_cast<size_t>(scratch.lengths[part]);
    emit(word.substr(part, length), scratch.symbols[part], tokens);
    part += length;
  }
}

}  // namespace weir
