#include "engine/kv.h"

namespace weir {

uint64_t KvCache::bytes_per_position(const ModelConfig& c) {
  return static_cast<uint64_t>(c.layers) * 2 * static_cast<uint64_t>(c.kv_heads) *
         static_cast<uint64_t>(c.head_dim) * sizeof(uint16_t);
}

KvCache::KvCache(Device& device, const ModelConfig& c, int lanes, int context) {
  const int64_t row = static_cast<int64_t>(c.kv_heads) * c.head_dim;
  const int64_t lane = row * context, plane = lane * lanes;
  buffer_ = device.allocate(static_cast<size_t>(plane) * 2 * static_cast<size_t>(c.layers) * sizeof(uint16_t),
                            "KV cache");
  auto* at = buffer_.as<uint16_t>();
  for (int i = 0; i < c.layers; ++i, at += 2 * plane) layers_.push_back({at, at + plane, lane, row});
}

}  // namespace weir
