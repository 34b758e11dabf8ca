// One chunk of the fast arithmetic for up to 16 query vectors of one kv head, shared out to eight warps by
// the positions for the scores and by the dimensions for the values: the parts of the chunk kernels.
#pragma once

#include "device/cuda/attention_fast.cuh"

namespace weir::cuda::attention {

inline constexpr int chunk_warps = 8, chunk_vectors = 16;
static_assert(fast_chunk == 8 * chunk_warps, "a warp scores one column tile of 8 positions");

template <int kDim>
struct ChunkShared {
  static constexpr int stride = kDim + fast_pad, p_stride = fast_chunk + fast_pad;
  uint16_t k[fast_chunk * stride], v[fast_chunk * stride];
  uint16_t high[chunk_vectors * stride], low[chunk_vectors * stride];
  uint16_t p[chunk_vectors * p_stride];
  float top[chunk_vectors][chunk_warps];  ///< the largest score of each column tile
};

/// s of the warp's 8 positions: (s[0], s[1]) vector g, positions 2t, 2t + 1; (s[2], s[3]) vector g + 8.
template <int kDim>
__device__ __forceinline__ void scores(const ChunkShared<kDim>& shared, float scale, int warp, int lane,
                                       float (&s)[4]) {
  constexpr int stride = kDim + fast_pad;
  float high[4] = {}, low[4] = {};
#pragma unroll
  for (int d = 0; d < kDim; d += 32) {
    uint32_t b[4];  // two steps
    ldmatrix_x4(b, shared.k + (8 * warp + lane % 8) * stride + d + lane / 8 * 8);
#pragma unroll
    for (int step = 0; step < 2; ++step) {
      uint32_t a[4];
      load_a(a, shared.high, stride, d + 16 * step, lane);
      mma_f16(high, a, b[2 * step], b[2 * step + 1]);
      load_a(a, shared.low, stride, d + 16 * step, lane);
      mma_f16(low, a, b[2 * step], b[2 * step + 1]);
    }
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) s[i] = (high[i] + low[i]) * scale;
}

/// o and l of the warp's dimensions, stored for the vectors that see the chunk.
template <int kDim>
__device__ __forceinline__ void values(const ChunkShared<kDim>& shared, const int64_t (&at)[2],
                                       const float (&m)[2], const Partials& partials, int warp, int lane) {
  constexpr int stride = kDim + fast_pad;
  constexpr int tiles = kDim / 8 / chunk_warps;
  const int first_d = warp * tiles * 8;
  uint32_t p[fast_steps][4];
  float l[4] = {}, o[tiles][4] = {};
#pragma unroll
  for (int step = 0; step < fast_steps; ++step)
    load_a(p[step], shared.p, fast_chunk + fast_pad, 16 * step, lane);
#pragma unroll
  for (int step = 0; step < fast_steps; ++step) sum_step(l, p[step]);
#pragma unroll
  for (int tile = 0; tile < tiles; ++tile) {
#pragma unroll
    for (int step = 0; step < fast_steps; step += 2) {
      uint32_t b[4];
      ldmatrix_x4_trans(b, shared.v + (16 * step + lane) * stride + first_d + 8 * tile);
      mma_f16(o[tile], p[step], b[0], b[1]);
      mma_f16(o[tile], p[step + 1], b[2], b[3]);
    }
  }
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    if (at[half] < 0) continue;
    if (warp == 0 && lane % 4 == 0) partials.ml[at[half]] = make_float2(m[half], l[2 * half]);
    float* const to = partials.o + at[half] * kDim + first_d + lane % 4 * 2;
#pragma unroll
    for (int tile = 0; tile < tiles; ++tile)
      *reinterpret_cast<float2*>(to + 8 * tile) = make_float2(o[tile][2 * half], o[tile][2 * half + 1]);
  }
}

/// The largest of a vector's column tiles.
template <int kDim>
__device__ __forceinline__ float largest(const ChunkShared<kDim>& shared, int vector) {
  const float4* const top = reinterpret_cast<const float4*>(shared.top[vector]);
  const float4 x = top[0], y = top[1];
  return fmaxf(fmaxf(fmaxf(x.x, x.y), fmaxf(x.z, x.w)), fmaxf(fmaxf(y.x, y.y), fmaxf(y.z, y.w)));
}

}  // namespace weir::cuda::attention
