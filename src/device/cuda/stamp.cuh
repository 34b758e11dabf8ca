// The instrument inside kernels: the stamped variant of a kernel that can begin a role stores the time, the
// other holds no trace of it.
#pragma once

#include "device/cuda/ptx.cuh"

namespace weir::cuda {

/// One thread of the grid stores the time; call right after wait_for_previous(). Compiled away unless kStamp.
template <bool kStamp>
__device__ __forceinline__ void stamp(uint64_t* slot) {
  if constexpr (kStamp) {
    if (threadIdx.x == 0 && threadIdx.y == 0 && blockIdx.x == 0 && blockIdx.y == 0 && blockIdx.z == 0)
      *slot = globaltimer();
  }
}

}  // namespace weir::cuda
