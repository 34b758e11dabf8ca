// Gated DeltaNet in float, in the order of docs/arithmetic.md ("Recurrent layers"): plain loops that every
// kernel has to equal bit for bit. And the same in double, as the formulas have it, for how close that is.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace weir::reference {

struct DeltaNetShape {
  int key_heads = 0, value_heads = 0;  ///< key_heads divides value_heads
  int dim = 128;                       ///< of a key, and of a value
  int taps = 4;                        ///< of the convolution, the current token's included
  bool tiled = false;      ///< value head j reads key head j % key_heads; else j / (value_heads / key_heads)
  float eps = 1e-6f;       ///< of the norm of queries and keys
  float norm_eps = 1e-6f;  ///< of the output's norm
  int channels() const { return (2 * key_heads + value_heads) * dim; }
  int key_head(int value_head) const {
    return tiled ? value_head % key_heads : value_head / (value_heads / key_heads);
  }
};

struct DeltaNetWeights {
  std::vector<float> conv;     ///< [channels, taps], the last tap is the current token's
  std::vector<float> a;        ///< [value_heads], below 0
  std::vector<float> dt_bias;  ///< [value_heads]
  std::vector<float> norm;     ///< [dim]
};

/// One token's inputs: all that a state's replay needs.
struct DeltaNetRow {
  std::vector<float> u;      ///< [channels]: queries, keys, values ahead of the convolution
  std::vector<float> alpha;  ///< [value_heads], ahead of softplus
  std::vector<float> beta;   ///< [value_heads], ahead of sigmoid
  std::vector<float> z;      ///< [value_heads, dim], the output's gate
};

/// What a layer keeps of the tokens before.
struct DeltaNetState {
  explicit DeltaNetState(const DeltaNetShape& shape);
  std::vector<float> window;  ///< [taps - 1, channels], oldest first
  std::vector<float> s;       ///< [value_heads, dim of the key, dim of the value]
  bool operator==(const DeltaNetState&) const = default;
};

/// Takes the rows in order and returns [rows, value_heads, dim].
std::vector<float> delta_net(const DeltaNetShape& shape, const DeltaNetWeights& weights, DeltaNetState& state,
                             std::span<const DeltaNetRow> rows);

/// From an empty state, in double.
std::vector<double> delta_net_exact(const DeltaNetShape& shape, const DeltaNetWeights& weights,
                                    std::span<const DeltaNetRow> rows);

/// The sum over i of x[i] * y[i * stride]: eight partial sums, then the butterfly 4, 2, 1.
float dot_by_eights(const float* x, const float* y, int64_t stride, int n);

}  // namespace weir::reference
