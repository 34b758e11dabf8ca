#include "lab/trail.h"

#include <algorithm>

#include "base/hash.h"

namespace weir::lab {

void TrailRecorder::begin_batch(std::span<const int32_t> requests, std::span<const int32_t> positions) {
  if (next_) next_->begin_batch(requests, positions);
  requests_.assign(requests.begin(), requests.end());
  positions_.assign(positions.begin(), positions.end());
}

void TrailRecorder::after(Device& device, Operation operation, int layer, float* h, int64_t hidden) {
  if (next_) next_->after(device, operation, layer, h, hidden);
  const auto width = static_cast<size_t>(hidden);
  host_.resize(requests_.size() * width);
  device.download(host_.data(), h, host_.size() * sizeof(float));
  device.synchronize();
  for (size_t row = 0; row < requests_.size(); ++row) {
    const Hash64 hash = Hash64().add_words(host_.data() + row * width, width * sizeof(float));
    trails_[requests_[row]][positions_[row]].push_back(hash.value());
  }
}

void TrailRecorder::add_logits(int request, int position, std::span<const float> logits) {
  const Hash64 hash = Hash64().add_words(logits.data(), logits.size_bytes());
  trails_[request][position].push_back(hash.value());
}

const Trail& TrailRecorder::trail(int request) const {
  static const Trail none;
  const auto found = trails_.find(request);
  return found == trails_.end() ? none : found->second;
}

FirstDifference first_difference(const Trail& a, const Trail& b, int layers) {
  for (const auto& [position, left] : a) {
    const auto found = b.find(position);
    if (found == b.end()) continue;
    const PositionTrail& right = found->second;
    const size_t common = std::min(left.size(), right.size());
    for (size_t i = 0; i < common; ++i) {
      if (left[i] == right[i]) continue;
      if (i == 0) return {position, -1, "embed"};
      const auto layer = static_cast<int>((i - 1) / 2);
      if (layer >= layers) return {position, -1, "head"};
      return {position, layer, i % 2 == 1 ? "attention" : "feed_forward"};
    }
  }
  return {};
}

void PlantedFault::begin_batch(std::span<const int32_t>, std::span<const int32_t> positions) {
  positions_.assign(positions.begin(), positions.end());
}

void PlantedFault::after(Device& device, Operation operation, int layer, float* h, int64_t hidden) {
  if (operation != operation_ || layer != layer_) return;
  device.synchronize();  // hazard: the operation may still be writing
  for (size_t row = 0; row < positions_.size(); ++row) {
    if (positions_[row] != position_) continue;
    float* value = h + static_cast<int64_t>(row) * hidden;
    uint32_t bits;
    device.download(&bits, value, sizeof bits);
    bits ^= 1u << 22;
    device.upload(value, &bits, sizeof bits);
  }
}

}  // namespace weir::lab
