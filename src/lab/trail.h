// Where two runs part: the residual stream hashed after every operation of every position, and the first
// place at which two such trails differ. Also a planted fault, which proves that a difference would be found.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "model/operation_probe.h"

namespace weir::lab {

/// Of one position: embed, then attention and feed-forward of each layer, then the logits where it was
/// sampled.
using PositionTrail = std::vector<uint64_t>;
/// Of one request, by absolute position.
using Trail = std::map<int, PositionTrail>;

/// Hashes what it sees. Rows are told apart by request and position, so chunks and lanes do not matter.
class TrailRecorder final : public OperationProbe {
 public:
  /// `next` (or null) sees, and may change, everything first.
  explicit TrailRecorder(OperationProbe* next) : next_(next) {}
  void begin_batch(std::span<const int32_t> requests, std::span<const int32_t> positions) override;
  void after(Device& device, Operation operation, int layer, float* h, int64_t hidden) override;
  void add_logits(int request, int position, std::span<const float> logits);
  const Trail& trail(int request) const;

 private:
  OperationProbe* next_;
  std::vector<int32_t> requests_, positions_;
  std::vector<float> host_;  // [rows, hidden]
  std::map<int, Trail> trails_;
};

struct FirstDifference {
  int position = 0;
  int layer = -1;         ///< -1: before or after the layers
  std::string operation;  ///< embed, attention, feed_forward, head
};

/// The lowest position that differs and in it the first operation: all that came before was equal, so it
/// arose there. Empty operation: the trails are equal. A position that only one of them has is left out.
FirstDifference first_difference(const Trail& a, const Trail& b, int layers);

/// Flips one bit of the residual stream, the highest of one value's fraction, at one place.
class PlantedFault final : public OperationProbe {
 public:
  PlantedFault(int position, int layer, Operation operation)
      : position_(position), layer_(layer), operation_(operation) {}
  void begin_batch(std::span<const int32_t> requests, std::span<const int32_t> positions) override;
  void after(Device& device, Operation operation, int layer, float* h, int64_t hidden) override;

 private:
  int position_, layer_;
  Operation operation_;
  std::vector<int32_t> positions_;
};

}  // namespace weir::lab
