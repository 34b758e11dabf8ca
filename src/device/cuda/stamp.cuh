// The instrument inside kernels: the stamped variant of a kernel that can begin a role stores the time, the
// other holds no trace of it.
#pragma once

#include <cstdint>

#include "device/cuda/ptx.cuh"

namespace weir::cuda {

/// The time at which a kernel's work began, on its way to the stamps.
template <bool kStamp>
struct Stamp {
  __device__ __forceinline__ void store() const {}
};
template <>
struct Stamp<true> {
  uint64_t* slot;
  uint64_t time;
  bool mine;  ///< this thread of the grid stores it
  __device__ __forceinline__ void store() const {
    if (mine) *slot = time;
  }
};

/// wait_for_previous(); right after it one thread of the grid reads the clock, where kStamp. Which thread
/// that is is known ahead of the wait, and used there: the compiler would read the block's indices after it
/// otherwise, and every warp of the kernel would wait for them. The caller has to store() behind a wait that
/// it makes anyway: at once, the reader would wait for the clock and for its slot's address.
template <bool kStamp>
__device__ __forceinline__ Stamp<kStamp> wait_and_read_clock(uint64_t* slot) {
  if constexpr (kStamp) {
    Stamp<true> stamp{slot, 0, false};
    stamp.mine =
        threadIdx.x == 0 && threadIdx.y == 0 && blockIdx.x == 0 && blockIdx.y == 0 && blockIdx.z == 0;
    if (stamp.mine) prefetch(slot);
    wait_for_previous();
    if (stamp.mine) stamp.time = globaltimer();
    return stamp;
  } else {
    wait_for_previous();
    return {};
  }
}

/// The same, stored at once: for kernels that are not in a layer of a decode round of one row.
template <bool kStamp>
__device__ __forceinline__ void wait_and_stamp(uint64_t* slot) {
  wait_and_read_clock<kStamp>(slot).store();
}

}  // namespace weir::cuda
