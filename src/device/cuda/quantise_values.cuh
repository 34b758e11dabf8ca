// A warp's quantisation of floats that it holds as segments do (segment.cuh: lane j has values 32 i + j), to
// int8 blocks of 256 or 32: docs/arithmetic.md, activations.
#pragma once

#include "device/cuda/kernels.h"
#include "device/cuda/segment.cuh"
#include "device/cuda/small_acts.cuh"

namespace weir::cuda {

inline constexpr uint32_t infinity_bits = 0x7f800000u;

/// `count` of the 32 kSteps values are there, a multiple of kBlock (256 or 32). q, scale and sums are those
/// of the first.
template <int kBlock, int kSteps>
__device__ __forceinline__ void quantise_values(const float (&v)[kSteps], int count, int lane, int8_t* q,
                                                float* scale, int16_t* sums) {
  constexpr int blocks = 32 * kSteps / kBlock, steps = kBlock / 32;
  // The order of magnitudes is the order of their bits, and what is not finite is above all that is.
  uint32_t largest = 0;  // lane b: of block b
#pragma unroll
  for (int b = 0; b < blocks; ++b) {
    uint32_t bits = 0;
#pragma unroll
    for (int i = b * steps; i < (b + 1) * steps; ++i) {
      const uint32_t magnitude = __float_as_uint(v[i]) & 0x7fffffffu;
      bits = magnitude > bits ? magnitude : bits;
    }
    bits = __reduce_max_sync(whole_warp, bits);
    if (lane == b) largest = bits;
  }
  const float d = largest < infinity_bits ? __uint_as_float(largest) / 127.0f : __uint_as_float(0x7fc00000u);
  if (lane < count / kBlock) scale[lane] = d;
  if constexpr (kBlock == 256) {
    int sum = 0;  // lane i: of values 32 i..32 i + 31
#pragma unroll
    for (int b = 0; b < blocks; ++b) {
      const float step = __shfl_sync(whole_warp, d, b);
      float block[8];
#pragma unroll
      for (int i = 0; i < 8; ++i) block[i] = v[8 * b + i];
      uint2 levels = {0, 0};
      if (step > 0) levels = quantise_eight(block, step);  // neither 0 nor NaN
#pragma unroll
      for (int k = 0; k < 8; ++k) {
        const int i = 8 * b + k, level = static_cast<int8_t>((k < 4 ? levels.x : levels.y) >> k % 4 * 8);
        if (32 * i + lane < count) q[32 * i + lane] = static_cast<int8_t>(level);
        const int of_step = __reduce_add_sync(whole_warp, level);
        if (lane == i) sum = of_step;
      }
    }
    if (lane < count / 32) sums[lane] = static_cast<int16_t>(sum);
  } else {
#pragma unroll
    for (int i = 0; i < kSteps; ++i) {
      const float step = __shfl_sync(whole_warp, d, i);
      int level = 0;
      if (step > 0) {  // neither 0 nor NaN
        level = __float2int_rn(v[i] / step);
        level = level > 127 ? 127 : level < -127 ? -127 : level;
      }
      if (32 * i + lane < count) q[32 * i + lane] = static_cast<int8_t>(level);
    }
  }
}

/// The same, into the rows of `out` from value `at` of all on, a multiple of kBlock.
template <int kBlock, int kSteps>
__device__ __forceinline__ void quantise_to(const float (&v)[kSteps], const Acts& out, int64_t at, int count,
                                            int lane) {
  int16_t* sums = kBlock == 256 ? out.sums + at / 32 : nullptr;
  quantise_values<kBlock>(v, count, lane, out.q + at, out.scale + at / kBlock, sums);
}

}  // namespace weir::cuda
