// Tables of the rotary position embedding: cos and sin of position * base^(-2i / n_rot) / factor[i], computed
// in double and rounded once. Knows no device: callers copy the tables where they are read.
#pragma once

#include <cmath>
#include <span>

#include "base/error.h"

namespace weir {

struct RopeTableSpec {
  int n_rot = 0;                     ///< dimensions rotated; even
  double base = 10000.0;             ///< "rope.freq_base"
  std::span<const float> factors{};  ///< [n_rot / 2] divisors of the frequencies, or empty
};

/// Fills cos and sin, [positions, n_rot / 2] each, for positions first .. first + positions - 1. A table
/// grown by blocks of positions equals one made at once.
inline void fill_rope_table(const RopeTableSpec& spec, int first, int positions, float* cos, float* sin) {
  const int pairs = spec.n_rot / 2;
  WEIR_CHECK(spec.n_rot > 0 && spec.n_rot % 2 == 0, "n_rot {}", spec.n_rot);
  WEIR_CHECK(spec.factors.empty() || spec.factors.size() == static_cast<size_t>(pairs), "factors {} pairs {}",
             spec.factors.size(), pairs);
  for (int i = 0; i < pairs; ++i) {
    double frequency = std::pow(spec.base, -2.0 * i / spec.n_rot);
    if (!spec.factors.empty()) frequency /= static_cast<double>(spec.factors[static_cast<size_t>(i)]);
    for (int p = 0; p < positions; ++p) {
      const double angle = static_cast<double>(first + p) * frequency;
      cos[static_cast<size_t>(p) * pairs + i] = static_cast<float>(std::cos(angle));
      sin[static_cast<size_t>(p) * pairs + i] = static_cast<float>(std::sin(angle));
    }
  }
}

}  // namespace weir
