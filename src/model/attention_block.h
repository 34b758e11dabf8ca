// Grouped-query attention with per-head RMS norm on queries and keys, as qwen3 and qwen3moe share it: norm,
// q/k/v, rotation and store, scores, output projection, residual. Owns its activations.
#pragma once

#include <cstdint>
#include <string>

#include "device/device.h"
#include "model/config.h"
#include "model/family.h"

namespace weir {

class AttentionBlock {
 public:
  struct Layer {
    const float* norm = nullptr;    ///< [hidden]
    Matrix q, k, v;                 ///< {hidden, heads * head_dim}, {hidden, kv_heads * head_dim} twice
    Matrix output;                  ///< {heads * head_dim, hidden}
    const float* q_norm = nullptr;  ///< [head_dim]
    const float* k_norm = nullptr;  ///< [head_dim]
    // As long as the outputs of theirs, or null.
    const float *q_bias = nullptr, *k_bias = nullptr, *v_bias = nullptr;
  };
  static Layer layer(const Weights& weights, int index);
  /// Floats of activations a row needs.
  static uint64_t floats_per_row(const ModelConfig& config);

  void bind(Device& device, const ModelConfig& config, int max_rows);
  /// h [rows, hidden] += attention(norm(h)).
  void forward(const Layer& layer, const ForwardArgs& args, const KvLayer& kv, float* h);

 private:
  Device* device_ = nullptr;
  ModelConfig config_;
  Buffer q_, k_, v_, mixed_;
};

}  // namespace weir
