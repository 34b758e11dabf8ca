// The KV cache: f16 keys and values of every layer for every lane, one span of `context` positions a lane.
// Owns memory only; which positions are valid is the lane's business.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "device/device.h"
#include "model/config.h"

namespace weir {

class KvCache {
 public:
  KvCache(Device& device, const ModelConfig& config, int lanes, int context);
  /// Bytes one position of one lane takes over all layers: for the plan.
  static uint64_t bytes_per_position(const ModelConfig& config);
  std::span<const KvLayer> layers() const { return layers_; }

 private:
  Buffer buffer_;
  std::vector<KvLayer> layers_;
};

}  // namespace weir
