// Finding a figure in a command's output. The one file here that includes PCRE2.
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <charconv>
#include <cmath>
#include <memory>
#include <string_view>

#include "base/error.h"
#include "base/file.h"
#include "lab/ab/command_arms.h"

namespace weir::lab::ab {

namespace {

struct FreeCode {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
};
struct FreeMatch {
  void operator()(pcre2_match_data* match) const { pcre2_match_data_free(match); }
};
using Code = std::unique_ptr<pcre2_code, FreeCode>;
using Match = std::unique_ptr<pcre2_match_data, FreeMatch>;

Code compile(const std::string& expression) {
  int error = 0;
  PCRE2_SIZE at = 0;
  Code code(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(expression.data()), expression.size(), PCRE2_MULTILINE,
                          &error, &at, nullptr));
  if (code) return code;
  PCRE2_UCHAR message[256] = {};
  pcre2_get_error_message(error, message, sizeof message);
  throw input_error("--figure {}: {} at character {}: expected a regular expression (PCRE2)",
                    quote(expression), reinterpret_cast<char*>(message), at);
}

}  // namespace

void check_figure(const std::string& expression) {
  if (expression.empty()) throw input_error("--figure is empty: expected a regular expression (PCRE2)");
  compile(expression);
}

double find_figure(const std::string& expression, const std::string& text) {
  const Code code = compile(expression);
  const Match match(pcre2_match_data_create_from_pattern(code.get(), nullptr));
  std::string_view found;
  bool any = false;
  for (PCRE2_SIZE start = 0; start <= text.size();) {
    const int groups = pcre2_match(code.get(), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), start,
                                   0, match.get(), nullptr);
    if (groups < 0) break;
    const PCRE2_SIZE* ends = pcre2_get_ovector_pointer(match.get());
    const int group = groups > 1 && ends[2] != PCRE2_UNSET ? 1 : 0;
    found = std::string_view(text).substr(ends[2 * group], ends[2 * group + 1] - ends[2 * group]);
    any = true;
    start = ends[1] > start ? ends[1] : start + 1;
  }
  if (!any) throw input_error("--figure {} matches nothing in the output", quote(expression));
  if (!found.empty() && found.front() == '+') found.remove_prefix(1);
  double value = 0;
  const auto [rest, error] = std::from_chars(found.data(), found.data() + found.size(), value);
  if (error != std::errc() || rest != found.data() + found.size() || !std::isfinite(value))
    throw input_error("--figure {} finds {}: expected a number", quote(expression), quote(found));
  return value;
}

}  // namespace weir::lab::ab
