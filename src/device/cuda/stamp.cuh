// The instrument inside kernels: the stamped variant of a kernel that can begin a role stores the time, the
// other holds no trace of it.
#pragma once

#include <cstdint>

#include "device/cuda/ptx.cuh"

namespace weir::cuda {

/// wait_for_previous(); right after it one thread of the grid stores the time, where kStamp. Which thread
/// that is is known ahead of the wait, and used there: the compiler would read the block's indices after it
/// otherwise, and every warp of the kernel would wait for them.
template <bool kStamp>
__device__ __forceinline__ void wait_and_stamp(uint64_t* slot) {
  if constexpr (kStamp) {
    const bool stamps =
        threadIdx.x == 0 && threadIdx.y == 0 && blockIdx.x == 0 && blockIdx.y == 0 && blockIdx.z == 0;
    if (stamps) prefetch(slot);
    wait_for_previous();
    if (stamps) *slot = globaltimer();
  } else {
    wait_for_previous();
  }
}

}  // namespace weir::cuda
