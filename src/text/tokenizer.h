// Text to token ids and back, from a GGUF file's tokenizer keys. Byte-level BPE ("gpt2"); pre-tokenizers are
// rows of the table in text/pretokenizer.h, and an unknown model or pre-tokenizer is an Error that names it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace weir::gguf {
class Model;
}

namespace weir {

using Token = int32_t;

class Tokenizer {
 public:
  /// Throws Error (input) naming file and key for a missing, damaged or unsupported tokenizer.
  static std::unique_ptr<Tokenizer> load(const gguf::Model& model);
  virtual ~Tokenizer() = default;

  struct EncodeOptions {
    bool add_special = true;    ///< prepend BOS where the model asks for it
    bool parse_special = true;  ///< control tokens written in the text become their ids
    /// Append EOS where the model asks for it (add_eos_token): for a text that is embedded or scored as a
    /// whole. One that is to be continued has no end.
    bool add_end = false;
  };
  /// Throws Error (input) with the byte offset where `text` is not valid UTF-8.
  virtual std::vector<Token> encode(std::string_view text, const EncodeOptions& options) const = 0;
  /// What encode() takes at most for this text, beside the text itself, and its result with it, in bytes.
  /// Depends on the longest word, which is never split. Throws as encode() does.
  virtual uint64_t encode_bytes(std::string_view text, const EncodeOptions& options) const = 0;
  /// The bytes of one token. Control tokens are empty unless `special`.
  virtual std::string piece(Token token, bool special) const = 0;
  /// The concatenation of pieces; invalid UTF-8 becomes U+FFFD.
  std::string decode(const std::vector<Token>& tokens, bool special) const;

  virtual int size() const = 0;
  virtual bool is_control(Token token) const = 0;
  virtual bool is_end(Token token) const = 0;  ///< one of the end-of-generation tokens
  virtual Token bos() const = 0;               ///< -1 where there is none
  virtual Token eos() const = 0;               ///< -1 where there is none
  virtual bool adds_bos() const = 0;
};

/// Turns a stream of tokens into a stream of whole UTF-8 characters: bytes of an unfinished character are
/// held back.
class Detokenizer {
 public:
  explicit Detokenizer(const Tokenizer& tokenizer, bool special = false)
      : tokenizer_(tokenizer), special_(special) {}
  /// What can be shown now; may be empty.
  std::string push(Token token);
  /// What is held back at the end (an unfinished character becomes U+FFFD).
  std::string finish();

 private:
  std::string drain(bool last);
  const Tokenizer& tokenizer_;
  bool special_;
  std::string held_;
};

/// Length of the longest prefix of `bytes` that ends on a character boundary; an invalid byte counts as one
/// character.
size_t complete_utf8_prefix(std::string_view bytes);
/// Offset of the first byte that is not valid UTF-8 (overlong forms and surrogates are invalid), or npos.
size_t invalid_utf8_at(std::string_view text);
/// Throws Error (input) with the byte where `text` is not valid UTF-8; `what` says whose text: a file's path.
void require_utf8(std::string_view text, std::string_view what);
/// Replaces each invalid sequence by U+FFFD.
std::string replace_invalid_utf8(std::string_view bytes);

}  // namespace weir
