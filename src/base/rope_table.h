// Tables of the rotary position embedding: cos and sin of position * frequency, computed in double and
// rounded once. Knows no device: callers copy the tables where they are read.
#pragma once

#include <cmath>
#include <span>
#include <vector>

#include "base/error.h"

namespace weir {

/// base^(-2i / n_rot) for i < n_rot / 2: radians a position.
inline std::vector<double> plain_rope_frequencies(int n_rot, double base) {
  WEIR_CHECK(n_rot > 0 && n_rot % 2 == 0, "n_rot {}", n_rot);
  std::vector<double> frequencies(static_cast<size_t>(n_rot / 2));
  for (size_t i = 0; i < frequencies.size(); ++i)
    frequencies[i] = std::pow(base, -2.0 * static_cast<double>(i) / n_rot);
  return frequencies;
}

struct RopeTableSpec {
  std::span<const double> frequencies;  ///< [n_rot / 2]
  double magnitude = 1;                 ///< cos and sin are multiplied by it
};

/// Fills cos and sin, [positions, n_rot / 2] each, for positions first .. first + positions - 1. A table
/// grown by blocks of positions equals one made at once.
inline void fill_rope_table(const RopeTableSpec& spec, int first, int positions, float* cos, float* sin) {
  const size_t pairs = spec.frequencies.size();
  for (size_t i = 0; i < pairs; ++i)
    for (int p = 0; p < positions; ++p) {
      const double angle = static_cast<double>(first + p) * spec.frequencies[i];
      cos[static_cast<size_t>(p) * pairs + i] = static_cast<float>(std::cos(angle) * spec.magnitude);
      sin[static_cast<size_t>(p) * pairs + i] = static_cast<float>(std::sin(angle) * spec.magnitude);
    }
}

}  // namespace weir
