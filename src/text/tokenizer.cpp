// The byte-level BPE tokenizer: special tokens cut the text, the pre-tokenizer cuts the rest into words,
// merges make tokens of each word. And the detokenizer. See tokenizer.h.
#include "text/tokenizer.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <tuple>
#include <unordered_map>

#include "base/error.h"
#include "text/bpe.h"
#include "text/byte_alphabet.h"
#include "text/pretokenizer.h"
#include "text/special_tokens.h"
#include "text/vocabulary.h"

namespace weir {
namespace {

constexpr size_t longest_text = std::numeric_limits<int32_t>::max();

void check_id(const Vocabulary& vocabulary, const char* name, Token id) {
  if (id < -1 || id >= static_cast<int64_t>(vocabulary.tokens.size())) {
    throw input_error("{}: the {} token is {}, outside the {} tokens of the vocabulary", vocabulary.source,
                      name, id, vocabulary.tokens.size());
  }
}

void check(const Vocabulary& vocabulary) {
  const auto& [source, tokens, merges] = std::tie(vocabulary.source, vocabulary.tokens, vocabulary.merges);
  if (tokens.empty()) throw input_error("{}: tokenizer.ggml.tokens is empty", source);
  if (tokens.size() > longest_text / 4 || merges.size() > longest_text / 4) {
    throw input_error("{}: {} tokens and {} merges are more than any tokenizer has", source, tokens.size(),
                      merges.size());
  }
  if (vocabulary.types.size() != tokens.size()) {
    throw input_error("{}: {} token types for {} tokens: they must be as many", source,
                      vocabulary.types.size(), tokens.size());
  }
  check_id(vocabulary, "bos", vocabulary.bos);
  check_id(vocabulary, "eos", vocabulary.eos);
  check_id(vocabulary, "unknown", vocabulary.unknown);
  for (const Token id : vocabulary.ends) check_id(vocabulary, "end-of-generation", id);
  std::unordered_map<std::string_view, size_t> ids;
  ids.reserve(tokens.size());
  for (size_t i = 0; i < tokens.size(); ++i) {
    const auto [first, added] = ids.emplace(tokens[i], i);
    if (!added && !tokens[i].empty()) {
      throw input_error(
          "{}: tokenizer.ggml.tokens[{}] and [{}] are both '{}': each token must have its own text", source,
          first->second, i, tokens[i]);
    }
  }
}

const PretokenizerRow& row_of(const Vocabulary& vocabulary) {
  const PretokenizerRow* row = find_pretokenizer(vocabulary.pre);
  if (row == nullptr) {
    throw input_error("{}: tokenizer.ggml.pre is '{}', which is not supported (supported: {})",
                      vocabulary.source, vocabulary.pre, pretokenizer_names());
  }
  return *row;
}

bool settle_bos(const Vocabulary& vocabulary, const PretokenizerRow& row) {
  if (!vocabulary.add_bos) return row.adds_bos && vocabulary.bos >= 0;
  if (*vocabulary.add_bos && vocabulary.bos < 0) {
    throw input_error("{}: tokenizer.ggml.add_bos_token is true, but there is no tokenizer.ggml.bos_token_id",
                      vocabulary.source);
  }
  return *vocabulary.add_bos;
}

bool settle_eos(const Vocabulary& vocabulary) {
  if (vocabulary.add_eos && vocabulary.eos < 0) {
    throw input_error("{}: tokenizer.ggml.add_eos_token is true, but there is no tokenizer.ggml.eos_token_id",
                      vocabulary.source);
  }
  return vocabulary.add_eos;
}

/// What a token stands for: special tokens their own text, unused ones nothing, the rest the bytes that they
/// spell.
std::string piece_of(std::string text, TokenType type) {
  switch (type) {
    case TokenType::control:
    case TokenType::unknown:
    case TokenType::user_defined:
      return text;
    case TokenType::unused:
      return {};
    case TokenType::normal:
    case TokenType::byte:
      break;
  }
  std::optional<std::string> bytes = from_alphabet(text);
  return bytes ? std::move(*bytes) : text;
}

class ByteLevelTokenizer : public Tokenizer {
 public:
  /// `vocabulary` is checked and its types are settled.
  ByteLevelTokenizer(Vocabulary vocabulary, const PretokenizerRow& row, std::vector<bool> ends)
      : pretokenizer_(row),
        specials_(vocabulary),
        bpe_(vocabulary, row.ignore_merges ? Bpe::WholeWords::take : Bpe::WholeWords::merge),
        bos_(vocabulary.bos),
        eos_(vocabulary.eos),
        adds_bos_(settle_bos(vocabulary, row)),
        adds_eos_(settle_eos(vocabulary)),
        types_(std::move(vocabulary.types)),
        ends_(std::move(ends)),
        pieces_(std::move(vocabulary.tokens)) {
    for (size_t i = 0; i < pieces_.size(); ++i) pieces_[i] = piece_of(std::move(pieces_[i]), types_[i]);
  }

  std::vector<Token> encode(std::string_view text, const EncodeOptions& options) const override {
    check_text(text);
    std::vector<Token> tokens;
    tokens.reserve(most_tokens(text));  // it never moves; what it does not need is not touched
    Bpe::Scratch scratch;
    if (options.add_special && adds_bos_) tokens.push_back(bos_);
    specials_.split(text, parse_of(options), [&](const Fragment& fragment) {
      if (fragment.token >= 0) return tokens.push_back(fragment.token);
      pretokenizer_.split(fragment.text, [&](std::string_view word) { bpe_.encode(word, scratch, tokens); });
    });
    if (options.add_end && adds_eos_) tokens.push_back(eos_);
    return tokens;
  }

  uint64_t encode_bytes(std::string_view text, const EncodeOptions& options) const override {
    check_text(text);
    size_t longest = 0;
    specials_.split(text, parse_of(options), [&](const Fragment& fragment) {
      if (fragment.token >= 0) return;
      pretokenizer_.split(fragment.text,
                          [&](std::string_view word) { longest = std::max(longest, word.size()); });
    });
    return most_tokens(text) * sizeof(Token) + SpecialTokens::scratch_bytes(text.size()) +
           Bpe::Scratch::bytes(longest);
  }

  std::string piece(Token token, bool special) const override {
    const size_t i = index(token);
    const bool hidden = types_[i] == TokenType::control || types_[i] == TokenType::unknown;
    return hidden && !special ? std::string() : pieces_[i];
  }

  int size() const override { return static_cast<int>(pieces_.size()); }
  bool is_control(Token token) const override { return types_[index(token)] == TokenType::control; }
  bool is_end(Token token) const override { return ends_[index(token)]; }
  Token bos() const override { return bos_; }
  Token eos() const override { return eos_; }
  bool adds_bos() const override { return adds_bos_; }

 private:
  static void check_text(std::string_view text) {
    require_utf8(text, "the text");
    if (text.size() > longest_text) {
      throw input_error("the text has {} bytes: at most {} can be tokenized at once", text.size(),
                        longest_text);
    }
  }
  static SpecialTokens::Parse parse_of(const EncodeOptions& options) {
    return options.parse_special ? SpecialTokens::Parse::all : SpecialTokens::Parse::user_defined;
  }
  /// No token stands for less than a byte; and there are those that are added.
  static uint64_t most_tokens(std::string_view text) { return text.size() + 2; }

  size_t index(Token token) const {
    if (token < 0 || token >= size())
      throw input_error("token {} is outside the {} of the vocabulary", token, size());
    return static_cast<size_t>(token);
  }

  Pretokenizer pretokenizer_;
  SpecialTokens specials_;
  Bpe bpe_;
  Token bos_, eos_;
  bool adds_bos_, adds_eos_;
  std::vector<TokenType> types_;
  std::vector<bool> ends_;
  std::vector<std::string> pieces_;
};

}  // namespace

std::unique_ptr<Tokenizer> make_tokenizer(Vocabulary vocabulary) {
  const PretokenizerRow& row = row_of(vocabulary);
  check(vocabulary);
  std::vector<bool> ends = settle_special_types(vocabulary);
  return std::make_unique<ByteLevelTokenizer>(std::move(vocabulary), row, std::move(ends));
}

std::string Tokenizer::decode(const std::vector<Token>& tokens, bool special) const {
  std::string bytes;
  for (const Token token : tokens) bytes += piece(token, special);
  return replace_invalid_utf8(bytes);
}

std::string Detokenizer::push(Token token) {
  held_ += tokenizer_.piece(token, special_);
  return drain(false);
}

std::string Detokenizer::finish() { return drain(true); }

std::string Detokenizer::drain(bool last) {
  const size_t whole = last ? held_.size() : complete_utf8_prefix(held_);
  std::string shown = replace_invalid_utf8(std::string_view(held_).substr(0, whole));
  held_.erase(0, whole);
  return shown;
}

}  // namespace weir
