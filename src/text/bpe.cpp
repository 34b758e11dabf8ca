// See bpe.h.
#include "text/bpe.h"

#include <algorithm>
#include <bit>
#include <deque>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "text/byte_alphabet.h"

namespace weir {
namespace {

constexpr Symbol gone = -1;

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
      if (symbol < tokens_) whole_words_.emplace(vocabulary.tokens[i], symbol);
    }
  }
}

void Bpe::propose(Scratch& scratch, int32_t left, int32_t right) const {
  if (left < 0 || right < 0) return;
  const Symbol left_symbol = scratch.parts[static_cast<size_t>(left)].symbol;
  const Symbol right_symbol = scratch.parts[static_cast<size_t>(right)].symbol;
  if (const MergeTable::Merge* merge = merges_.find(left_symbol, right_symbol)) {
    scratch.heap.push_back({merge->rank, left, right, left_symbol, right_symbol, merge->result});
  }
}

void Bpe::merge(Scratch& scratch) const {
  auto later = [](const Scratch::Candidate& a, const Scratch::Candidate& b) {
    return a.rank != b.rank ? a.rank > b.rank : a.left > b.left;
  };
  auto& [parts, heap] = scratch;
  heap.clear();
  for (int32_t i = 1; i < static_cast<int32_t>(parts.size()); ++i) propose(scratch, i - 1, i);
  std::make_heap(heap.begin(), heap.end(), later);
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), later);
    const Scratch::Candidate best = heap.back();
    heap.pop_back();
    Scratch::Part& left = parts[static_cast<size_t>(best.left)];
    Scratch::Part& right = parts[static_cast<size_t>(best.right)];
    // Parts only grow, so equal symbols mean that neither changed since this was proposed.
    if (left.symbol != best.left_symbol || right.symbol != best.right_symbol) continue;
    left.symbol = best.result;
    left.next = right.next;
    right.symbol = gone;
    if (left.next >= 0) parts[static_cast<size_t>(left.next)].previous = best.left;
    for (const auto& [a, b] : {std::pair{left.previous, best.left}, std::pair{best.left, left.next}}) {
      const size_t before = heap.size();
      propose(scratch, a, b);
      if (heap.size() != before) std::push_heap(heap.begin(), heap.end(), later);
    }
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
  if (!whole_words_.empty()) {
    const auto found = whole_words_.find(to_alphabet(word));
    if (found != whole_words_.end()) return tokens.push_back(found->second);
  }
  const auto size = static_cast<int32_t>(word.size());
  scratch.parts.resize(word.size());
  for (int32_t i = 0; i < size; ++i) {
    const Symbol symbol = bytes_[static_cast<uint8_t>(word[static_cast<size_t>(i)])];
    scratch.parts[static_cast<size_t>(i)] = {symbol, i, i - 1, i + 1 < size ? i + 1 : -1};
  }
  merge(scratch);
  for (int32_t i = 0; i >= 0;) {
    const Scratch::Part& part = scratch.parts[static_cast<size_t>(i)];
    const int32_t end = part.next < 0 ? size : scratch.parts[static_cast<size_t>(part.next)].begin;
    emit(word.substr(static_cast<size_t>(part.begin), static_cast<size_t>(end - part.begin)), part.symbol,
         tokens);
    i = part.next;
  }
}

}  // namespace weir
