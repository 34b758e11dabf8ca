// The instructions that CUDA C++ has no word for, one function each; no other file holds inline assembly.
// With WEIR_CUDA_EMULATION they are what tests/emulation makes of them, so that kernels run on a machine
// without a GPU.
#pragma once

#include <cstdint>

#if defined(WEIR_CUDA_EMULATION)
#include "emulation/ptx.h"
#else

/// The block's dynamic shared memory as an array of bytes, 128-byte aligned.
#define WEIR_DYNAMIC_SHARED(name) extern __shared__ __align__(128) uint8_t name[]

namespace weir::cuda {

// --- the order of kernels
// ---------------------------------------------------------------------------------------

/// Lets the next launch start as soon as every block of this one has called it (or ended). It may be called
/// before wait_for_previous(): the next kernel still waits for this one's end before it touches its results.
/// What a kernel reads before wait_for_previous() must therefore be constant since loading, or complete
/// behind a kernel that settles (kernels.h), which calls this after its own wait.
__device__ __forceinline__ void allow_next() {
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

/// The launch before this one is complete, and what it wrote is visible.
__device__ __forceinline__ void wait_for_previous() { asm volatile("griddepcontrol.wait;" ::: "memory"); }

/// Asks for the line at `global`, and waits for nothing.
__device__ __forceinline__ void prefetch(const void* global) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(global) : "memory");
}

/// Nanoseconds of the device's clock.
__device__ __forceinline__ uint64_t globaltimer() {
  uint64_t t;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t)::"memory");
  return t;
}

// --- integers
// ---------------------------------------------------------------------------------------------------

/// c plus the products of four unsigned bytes and four signed ones.
__device__ __forceinline__ int dot_unsigned(uint32_t bytes, uint32_t signed_bytes, int c) {
  int d;
  asm("dp4a.u32.s32 %0, %1, %2, %3;" : "=r"(d) : "r"(bytes), "r"(signed_bytes), "r"(c));
  return d;
}

// --- tensor cores
// ------------------------------------------------------------------------------------------------- Lane: g =
// lane / 4, t = lane % 4. C and D everywhere: d[0], d[1] = row g, columns 2t, 2t + 1; d[2], d[3] = row g + 8.

/// c += A * B, s8 x s8 -> s32, k = 32. a[0] = A row g, k 4t..4t+3; a[1] = row g + 8; a[2] = row g, k
/// 16 + 4t..; a[3] = row g + 8 likewise. b0 = B column g, k 4t..4t+3; b1 = k 16 + 4t...
__device__ __forceinline__ void mma_k32(int32_t (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/// c += A * B, s8 x s8 -> s32, k = 16. a0 = A row g, k 4t..4t+3; a1 = row g + 8; b0 = B column g, k 4t..4t+3.
__device__ __forceinline__ void mma_k16(int32_t (&c)[4], uint32_t a0, uint32_t a1, uint32_t b0) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
               : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
               : "r"(a0), "r"(a1), "r"(b0));
}

/// c += A * B, f16 x f16 -> f32, k = 16, two halves a register (the lower k in the low half). a[0] = A row g,
/// k 2t, 2t + 1; a[1] = row g + 8; a[2] = row g, k 2t + 8, 2t + 9; a[3] = row g + 8 likewise. b0 = B column
/// g, k 2t, 2t + 1; b1 = k 2t + 8, 2t + 9.
__device__ __forceinline__ void mma_f16(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/// Four 8 x 8 matrices of 16-bit values from shared memory; lane i gives the address of row i % 8 of matrix i
/// / 8 (16 bytes, 16-byte aligned). r[m]: lane holds row g, columns 2t and 2t + 1 of matrix m.
__device__ __forceinline__ void ldmatrix_x4(uint32_t (&r)[4], const void* row) {
  const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}

/// The same, each matrix transposed: lane holds rows 2t and 2t + 1 of column g.
__device__ __forceinline__ void ldmatrix_x4_trans(uint32_t (&r)[4], const void* row) {
  const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}

// --- copies into shared memory that run beside the threads
// ----------------------------------------------------------

/// 16 bytes, both addresses 16-byte aligned; then cp_commit() closes a group, and cp_wait<N>() waits until at
/// most N groups of this thread are open. Other threads see the bytes after __syncthreads().
__device__ __forceinline__ void cp_async16(void* shared, const void* global) {
  const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(shared));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(address), "l"(global) : "memory");
}
__device__ __forceinline__ void cp_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int N>
__device__ __forceinline__ void cp_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

/// A barrier in shared memory (8-byte aligned) on which bulk copies complete. One thread initialises it, for
/// `arrivals` arrive_expecting() calls a phase; then __syncthreads() before others use it.
__device__ __forceinline__ void barrier_init(uint64_t* barrier, uint32_t arrivals) {
  const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(barrier));
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(address), "r"(arrivals) : "memory");
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
/// Arrives, and makes the phase wait for `bytes` more of bulk copies.
__device__ __forceinline__ void arrive_expecting(uint64_t* barrier, uint32_t bytes) {
  const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(barrier));
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(address), "r"(bytes)
               : "memory");
}
/// Waits for the end of the phase with this parity (0 for the first, then 1, 0, ...). Bytes that bulk copies
/// of that phase wrote are visible to the caller.
__device__ __forceinline__ void barrier_wait(uint64_t* barrier, uint32_t parity) {
  const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(barrier));
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again;\n"
      "}\n" ::"r"(address),
      "r"(parity)
      : "memory");
}
/// One thread starts a copy of `bytes` (a multiple of 16; both addresses 16-byte aligned) that completes on
/// `barrier`. Shared memory that threads read or wrote before needs __syncthreads() and fence_async() first.
__device__ __forceinline__ void bulk_copy(void* shared, const void* global, uint32_t bytes,
                                          uint64_t* barrier) {
  const auto to = static_cast<uint32_t>(__cvta_generic_to_shared(shared));
  const auto on = static_cast<uint32_t>(__cvta_generic_to_shared(barrier));
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
      "l"(global), "r"(bytes), "r"(on)
      : "memory");
}
/// Orders this thread's accesses to shared memory before later bulk copies into it.
__device__ __forceinline__ void fence_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

}  // namespace weir::cuda
#endif
