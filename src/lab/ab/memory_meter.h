// Peak memory of each of two arms that live in one process: only one is at work at a time, so what the
// process grows by meanwhile is that arm's.
#pragma once

#include <array>
#include <cstdint>

#include "lab/ab/experiment.h"

namespace weir::lab::ab {

class MemoryMeter {
 public:
  /// What the process takes now counts for every arm.
  MemoryMeter();
  /// The arm begins to work (opens, loads, runs).
  void begin(Side arm);
  /// It pauses. Returns the peak, since begin(), of a process that had only this arm in it. Where the kernel
  /// does not let us reset VmHWM, the larger of both ends.
  uint64_t end();

 private:
  uint64_t base_ = 0;
  std::array<int64_t, 2> own_{};  ///< bytes that each arm has added so far
  Side arm_ = Side::a;
  uint64_t before_ = 0;
  bool resets_ = false;
};

}  // namespace weir::lab::ab
