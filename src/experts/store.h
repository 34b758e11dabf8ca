// Where expert bytes lie: for every MoE layer and expert, the slices of the user's own GGUF file. Knows no
// family: a family names the tensors. Slices are never mapped.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gguf/reader.h"

namespace weir {

/// What a slice is to the expert: fused files hold gate then up in one tensor.
enum class ExpertPartKind : uint8_t { gate, up, gate_up, down };

/// One tensor of a layer's experts {in, out, experts}; expert e is `bytes` contiguous bytes at offset + e *
/// bytes.
struct ExpertPart {
  ExpertPartKind kind;
  Type type;
  int64_t in = 0, out = 0;  ///< of one expert
  uint32_t file = 0;        ///< index into gguf::Model::files()
  uint64_t offset = 0;      ///< of expert 0, absolute
  uint64_t bytes = 0;       ///< of one expert
  std::string name{};       ///< the tensor's
};

struct ExpertLayer {
  int experts = 0;
  int64_t hidden = 0, ff = 0;
  std::vector<ExpertPart> parts;  ///< (gate, up, down) or (gate_up, down)
  uint64_t expert_bytes() const;  ///< sum of parts
};

/// Layers without routed experts have an ExpertLayer with experts == 0.
class ExpertStore {
 public:
  ExpertStore() = default;
  /// `tensors[layer]` names that layer's tensors by kind; empty for a dense layer. Checks shapes against each
  /// other.
  struct Named {
    ExpertPartKind kind;
    const gguf::Tensor* tensor;
  };
  ExpertStore(const gguf::Model& model, const std::vector<std::vector<Named>>& tensors);

  int layers() const { return static_cast<int>(layers_.size()); }
  const ExpertLayer& layer(int index) const { return layers_[static_cast<size_t>(index)]; }
  const std::vector<gguf::File>& files() const { return files_; }
  uint64_t total_bytes() const;
  int most_experts() const;  ///< of any layer
  uint64_t fingerprint() const { return fingerprint_; }

 private:
  std::vector<ExpertLayer> layers_;
  std::vector<gguf::File> files_;
  uint64_t fingerprint_ = 0;
};

}  // namespace weir
