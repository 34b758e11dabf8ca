// The two ends that families share: the embedding table and the output head (its own matrix or the
// embedding's), with the final norm between the residual stream and the logits.
#pragma once

#include <string>
#include <vector>

#include "device/device.h"
#include "model/config.h"
#include "model/weights.h"

namespace weir {

class HeadBlock {
 public:
  /// The matrices {hidden, vocab} the file has: token_embd, and output where the head is not tied.
  static std::vector<std::string> tensors(const gguf::Model& model);
  static uint64_t bytes(const ModelConfig& config);

  void bind(Device& device, const ModelConfig& config, const Weights& weights);
  const Matrix& embedding() const { return embedding_; }
  /// logits[i] = output * norm(h[index[i]]), i < count <= Family::head_rows.
  void forward(const float* h, const int32_t* index, int count, float* logits);

 private:
  Device* device_ = nullptr;
  int64_t hidden_ = 0;
  float eps_ = 0;
  Matrix embedding_, output_;
  const float* norm_ = nullptr;
  Buffer rows_;  // [head_rows, hidden]
};

}  // namespace weir
