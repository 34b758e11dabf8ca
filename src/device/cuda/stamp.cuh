// The instrument inside kernels: one that can begin a role takes a pointer, and stores the time there unless
// it is null. A round with the ledger runs the very code of one without: two variants of a kernel lie in
// different places, and by that alone a decode round took up to 1 % more or less, which hid what the ledger
// costs.
#pragma once

#include <cstdint>

#include "device/cuda/ptx.cuh"

namespace weir::cuda {

/// The time at which a kernel's work began, on its way to the stamps. One thread of the grid has it, and none
/// where the kernel begins no role or the ledger is off.
struct Stamp {
  uint64_t* slot;
  uint64_t time;
  bool mine;
  __device__ __forceinline__ void store() const {
    if (mine) *slot = time;
  }
};

/// wait_for_previous(); right after it one thread of the grid reads the clock, where `slot` is not null.
/// Which thread that is is known ahead of the wait, and used there: the compiler would read the block's
/// indices after it otherwise, and every warp of the kernel would wait for them. The caller has to store()
/// behind a wait that it makes anyway: at once, the reader would wait for the clock and for its slot's
/// address.
__device__ __forceinline__ Stamp wait_and_read_clock(uint64_t* slot) {
  Stamp stamp{slot, 0, false};
  stamp.mine = slot != nullptr && threadIdx.x == 0 && threadIdx.y == 0 && blockIdx.x == 0 &&
               blockIdx.y == 0 && blockIdx.z == 0;
  if (stamp.mine) prefetch(slot);
  wait_for_previous();
  if (stamp.mine) stamp.time = globaltimer();
  return stamp;
}

/// The same, stored at once: for kernels that are not in a layer of a decode round of one row.
__device__ __forceinline__ void wait_and_stamp(uint64_t* slot) { wait_and_read_clock(slot).store(); }

}  // namespace weir::cuda
