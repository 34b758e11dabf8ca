#include "model/attention_block.h"

#include <fmt/format.h>

#include <cmath>

namespace weir {

AttentionBlock::Layer AttentionBlock::layer(const Weights& w, int index) {
  const std::string p = fmt::format("blk.{}.", index);
  const auto bias = [&](const char* name) { return w.has(p + name) ? w.vector(p + name) : nullptr; };
  return {w.vector(p + "attn_norm.weight"),
          w.matrix(p + "attn_q.weight"),
          w.matrix(p + "attn_k.weight"),
          w.matrix(p + "attn_v.weight"),
          w.matrix(p + "attn_output.weight"),
          w.vector(p + "attn_q_norm.weight"),
          w.vector(p + "attn_k_norm.weight"),
          bias("attn_q.bias"),
          bias("attn_k.bias"),
          bias("attn_v.bias")};
}

uint64_t AttentionBlock::floats_per_row(const ModelConfig& c) {
  const int64_t q = static_cast<int64_t>(c.heads) * c.head_dim,
                kv = static_cast<int64_t>(c.kv_heads) * c.head_dim;
  return static_cast<uint64_t>(2 * q + 2 * kv);
}

void AttentionBlock::bind(Device& device, const ModelConfig& c, int max_rows) {
  device_ = &device;
  config_ = c;
  const auto floats = [&](int64_t n) {
    return device.allocate(static_cast<size_t>(n) * static_cast<size_t>(max_rows) * sizeof(float),
                           "attention activations");
  };
  const int64_t q = static_cast<int64_t>(c.heads) * c.head_dim,
                kv = static_cast<int64_t>(c.kv_heads) * c.head_dim;
  q_ = floats(q);
  k_ = floats(kv);
  v_ = floats(kv);
  mixed_ = floats(q);
}

void AttentionBlock::forward(const Layer& l, const ForwardArgs& args, const KvLayer& kv, float* h) {
  const ModelConfig& c = config_;
  const int rows = args.rows.count;
  auto *q = q_.as<float>(), *k = k_.as<float>(), *v = v_.as<float>();
  auto* mixed = mixed_.as<float>();

  device_->begin_role(Role::attention);
  const MatmulTarget qkv[] = {
      {l.q, q, false, l.q_bias}, {l.k, k, false, l.k_bias}, {l.v, v, false, l.v_bias}};
  device_->matmul({h, rows, qkv, l.norm, c.eps});
  device_->rope_and_store(
      {q, k, v, l.q_norm, l.k_norm, c.eps, c.heads, c.kv_heads, c.head_dim, args.rope, args.rows, kv});
  const float scale = 1.0f / std::sqrt(static_cast<float>(c.head_dim));
  device_->attend({q, mixed, c.heads, c.kv_heads, c.head_dim, scale, 0, nullptr, args.rows, kv});
  const MatmulTarget projection[] = {{l.output, h, true}};
  device_->matmul({mixed, rows, projection});
}

}  // namespace weir
