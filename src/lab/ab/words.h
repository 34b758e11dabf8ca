// An arm's text as words, as a shell would split it; no expansion of any kind.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace weir::lab::ab {

/// Blanks separate; '...' is literal, in "..." a backslash escapes " and \, outside it escapes anything.
/// Throws Error (input) for a quote or a backslash that nothing follows.
std::vector<std::string> split_words(const std::string& text);

struct ArmWords {
  std::vector<std::string> options;
  std::vector<std::pair<std::string, std::string>> environment;  ///< of words NAME=value, NAME in capitals
};
/// Throws Error (input) as split_words, and for names that a running process no longer reads.
ArmWords parse_arm(const std::string& text);

/// `text` as one word of a shell.
std::string shell_quote(const std::string& text);

}  // namespace weir::lab::ab
