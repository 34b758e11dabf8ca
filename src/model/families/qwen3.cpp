// qwen3 (Qwen3-0.6B to 32B, and small drafters): qwen3moe's attention with a dense SwiGLU feed-forward.
#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "model/attention_block.h"
#include "model/family.h"
#include "model/head_block.h"

namespace weir {

namespace {

class Qwen3 final : public Family {
 public:
  Qwen3(const gguf::Model& model, ArchitectureKeys& keys);
  uint64_t activation_bytes(int max_rows) const override;
  ScratchNeeds scratch_needs(int max_rows) const override;
  void bind(Device& device, const Weights& weights, int max_rows) override;
  void forward(const ForwardArgs& args) override;
  void head(const int32_t* index, int count, float* logits) override {
    head_.forward(h_.as<float>(), index, count, logits);
  }

 private:
  struct Layer {
    AttentionBlock::Layer attention;
    const float* ffn_norm;  // [hidden]
    Matrix gate, up, down;  // {hidden, ff} twice, {ff, hidden}
  };
  void feed_forward(const Layer& layer, int rows);

  Device* device_ = nullptr;
  AttentionBlock attention_;
  HeadBlock head_;
  std::vector<Layer> layers_;
  Buffer h_;          // [rows, hidden]
  Buffer gate_, up_;  // [rows, ff]
};

Qwen3::Qwen3(const gguf::Model& model, ArchitectureKeys& keys) {
  config_ = read_common_config(keys);
  const auto& c = config_;
  if (c.ff < 1)
    throw input_error("{}: {}.feed_forward_length is {}: expected at least 1", model.path(), c.architecture,
                      c.ff);
  experts_.resize(static_cast<size_t>(c.layers));
  need_ends(model);
  for (int i = 0; i < c.layers; ++i) {
    const std::string p = fmt::format("blk.{}.", i);
    need_attention(model, i);
    need_matrix(model, p + "ffn_gate.weight", c.hidden, c.ff);
    need_matrix(model, p + "ffn_up.weight", c.hidden, c.ff);
    need_matrix(model, p + "ffn_down.weight", c.ff, c.hidden);
  }
}

uint64_t Qwen3::activation_bytes(int max_rows) const {
  const auto& c = config_;
  const uint64_t floats = AttentionBlock::floats_per_row(c) + static_cast<uint64_t>(c.hidden + 2 * c.ff);
  return static_cast<uint64_t>(max_rows) * floats * sizeof(float) + HeadBlock::bytes(c);
}

ScratchNeeds Qwen3::scratch_needs(int max_rows) const {
  const auto& c = config_;
  const int64_t q = static_cast<int64_t>(c.heads) * c.head_dim;
  return {max_rows, std::max({c.hidden, q, c.ff}), 0, 0, c.hidden, 0, c.heads, c.head_dim};
}

void Qwen3::bind(Device& device, const Weights& w, int max_rows) {
  const auto& c = config_;
  device_ = &device;
  const auto floats = [&](int64_t n, const char* what) {
    return device.allocate(static_cast<size_t>(max_rows) * static_cast<size_t>(n) * sizeof(float), what);
  };
  h_ = floats(c.hidden, "residual stream");
  gate_ = floats(c.ff, "feed-forward gate");
  up_ = floats(c.ff, "feed-forward up");
  attention_.bind(device, c, max_rows);
  head_.bind(device, c, w);
  for (int i = 0; i < c.layers; ++i) {
    const std::string p = fmt::format("blk.{}.", i);
    layers_.push_back({AttentionBlock::layer(w, i), w.vector(p + "ffn_norm.weight"),
                       w.matrix(p + "ffn_gate.weight"), w.matrix(p + "ffn_up.weight"),
                       w.matrix(p + "ffn_down.weight")});
  }
}

void Qwen3::forward(const ForwardArgs& args) {
  device_->begin_role(Role::embed);
  device_->embed({head_.embedding(), args.rows, h_.as<float>()});
  show(args, *device_, Operation::embed, 0, h_.as<float>());
  for (int i = 0; i < config_.layers && !args.cancelled(); ++i) {
    const Layer& layer = layers_[static_cast<size_t>(i)];
    attention_.forward(layer.attention, args, args.kv[static_cast<size_t>(i)], h_.as<float>());
    show(args, *device_, Operation::attention, i, h_.as<float>());
    feed_forward(layer, args.rows.count);
    show(args, *device_, Operation::feed_forward, i, h_.as<float>());
  }
}

void Qwen3::feed_forward(const Layer& l, int rows) {
  const auto& c = config_;
  auto *h = h_.as<float>(), *gate = gate_.as<float>(), *up = up_.as<float>();
  device_->begin_role(Role::dense);
  const MatmulTarget gate_up[] = {{l.gate, gate}, {l.up, up}};
  device_->matmul({h, rows, gate_up, l.ffn_norm, c.eps});
  device_->gated({gate, up, gate, rows, c.ff, Activation::swiglu});
  const MatmulTarget down[] = {{l.down, h, true}};
  device_->matmul({gate, rows, down});
}

}  // namespace

std::unique_ptr<Family> make_qwen3(const gguf::Model& model, ArchitectureKeys& keys) {
  return std::make_unique<Qwen3>(model, keys);
}

}  // namespace weir
