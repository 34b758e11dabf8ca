#include "device/cuda/clock_tie.h"

#include <algorithm>

namespace weir::cuda {

void ClockTie::add(uint64_t host_begin, uint64_t host_end, uint64_t first, uint64_t last) {
  const auto difference = [](uint64_t a, uint64_t b) { return static_cast<int64_t>(a - b); };
  const Bracket own{difference(host_begin, first), difference(host_end, last), host_end};
  if (own.low > own.high) return;  // stamps of another round, or a clock that was set: nothing to learn
  brackets_[next_] = own;
  next_ = (next_ + 1) % kept;
  count_ = std::min(count_ + 1, kept);
  Bracket all = own;
  for (size_t i = 0; i < count_; ++i) {
    if (host_end - brackets_[i].host_end > longest_ns) continue;
    all.low = std::max(all.low, brackets_[i].low);
    all.high = std::min(all.high, brackets_[i].high);
  }
  if (all.low > all.high) {  // the clocks drifted apart: only the newest bracket still holds
    all = own;
    count_ = next_ = 1;
    brackets_[0] = own;
  }
  offset_ = all.low + (all.high - all.low) / 2;
  bound_ = static_cast<uint64_t>(all.high - all.low + 1) / 2;
}

}  // namespace weir::cuda
