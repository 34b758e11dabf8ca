// Cuts a text into the words that byte-pair merges may not cross. A pre-tokenizer is a row of data: its GGUF
// name, a regular expression, and the defaults that come with it. Adding one adds a row to pretokenizer.cpp;
// so does another name of one.
// Knows no vocabulary.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace weir {

struct PretokenizerRow {
  std::string_view name;        ///< value of tokenizer.ggml.pre
  std::string_view expression;  ///< as tokenizer.json writes it; \s and \S mean Unicode's White_Space
  bool ignore_merges = false;   ///< a word that is itself a token is taken whole
  bool adds_bos = false;        ///< where tokenizer.ggml.add_bos_token is absent
};

std::span<const PretokenizerRow> pretokenizer_rows();
/// By a row's name or another name of it. Null where there is none.
const PretokenizerRow* find_pretokenizer(std::string_view name);
/// "qwen2, qwen35, ... and other names of these", for messages.
std::string pretokenizer_names();

class Pretokenizer {
 public:
  enum class Engine { compiled, interpreted };  ///< compiled falls back where the machine forbids it
  explicit Pretokenizer(const PretokenizerRow& row, Engine engine = Engine::compiled);
  ~Pretokenizer();
  Pretokenizer(const Pretokenizer&) = delete;
  Pretokenizer& operator=(const Pretokenizer&) = delete;

  /// Gives `take` the words of `text`, in order; they join to `text` again (what the expression skips is a
  /// word too). `text` must be valid UTF-8: it is not checked here. Throws Error (failure) with the byte
  /// where matching gave up. Takes a few KiB whatever the text. Safe to call from several threads.
  void split(std::string_view text, const std::function<void(std::string_view)>& take) const;

  /// The expression with \s and \S written out, since PCRE2's own count U+180E as a space, which Unicode and
  /// the tokenizers' authors do not.
  static std::string expand_white_space(std::string_view expression);

 private:
  struct Compiled;
  std::unique_ptr<Compiled> compiled_;
};

}  // namespace weir
