#include "model/head_block.h"

#include "base/error.h"
#include "model/family.h"

namespace weir {

std::vector<std::string> HeadBlock::tensors(const gguf::Model& model) {
  if (model.find("output.weight")) return {"token_embd.weight", "output.weight"};
  return {"token_embd.weight"};
}

uint64_t HeadBlock::bytes(const ModelConfig& c) {
  return static_cast<uint64_t>(Family::head_rows) * static_cast<uint64_t>(c.hidden) * sizeof(float);
}

void HeadBlock::bind(Device& device, const ModelConfig& c, const Weights& w) {
  device_ = &device;
  hidden_ = c.hidden;
  eps_ = c.eps;
  embedding_ = w.matrix("token_embd.weight");
  output_ = w.has("output.weight") ? w.matrix("output.weight") : embedding_;
  norm_ = w.vector("output_norm.weight");
  rows_ = device.allocate(bytes(c), "head rows");
}

void HeadBlock::forward(const float* h, const int32_t* index, int count, float* logits) {
  WEIR_CHECK(count <= Family::head_rows, "{} rows", count);
  auto* rows = rows_.as<float>();
  device_->begin_role(Role::head);
  device_->gather_rows(h, index, count, hidden_, rows);
  const MatmulTarget target[] = {{output_, logits}};
  device_->matmul({rows, count, target, norm_, eps_});
}

}  // namespace weir
