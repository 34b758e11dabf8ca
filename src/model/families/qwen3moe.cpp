// qwen3moe (Qwen3-30B-A3B, Qwen3-235B-A22B): grouped-query attention with q/k norm, then a softmax router
// over all experts, the top k renormalised, SwiGLU experts, no shared expert. Untied or tied head.
#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "model/attention_block.h"
#include "model/family.h"
#include "model/head_block.h"

namespace weir {

namespace {

class Qwen3Moe final : public Family {
 public:
  Qwen3Moe(const gguf::Model& model, ArchitectureKeys& keys);
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
    Matrix router;          // {hidden, experts}
  };
  void moe(int index, const ForwardArgs& args);

  Device* device_ = nullptr;
  AttentionBlock attention_;
  HeadBlock head_;
  std::vector<Layer> layers_;
  Buffer h_, normed_;     // [rows, hidden]
  Buffer ids_, weights_;  // [rows, top_k]
};

Qwen3Moe::Qwen3Moe(const gguf::Model& model, ArchitectureKeys& keys) {
  config_ = read_common_config(keys);
  read_expert_config(keys, config_);
  const auto& c = config_;
  experts_.resize(static_cast<size_t>(c.layers));
  need_ends(model);
  for (int i = 0; i < c.layers; ++i) {
    const std::string p = fmt::format("blk.{}.", i);
    need_attention(model, i);
    need_matrix(model, p + "ffn_gate_inp.weight", c.hidden, c.experts);
    if (const Type t = model.tensor(p + "ffn_gate_inp.weight").type; type_info(t).act != ActFormat::none)
      throw input_error("{}: tensor {}ffn_gate_inp.weight is {}: the router must be F32, F16 or BF16",
                        model.path(), p, type_info(t).name);
    need_experts(model, i);
  }
}

uint64_t Qwen3Moe::activation_bytes(int max_rows) const {
  const auto& c = config_;
  const uint64_t floats = AttentionBlock::floats_per_row(c) + 2 * static_cast<uint64_t>(c.hidden);
  const uint64_t routing = static_cast<uint64_t>(c.top_k) * (sizeof(int32_t) + sizeof(float));
  return static_cast<uint64_t>(max_rows) * (floats * sizeof(float) + routing) + HeadBlock::bytes(c);
}

ScratchNeeds Qwen3Moe::scratch_needs(int max_rows) const {
  const auto& c = config_;
  const int64_t q = static_cast<int64_t>(c.heads) * c.head_dim;
  return {max_rows, std::max(c.hidden, q), c.top_k, c.expert_ff, c.hidden, c.experts, c.heads, c.head_dim};
}

void Qwen3Moe::bind(Device& device, const Weights& w, int max_rows) {
  const auto& c = config_;
  device_ = &device;
  const auto rows = static_cast<size_t>(max_rows);
  h_ = device.allocate(rows * static_cast<size_t>(c.hidden) * sizeof(float), "residual stream");
  normed_ = device.allocate(rows * static_cast<size_t>(c.hidden) * sizeof(float), "expert input");
  ids_ = device.allocate(rows * static_cast<size_t>(c.top_k) * sizeof(int32_t), "expert ids");
  weights_ = device.allocate(rows * static_cast<size_t>(c.top_k) * sizeof(float), "expert weights");
  attention_.bind(device, c, max_rows);
  head_.bind(device, c, w);
  for (int i = 0; i < c.layers; ++i) {
    const std::string p = fmt::format("blk.{}.", i);
    layers_.push_back(
        {AttentionBlock::layer(w, i), w.vector(p + "ffn_norm.weight"), w.matrix(p + "ffn_gate_inp.weight")});
  }
}

void Qwen3Moe::forward(const ForwardArgs& args) {
  device_->begin_role(Role::embed);
  device_->embed({head_.embedding(), args.rows, h_.as<float>()});
  show(args, *device_, Operation::embed, 0, h_.as<float>());
  for (int i = 0; i < config_.layers && !args.cancelled(); ++i) {
    attention_.forward(layers_[static_cast<size_t>(i)].attention, args, args.kv[static_cast<size_t>(i)],
                       h_.as<float>());
    show(args, *device_, Operation::attention, i, h_.as<float>());
    moe(i, args);
    show(args, *device_, Operation::feed_forward, i, h_.as<float>());
  }
}

void Qwen3Moe::moe(int index, const ForwardArgs& args) {
  const auto& c = config_;
  const Layer& layer = layers_[static_cast<size_t>(index)];
  const int rows = args.rows.count;
  auto *h = h_.as<float>(), *normed = normed_.as<float>(), *weights = weights_.as<float>();
  auto* ids = ids_.as<int32_t>();

  device_->begin_role(Role::router);
  device_->route({h, layer.ffn_norm, c.eps, normed, layer.router, nullptr, rows, c.top_k,
                  RouterKind::softmax_selected, ids, weights});
  args.experts->run({index, rows, c.top_k, normed, h, ids, weights, Activation::swiglu}, *args.faults);
}

}  // namespace

std::unique_ptr<Family> make_qwen3moe(const gguf::Model& model, ArchitectureKeys& keys) {
  return std::make_unique<Qwen3Moe>(model, keys);
}

}  // namespace weir
