// A look at the residual stream between operations, for weir verify: where did two runs part? Null (the
// default) costs one branch an operation. A probe may change what it sees: that is how a test plants a fault.
#pragma once

#include <cstdint>
#include <span>

#include "device/device.h"

namespace weir {

/// What the residual stream has just been through. In each layer attention (or what stands in its place)
/// comes first, then the feed-forward, dense or routed.
enum class Operation : uint8_t { embed, attention, feed_forward };

class OperationProbe {
 public:
  virtual ~OperationProbe() = default;
  /// A batch begins: the request's id and the absolute position of each row.
  virtual void begin_batch(std::span<const int32_t> requests, std::span<const int32_t> positions) = 0;
  /// `operation` of `layer` is enqueued (layer 0 for embed); h is [rows, hidden] in the device's memory.
  virtual void after(Device& device, Operation operation, int layer, float* h, int64_t hidden) = 0;
};

}  // namespace weir
