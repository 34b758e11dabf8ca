#include "lab/ab/words.h"

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "base/file.h"

namespace weir::lab::ab {

namespace {

bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\n'; }

/// Length of NAME in NAME=value, or nothing.
std::optional<size_t> name_length(const std::string& word) {
  const size_t equals = word.find('=');
  if (equals == std::string::npos || equals == 0) return std::nullopt;
  for (size_t i = 0; i < equals; ++i) {
    const char c = word[i];
    const bool digit = c >= '0' && c <= '9';
    if (!(c >= 'A' && c <= 'Z') && c != '_' && !(digit && i > 0)) return std::nullopt;
  }
  return equals;
}

/// What the loader and the allocator read once, before main.
void refuse_start_up_names(const std::string& name) {
  const bool early = name.rfind("LD_", 0) == 0 || name.rfind("MALLOC_", 0) == 0 || name == "GLIBC_TUNABLES";
  if (early)
    throw input_error(
        "{} is read when a process starts, and arms of options share one: compare whole commands "
        "(--a-command, --b-command)",
        name);
}

}  // namespace

std::vector<std::string> split_words(const std::string& text) {
  std::vector<std::string> words;
  std::string word;
  bool in_word = false;
  char quoted = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted == '\'' && c != '\'') {
      word += c;
    } else if (c == '\\' && quoted != '\'') {
      if (i + 1 == text.size()) throw input_error("{}: nothing follows the last backslash", quote(text));
      const char next = text[++i];
      if (quoted == '"' && next != '"' && next != '\\') word += c;
      word += next, in_word = true;
    } else if (quoted != 0 ? c == quoted : c == '"' || c == '\'') {
      quoted = quoted == 0 ? c : 0, in_word = true;  // '' is a word
    } else if (quoted == 0 && is_blank(c)) {
      if (in_word) words.push_back(std::exchange(word, {}));
      in_word = false;
    } else {
      word += c, in_word = true;
    }
  }
  if (quoted != 0) throw input_error("{}: a quote is not closed", quote(text));
  if (in_word) words.push_back(word);
  return words;
}

ArmWords parse_arm(const std::string& text) {
  ArmWords arm;
  for (auto& word : split_words(text)) {
    const auto length = name_length(word);
    if (!length) {
      arm.options.push_back(std::move(word));
      continue;
    }
    refuse_start_up_names(word.substr(0, *length));
    arm.environment.emplace_back(word.substr(0, *length), word.substr(*length + 1));
  }
  return arm;
}

std::string shell_quote(const std::string& text) {
  std::string quoted = "'";
  for (const char c : text) {
    if (c == '\'')
      quoted += "'\\''";
    else
      quoted += c;
  }
  return quoted + "'";
}

}  // namespace weir::lab::ab
