// Names of the enumerations, as the command line and the observations file spell them.
#include "lab/ab/experiment.h"

#include <span>

#include "base/error.h"
#include "base/file.h"

namespace weir::lab::ab {

namespace {

constexpr const char* side_names[] = {"A", "B"};
constexpr const char* kind_names[] = {"pilot", "pair", "null"};
constexpr const char* cache_names[] = {"warm", "cold"};
constexpr const char* metric_names[] = {"decode", "prefill", "total", "figure", "command"};

template <typename Enum>
Enum parse(std::span<const char* const> names, const std::string& text, const std::string& where) {
  std::string choices;
  for (size_t i = 0; i < names.size(); ++i) {
    if (text == names[i]) return static_cast<Enum>(i);
    choices += i == 0 ? "" : i + 1 == names.size() ? " or " : ", ";
    choices += names[i];
  }
  throw input_error("{} {}: expected {}", where, quote(text), choices);
}

}  // namespace

const char* name(Side side) { return side_names[static_cast<size_t>(side)]; }
const char* name(RunKind kind) { return kind_names[static_cast<size_t>(kind)]; }
const char* name(CachePolicy policy) { return cache_names[static_cast<size_t>(policy)]; }
const char* name(Metric metric) { return metric_names[static_cast<size_t>(metric)]; }

Side parse_side(const std::string& text, const std::string& where) {
  return parse<Side>(side_names, text, where);
}
RunKind parse_run_kind(const std::string& text, const std::string& where) {
  return parse<RunKind>(kind_names, text, where);
}
CachePolicy parse_cache_policy(const std::string& text, const std::string& where) {
  return parse<CachePolicy>(cache_names, text, where);
}
Metric parse_metric(const std::string& text, const std::string& where) {
  return parse<Metric>(metric_names, text, where);
}

}  // namespace weir::lab::ab
