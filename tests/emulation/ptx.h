// The functions of device/cuda/ptx.cuh under emulation: same names, same meaning (said there), and checks of
// what the hardware demands of addresses, sizes and lanes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "emulation/block.h"

#define WEIR_DYNAMIC_SHARED(name) uint8_t* const name = ::weir::emulation::dynamic_shared()

namespace weir::cuda {

inline void allow_next() { emulation::allow_later_kernels(); }
inline void wait_for_previous() { emulation::wait_for_earlier_kernels(); }
inline void prefetch(const void*) {}

inline int dot_unsigned(uint32_t bytes, uint32_t signed_bytes, int c) {
  for (int i = 0; i < 4; ++i)
    c += static_cast<int>(bytes >> 8 * i & 0xff) * static_cast<int8_t>(signed_bytes >> 8 * i & 0xff);
  return c;
}
uint64_t globaltimer();

void mma_k32(int32_t (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1);
void mma_k16(int32_t (&c)[4], uint32_t a0, uint32_t a1, uint32_t b0);
/// Adds in increasing k, each product and each sum rounded to float: the hardware's own order is not known.
void mma_f16(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1);
void ldmatrix_x4(uint32_t (&r)[4], const void* row);
void ldmatrix_x4_trans(uint32_t (&r)[4], const void* row);

void cp_async16(void* shared, const void* global);
void cp_commit();
/// Completes all but the newest `open` groups of this thread.
void cp_wait_groups(int open);
template <int N>
void cp_wait() {
  cp_wait_groups(N);
}

void barrier_init(uint64_t* barrier, uint32_t arrivals);
void arrive_expecting(uint64_t* barrier, uint32_t bytes);
void barrier_wait(uint64_t* barrier, uint32_t parity);
void bulk_copy(void* shared, const void* global, uint32_t bytes, uint64_t* barrier);
inline void fence_async() {}

}  // namespace weir::cuda
