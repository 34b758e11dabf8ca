// A warp's way through rows of floats: segments of 512 values of which lane j holds 32 i + j, so that a lane
// is one of the 32 partial sums of docs/arithmetic.md, float dots. Owns those dots, RMS norms made of them
// and the loading of float weights; knows no operation.
#pragma once

#include <cuda_fp16.h>

#include <cmath>
#include <cstdint>

#include "base/arithmetic_constants.h"
#include "base/both_sides.h"
#include "base/error.h"
#include "quant/types.h"

namespace weir::cuda {

inline constexpr unsigned whole_warp = 0xffffffffu;
inline constexpr int segment_values = static_cast<int>(kFloatSegment);
inline constexpr int segment_steps = segment_values / kFloatLanes;  ///< values a lane holds
static_assert(kFloatLanes == 32, "a lane is a partial sum");

// --- float weights: the element types behind Type::F32, F16 and BF16, converted exactly
// -------------------------------------------------------------------------------------

struct F16Bits {
  uint16_t bits;
};
struct BF16Bits {
  uint16_t bits;
};
__device__ __forceinline__ float to_float(float w) { return w; }
__device__ __forceinline__ float to_float(F16Bits w) { return __half2float(__ushort_as_half(w.bits)); }
__device__ __forceinline__ float to_float(BF16Bits w) {
  return __uint_as_float(static_cast<uint32_t>(w.bits) << 16);
}

/// Calls f.template operator()<W>() with the element type of a float format.
template <typename F>
void with_float_weights(Type type, const char* operation, F&& f) {
  switch (type) {
    case Type::F32:
      return f.template operator()<float>();
    case Type::F16:
      return f.template operator()<F16Bits>();
    case Type::BF16:
      return f.template operator()<BF16Bits>();
    default:
      WEIR_CHECK(false, "{} in {}", operation, type_info(type).name);
  }
}

// --- segments
// -------------------------------------------------------------------------------------------------------------------

WEIR_BOTH_SIDES inline int segments_of(int64_t n) {
  return static_cast<int>((n + segment_values - 1) / segment_values);
}

/// Values of segment s of a row of n.
__device__ __forceinline__ int segment_count(int64_t n, int s) {
  const int64_t rest = n - int64_t{s} * segment_values;
  return rest < segment_values ? static_cast<int>(rest) : segment_values;
}

/// v[i] = value 32 i + lane of the segment at p; 0 where the segment has none.
template <typename W>
__device__ __forceinline__ void load_segment(float (&v)[segment_steps], const W* p, int count, int lane) {
  const W* own = p + lane;  // one address; the rest is in the instructions
#pragma unroll
  for (int i = 0; i < segment_steps; ++i) v[i] = 32 * i + lane < count ? to_float(own[32 * i]) : 0.0f;
}

__device__ __forceinline__ void store_segment(const float (&v)[segment_steps], float* p, int count,
                                              int lane) {
#pragma unroll
  for (int i = 0; i < segment_steps; ++i)
    if (32 * i + lane < count) p[32 * i + lane] = v[i];
}

/// The 32 partial sums' total, in every lane: addition commutes, so both lanes of a pair have the same bits.
__device__ __forceinline__ float butterfly(float p) {
#pragma unroll
  for (int width = 16; width > 0; width /= 2) p = p + __shfl_xor_sync(whole_warp, p, width);
  return p;
}

/// One segment's sum, in every lane. What the segment does not have is not added.
__device__ __forceinline__ float segment_dot(const float (&a)[segment_steps], const float (&b)[segment_steps],
                                             int count, int lane) {
  float p = 0;
  if (count == segment_values) {
#pragma unroll
    for (int i = 0; i < segment_steps; ++i) p = std::fma(a[i], b[i], p);
  } else {
#pragma unroll
    for (int i = 0; i < segment_steps; ++i)
      if (32 * i + lane < count) p = std::fma(a[i], b[i], p);
  }
  return butterfly(p);
}

/// The segments' sums, in order.
__device__ __forceinline__ float add_segments(const float* sums, int segments) {
  float y = sums[0];
#pragma unroll 4
  for (int s = 1; s < segments; ++s) y = y + sums[s];
  return y;
}

// --- RMS norms
// -------------------------------------------------------------------------------------------------------------------

__device__ __forceinline__ float inverse_rms(float square_sum, int64_t n, float eps) {
  return 1.0f / std::sqrt(square_sum / static_cast<float>(n) + eps);
}

/// v = (v * inv) * weight, or v * inv without a weight.
__device__ __forceinline__ void apply_norm(float (&v)[segment_steps], float inv,
                                           const float (&weight)[segment_steps], bool weighted) {
#pragma unroll
  for (int i = 0; i < segment_steps; ++i) v[i] = weighted ? (v[i] * inv) * weight[i] : v[i] * inv;
}

inline constexpr int most_row_warps = 16;

/// dot(x, x) of one row by a whole block, a warp a segment, in every thread. `first` is segment `warp` of x,
/// loaded. `sums` is shared memory; the caller synchronises before it is used again.
__device__ __forceinline__ float block_square_sum(const float* x, int64_t n,
                                                  const float (&first)[segment_steps],
                                                  float (&sums)[most_row_warps]) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
  const int segments = segments_of(n);
  float total = 0;
  for (int base = 0; base < segments; base += warps) {
    const int s = base + warp;
    if (base != 0) __syncthreads();  // the sums of the round before have been read
    if (s < segments) {
      const int count = segment_count(n, s);
      float sum;
      if (base == 0) {
        sum = segment_dot(first, first, count, lane);
      } else {
        float v[segment_steps];
        load_segment(v, x + int64_t{s} * segment_values, count, lane);
        sum = segment_dot(v, v, count, lane);
      }
      if (lane == 0) sums[warp] = sum;
    }
    __syncthreads();  // sums are written
    const int here = segments - base < warps ? segments - base : warps;
    for (int w = 0; w < here; ++w) total = base + w == 0 ? sums[0] : total + sums[w];
  }
  return total;
}

/// Warps of a block that takes one row of n values.
inline int row_warps(int64_t n) {
  const int segments = segments_of(n);
  return segments < most_row_warps ? segments : most_row_warps;
}

}  // namespace weir::cuda
