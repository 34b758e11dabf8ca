// Ties the device's clock to the host's: every round that the host waits for brackets the device's stamps
// between two readings of its own clock, and the offset that all recent brackets allow is known within a
// bound. Pure; knows no CUDA.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace weir::cuda {

class ClockTie {
 public:
  /// The host read `host_begin` before it launched and `host_end` after it saw the end; the device's own
  /// clock said `first` at the first stamp and `last` at the last. All in ns.
  void add(uint64_t host_begin, uint64_t host_end, uint64_t first, uint64_t last);
  /// The host's time at which the device's clock said `stamp`, within bound_ns().
  uint64_t to_host(uint64_t stamp) const { return stamp + static_cast<uint64_t>(offset_); }
  uint64_t bound_ns() const { return bound_; }
  bool tied() const { return count_ > 0; }

 private:
  struct Bracket {
    int64_t low, high;      ///< of host - device
    uint64_t host_end = 0;  ///< when it was taken
  };
  // So many and so recent that the drift of two clocks (parts per million) stays near the tick.
  static constexpr size_t kept = 64;
  static constexpr uint64_t longest_ns = 1'000'000'000;
  std::array<Bracket, kept> brackets_{};
  size_t next_ = 0, count_ = 0;
  int64_t offset_ = 0;
  uint64_t bound_ = 0;
};

}  // namespace weir::cuda
