// Tokens that are written as themselves: which end a generation, and how they cut a text before anything else
// is tokenized. Knows nothing of merges.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "text/vocabulary.h"

namespace weir {

/// Applies the conventions that go by a token's text, not by its type: well-known end-of-turn tokens become
/// control tokens, harmony's markers user-defined. Returns, by id, whether the token ends a generation.
std::vector<bool> settle_special_types(Vocabulary& vocabulary);

/// A part of a text: a special token, or (token -1) plain text.
struct Fragment {
  Token token;
  std::string_view text;
};

class SpecialTokens {
 public:
  explicit SpecialTokens(const Vocabulary& vocabulary);

  enum class Parse { all, user_defined };
  /// Gives `take` the fragments of `text`, cut at its special tokens, in order: the longest token claims its
  /// places first, wherever they are, then the next (lower ids first among equals). No fragment is empty.
  /// Keeps scratch_bytes(text.size()) at most.
  void split(std::string_view text, Parse parse, const std::function<void(const Fragment&)>& take) const;
  static uint64_t scratch_bytes(uint64_t text) { return text / 4 + 64; }

 private:
  struct Special {
    std::string text;
    Token token;
    bool user_defined;
  };
  /// Which bytes of a text belong to special tokens, and where these begin.
  struct Claims {
    std::vector<bool> claimed, begins;
  };
  std::vector<const Special*> occurring(std::string_view text, Parse parse) const;
  void find_at(std::string_view text, Parse parse, std::vector<bool>& found) const;
  static void claim(std::string_view text, const Special& special, Claims& claims);
  Token token_of(std::string_view special) const;

  std::vector<Special> specials_;  ///< in byte order of their texts, so that one prefix is one range
};

}  // namespace weir
