#include "lab/ab/memory_meter.h"

#include <algorithm>
#include <cstdio>

#include "experts/plan.h"

namespace weir::lab::ab {

namespace {

/// VmHWM := VmRSS (proc(5), clear_refs, 5).
bool reset_peak() {
  std::FILE* file = std::fopen("/proc/self/clear_refs", "w");
  if (file == nullptr) return false;
  const bool written = std::fputs("5", file) >= 0;
  return std::fclose(file) == 0 && written;
}

}  // namespace

MemoryMeter::MemoryMeter() : base_(read_memory_use({}).rss) {}

void MemoryMeter::begin(Side arm) {
  arm_ = arm;
  resets_ = reset_peak();
  before_ = read_memory_use({}).rss;
}

uint64_t MemoryMeter::end() {
  const MemoryUse use = read_memory_use({});
  const uint64_t peak = std::max({resets_ ? use.peak_rss : 0, use.rss, before_});
  int64_t& own = own_[index(arm_)];
  const int64_t before_arm = static_cast<int64_t>(base_) + own;
  own += static_cast<int64_t>(use.rss) - static_cast<int64_t>(before_);
  return static_cast<uint64_t>(std::max<int64_t>(0, before_arm + static_cast<int64_t>(peak - before_)));
}

}  // namespace weir::lab::ab
