// Builds the map of expert slices from a model's tensors, refusing shapes that do not belong together.
#include "experts/store.h"

#include <algorithm>

#include "base/error.h"

namespace weir {
namespace {

const char* part_name(ExpertPartKind kind) {
  switch (kind) {
    case ExpertPartKind::gate:
      return "gate";
    case ExpertPartKind::up:
      return "up";
    case ExpertPartKind::gate_up:
      return "gate_up";
    case ExpertPartKind::down:
      return "down";
  }
  return "?";
}

/// "FILE: tensor NAME".
std::string where(const gguf::Model& model, const gguf::Tensor& tensor) {
  return fmt::format("{}: tensor {}", model.files()[tensor.file].path, tensor.name);
}

ExpertPart make_part(const gguf::Model& model, const ExpertStore::Named& named) {
  const gguf::Tensor& t = *named.tensor;
  if (t.n_dims != 3)
    throw input_error("{}: {} dimensions; experts have 3 (in, out, experts)", where(model, t), t.n_dims);
  const TypeInfo& info = type_info(t.type);
  if (!info.computable)
    throw input_error("{}: cannot compute with type {}; weir computes {}", where(model, t), info.name,
                      computable_types());
  ExpertPart part{named.kind, t.type, t.dims[0], t.dims[1], t.file, t.offset, 0, t.name};
  if (part.in <= 0 || part.out <= 0 || part.in % info.block_elements != 0)
    throw input_error("{}: rows of {} elements; type {} needs a multiple of {}", where(model, t), part.in,
                      info.name, info.block_elements);
  part.bytes = info.bytes(static_cast<uint64_t>(part.in) * static_cast<uint64_t>(part.out));
  if (part.bytes * static_cast<uint64_t>(t.dims[2]) != t.bytes)
    throw input_error("{}: {} bytes; {} experts of {} bytes would be right", where(model, t), t.bytes,
                      t.dims[2], part.bytes);
  return part;
}

/// One shape of the layer and what it must be.
void check_shape(const gguf::Model& model, const gguf::Tensor& t, int64_t in, int64_t out, int64_t experts) {
  if (t.dims[0] == in && t.dims[1] == out && t.dims[2] == experts) return;
  throw input_error("{}: shape {{{}, {}, {}}}; the layer's other experts need {{{}, {}, {}}}",
                    where(model, t), t.dims[0], t.dims[1], t.dims[2], in, out, experts);
}

ExpertLayer make_layer(const gguf::Model& model, std::vector<ExpertStore::Named> named, size_t index) {
  ExpertLayer layer;
  if (named.empty()) return layer;
  std::sort(named.begin(), named.end(), [](const auto& a, const auto& b) { return a.kind < b.kind; });
  using Kind = ExpertPartKind;
  std::vector<Kind> kinds;
  for (const auto& n : named) kinds.push_back(n.kind);
  const bool fused = kinds == std::vector{Kind::gate_up, Kind::down};
  if (!fused && kinds != std::vector{Kind::gate, Kind::up, Kind::down}) {
    std::string given;
    for (const Kind k : kinds) given += fmt::format("{}{}", given.empty() ? "" : ", ", part_name(k));
    throw input_error("{}: layer {} has the expert tensors ({}); (gate, up, down) or (gate_up, down) needed",
                      model.path(), index, given);
  }
  for (const auto& n : named) layer.parts.push_back(make_part(model, n));
  const gguf::Tensor& down = *named.back().tensor;
  const int64_t experts = down.dims[2];
  layer.ff = down.dims[0];
  layer.hidden = down.dims[1];
  if (experts < 1 || experts > 65536)
    throw input_error("{}: {} experts; 1 to 65536 are possible", where(model, down), experts);
  layer.experts = static_cast<int>(experts);
  for (size_t i = 0; i + 1 < named.size(); ++i)
    check_shape(model, *named[i].tensor, layer.hidden, fused ? 2 * layer.ff : layer.ff, experts);
  return layer;
}

}  // namespace

uint64_t ExpertLayer::expert_bytes() const {
  uint64_t sum = 0;
  for (const ExpertPart& part : parts) sum += part.bytes;
  return sum;
}

ExpertStore::ExpertStore(const gguf::Model& model, const std::vector<std::vector<Named>>& tensors)
    : files_(model.files()), fingerprint_(model.fingerprint()) {
  for (size_t i = 0; i < tensors.size(); ++i) layers_.push_back(make_layer(model, tensors[i], i));
}

int ExpertStore::most_experts() const {
  int most = 0;
  for (const ExpertLayer& layer : layers_) most = std::max(most, layer.experts);
  return most;
}

uint64_t ExpertStore::total_bytes() const {
  uint64_t sum = 0;
  for (const ExpertLayer& layer : layers_) sum += layer.expert_bytes() * static_cast<uint64_t>(layer.experts);
  return sum;
}

}  // namespace weir
