// The fast arithmetic of attention: f16 tensor-core products in chunks of 64 positions. For one query vector
// and one chunk, in this order whoever computes it, so that two kernels may share the work by rows and chunks
// and give the same bits:
//   q is cut in two f16 parts, high = f16(q) and low = f16(q - high)
//   s[j] = (high . k[j] + low . k[j]) * scale     two chains of mma steps of 16 over head_dim, in order
//   m = the largest s[j] seen; p[j] = f16(exp(s[j] - m)), 0 where j is not seen
//   l = p . 1, o[d] = p . v[.][d]                 mma steps of 16 positions over the chunk, all four always
// An element of an mma depends on its own row of A and column of B alone, so what else is in a tile changes
// nothing; V past the last position that any row of the tile sees is zero there, and 0 * V adds nothing.
#pragma once

#include <cuda_fp16.h>

#include <cstring>

#include "device/cuda/attention.cuh"

namespace weir::cuda::attention {

inline constexpr int fast_steps = fast_chunk / 16;
/// Rows of f16 in shared memory are padded by 16 bytes: the eight rows of a matrix then lie in different
/// banks.
inline constexpr int fast_pad = 8;

__device__ __forceinline__ uint32_t pack_halves(float low, float high) {
  const __half2 pair = __floats2half2_rn(low, high);
  uint32_t bits;
  std::memcpy(&bits, &pair, sizeof bits);
  return bits;
}

__device__ __forceinline__ float f16_part(float x) { return __half2float(__float2half_rn(x)); }

/// Query vectors begin.. of the block's tile as high and low parts, [vectors][kDim + fast_pad] each; zeros
/// where there is none.
template <int kDim, int kVectors, int kThreads>
__device__ __forceinline__ void load_queries(const AttendArgs& args, const Place& place, int heads,
                                             uint16_t* high, uint16_t* low) {
  constexpr int quads = kDim / 4;
#pragma unroll
  for (int i = threadIdx.x; i < kVectors * quads; i += kThreads) {
    const int vector = i / quads, d = i % quads * 4;
    const int row = vector / heads, head = vector % heads;
    float4 q = make_float4(0, 0, 0, 0);
    if (row < place.rows && head < place.heads)
      q = *reinterpret_cast<const float4*>(
          args.q +
          (static_cast<int64_t>(place.first_row + row) * args.heads + place.first_head + head) * kDim + d);
    const int at = vector * (kDim + fast_pad) + d;
    *reinterpret_cast<uint2*>(high + at) = make_uint2(pack_halves(q.x, q.y), pack_halves(q.z, q.w));
    *reinterpret_cast<uint2*>(low + at) = make_uint2(pack_halves(q.x - f16_part(q.x), q.y - f16_part(q.y)),
                                                     pack_halves(q.z - f16_part(q.z), q.w - f16_part(q.w)));
  }
}

/// Starts the copy of a chunk's keys or values, [fast_chunk][kDim + fast_pad]; zeros after `last`, but for
/// the kFresh rows that follow it: another thread writes those. By threads 0..kThreads - 1.
template <int kDim, int kThreads, int kFresh = 0>
__device__ __forceinline__ void load_chunk(const uint16_t* base, int64_t row_stride, int chunk, int last,
                                           uint16_t* to) {
  constexpr int pieces = kDim / 8;  // of 16 bytes
  constexpr int at_once = kThreads / pieces;
  static_assert(fast_chunk % at_once == 0 && kThreads % pieces == 0);
  const int j = static_cast<int>(threadIdx.x) / pieces, d = static_cast<int>(threadIdx.x) % pieces * 8;
  const int left = last - chunk * fast_chunk - j;
  const uint16_t* from = base + (chunk * fast_chunk + j) * row_stride + d;
  to += j * (kDim + fast_pad) + d;
#pragma unroll
  for (int k = 0; k < fast_chunk; k += at_once) {
    if (k <= left)
      cp_async16(to + k * (kDim + fast_pad), from);
    else if (k > left + kFresh)
      *reinterpret_cast<uint4*>(to + k * (kDim + fast_pad)) = make_uint4(0, 0, 0, 0);
    from += at_once * row_stride;
  }
}

/// A: 16 query vectors or rows of P from `rows` on, k columns column..column + 15.
__device__ __forceinline__ void load_a(uint32_t (&a)[4], const uint16_t* rows, int stride, int column,
                                       int lane) {
  ldmatrix_x4(a, rows + lane % 16 * stride + column + lane / 16 * 8);
}

/// l += p . 1: every column of B is ones.
__device__ __forceinline__ void sum_step(float (&l)[4], const uint32_t (&p)[4]) {
  constexpr uint32_t ones = 0x3c003c00u;
  mma_f16(l, p, ones, ones);
}

}  // namespace weir::cuda::attention
