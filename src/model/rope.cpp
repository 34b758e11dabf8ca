#include "model/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/error.h"
#include "base/rope_table.h"
#include "model/architecture_keys.h"

namespace weir {

namespace {

/// The pair (a real number of pairs) that turns `turns` times within the original context.
double pair_of(double turns, int n_rot, double base, int original_context) {
  return n_rot * std::log(original_context / (turns * 2 * std::numbers::pi)) / (2 * std::log(base));
}

/// The magnitude that a longer context's flatter attention is made up for with.
double yarn_magnitude(double factor, double multiple) {
  return factor <= 1 ? 1 : 1 + 0.1 * multiple * std::log(factor);
}

/// Reads the keys of one file's rope.*.
class RopeKeys {
 public:
  explicit RopeKeys(ArchitectureKeys& keys) : keys_(keys) {}

  std::string full(const char* key) const { return keys_.full(name(key)); }
  std::string string(const char* key, const char* fallback) {
    return keys_.string(name(key)).value_or(fallback);
  }
  bool has(const char* key) const { return keys_.has(name(key)); }
  /// A finite number of at least (or above) the least.
  double number(const char* key, double fallback, double least, bool above) {
    const double value = keys_.real(name(key)).value_or(fallback);
    if (!std::isfinite(value) || value < least || (above && value == least))
      throw input_error("{}: {} is {}: expected a number {} {}", keys_.path(), full(key), value,
                        above ? "above" : "of at least", least);
    return value;
  }
  double positive(const char* key, double fallback) { return number(key, fallback, 0, true); }
  int positions(const char* key, int fallback) {
    const auto value = static_cast<int>(keys_.integer(name(key), 0, 1 << 30).value_or(0));
    return value == 0 ? fallback : value;
  }

 private:
  static std::string name(const char* key) { return std::string("rope.") + key; }
  ArchitectureKeys& keys_;
};

}  // namespace

RopeScaling read_rope_scaling(ArchitectureKeys& architecture, int context, double base) {
  RopeKeys keys(architecture);
  RopeScaling scaling;
  const std::string type = keys.string("scaling.type", "linear");  // without a factor that is none
  if (type != "none" && type != "linear" && type != "yarn")
    throw input_error("{}: {} is \"{}\": expected \"none\", \"linear\" or \"yarn\"", architecture.path(),
                      keys.full("scaling.type"), type);
  scaling.factor = keys.number("scale_linear", 1, 0, false);
  scaling.factor = keys.number("scaling.factor", scaling.factor, 0, false);
  if (scaling.factor == 0 || type == "none") scaling.factor = 1;               // 0: not said
  const double share = keys.number("scaling.yarn_ext_factor", -1, -1, false);  // below 0: not said
  scaling.extrapolation = share >= 0 ? share : type == "yarn" ? 1 : 0;
  scaling.beta_fast = keys.positive("scaling.yarn_beta_fast", scaling.beta_fast);
  scaling.beta_slow = keys.positive("scaling.yarn_beta_slow", scaling.beta_slow);
  scaling.original_context = keys.positions("scaling.original_context_length", context);
  scaling.attention = keys.positive("scaling.attn_factor", 1) * keys.positive("scaling.yarn_attn_factor", 1);
  scaling.log_multiplier = keys.number("scaling.yarn_log_multiplier", 0, 0, false);
  if (scaling.extrapolation != 0 && !(base > 1))
    throw input_error("{}: {} is {}: expected a number above 1 for YaRN", architecture.path(),
                      keys.full("freq_base"), base);
  return scaling;
}

RopeFrequencies rope_frequencies(const RopeScaling& s, int n_rot, double base,
                                 std::span<const float> factors) {
  RopeFrequencies rope{plain_rope_frequencies(n_rot, base), s.attention};
  WEIR_CHECK(factors.empty() || factors.size() == rope.pairs.size(), "{} factors, {} pairs", factors.size(),
             rope.pairs.size());
  for (size_t i = 0; i < factors.size(); ++i) rope.pairs[i] /= static_cast<double>(factors[i]);
  if (s.extrapolation == 0) {
    for (double& frequency : rope.pairs) frequency /= s.factor;
    return rope;
  }
  const double first = std::max(0.0, std::floor(pair_of(s.beta_fast, n_rot, base, s.original_context)));
  const double last = std::min(n_rot - 1.0, std::ceil(pair_of(s.beta_slow, n_rot, base, s.original_context)));
  for (size_t i = 0; i < rope.pairs.size(); ++i) {
    const double along = (static_cast<double>(i) - first) / std::max(0.001, last - first);
    const double kept = s.extrapolation * (1 - std::clamp(along, 0.0, 1.0));
    rope.pairs[i] = rope.pairs[i] / s.factor * (1 - kept) + rope.pairs[i] * kept;
  }
  rope.magnitude *= yarn_magnitude(s.factor, 1);
  if (s.log_multiplier != 0) rope.magnitude /= yarn_magnitude(s.factor, s.log_multiplier);
  return rope;
}

}  // namespace weir
