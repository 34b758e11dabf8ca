// How far a model turns each pair of dimensions at each position: the rotary embedding's frequencies as a
// file's scaling keys and factors bend them. Pure arithmetic but for reading the keys; knows no device and no
// table (base/rope_table.h makes those).
#pragma once

#include <span>
#include <string>
#include <vector>

namespace weir {

class ArchitectureKeys;

/// The keys <architecture>.rope.scaling.*, as llama.cpp understands them. The defaults scale nothing.
struct RopeScaling {
  double factor = 1;          ///< frequencies are divided by it (interpolation)
  double extrapolation = 0;   ///< YaRN: share of a fast pair's own frequency that is kept; 0: no YaRN
  double beta_fast = 32;      ///< YaRN: turns within the original context above which a pair is fast
  double beta_slow = 1;       ///< and below which it is slow: interpolated wholly
  int original_context = 0;   ///< YaRN: positions that the model was trained with
  double attention = 1;       ///< cos and sin are multiplied by it, beside YaRN's own magnitude
  double log_multiplier = 0;  ///< YaRN: divides the magnitude by that of this multiple; 0: does not
};

/// Reads rope.scaling.* and the older rope.scale_linear. `context`: <architecture>.context_length, which
/// stands for an original length that is not there; `base`: its rope.freq_base. Throws Error (input) naming
/// file, key and value for a kind of scaling that weir does not know and for numbers that mean nothing.
RopeScaling read_rope_scaling(ArchitectureKeys& keys, int context, double base);

/// The divisors of the frequencies that rope_frequencies() takes, F32 [n_rot / 2], where a file has them.
inline constexpr const char* rope_factors_tensor = "rope_freqs.weight";

struct RopeFrequencies {
  std::vector<double> pairs;  ///< [n_rot / 2]: radians a position
  double magnitude = 1;       ///< of the rotated vector: cos and sin are multiplied by it
};

/// factors: [n_rot / 2] divisors of the frequencies before they are scaled, or empty.
/// n_rot even, base > 0; for YaRN base > 1. docs/arithmetic.md has the formulas.
RopeFrequencies rope_frequencies(const RopeScaling& scaling, int n_rot, double base,
                                 std::span<const float> factors = {});

}  // namespace weir
