// The one clock: monotonic nanoseconds. Every timing in weir comes from here.
#pragma once

#include <time.h>

#include <cstdint>

namespace weir {

/// Nanoseconds of CLOCK_MONOTONIC (about 20 ns a call through the vDSO).
inline uint64_t now_ns() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<uint64_t>(t.tv_sec) * 1'000'000'000u + static_cast<uint64_t>(t.tv_nsec);
}

}  // namespace weir
