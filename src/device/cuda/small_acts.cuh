// Activations for the small-rows kernels: one row normed and quantised inside a block (docs/arithmetic.md:
// norms, activations), or rows that an earlier kernel quantised, brought into shared memory.
#pragma once

#include <cmath>
#include <cstdint>

#include "base/arithmetic_constants.h"
#include "device/cuda/kernels.h"
#include "device/cuda/ptx.cuh"
#include "device/cuda/small_shape.h"

namespace weir::cuda {

inline constexpr unsigned all_lanes = 0xffffffffu;

/// Eight values of one quantisation block whose scale d is not subnormal, to eight bytes. rint(x / d) is
/// taken from x * (1 / d) where that is far from a tie: it is within 127 * 2^-23 of the quotient, and the
/// quotient's own rounding within 127 * 2^-24. Elsewhere the division decides.
__device__ __forceinline__ uint2 quantise_eight(const float (&v)[8], float d) {
  constexpr float magic = 0x1.8p+23f;  // adding it leaves the nearest integer, ties to even, in the low bits
  const float inverse = 1.0f / d;
  uint32_t z[8];
  float far = 0;
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const float y = v[i] * inverse;
    const float shifted = y + magic;
    far = fmaxf(far, fabsf(y - (shifted - magic)));
    z[i] = __float_as_uint(shifted);
  }
  if (!(far < 0.4999f) || d < 0x1p-100f) {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const int q = __float2int_rn(v[i] / d);
      z[i] = static_cast<uint32_t>(q < -127 ? -127 : q > 127 ? 127 : q);
    }
  }
  const auto pack = [](uint32_t a, uint32_t b, uint32_t c, uint32_t e) {
    return __byte_perm(__byte_perm(a, b, 0x0040), __byte_perm(c, e, 0x0040), 0x5410);
  };
  return {pack(z[0], z[1], z[2], z[3]), pack(z[4], z[5], z[6], z[7])};
}

/// A warp quantises one super-block: lane l has values 8l..8l + 7 (`held`: they are within the row). q, scale
/// and sums point at the super-block's own.
template <bool kPer256>
__device__ __forceinline__ void quantise_super(const float (&v)[8], bool held, uint8_t* q, float* scale,
                                               int16_t* sums) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  uint32_t amax = 0;  // of magnitudes as integers: infinities and NaN are the largest
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const uint32_t magnitude = __float_as_uint(v[i]) & 0x7fffffffu;
    amax = magnitude > amax ? magnitude : amax;
  }
  if constexpr (kPer256) {
    amax = __reduce_max_sync(all_lanes, amax);
  } else {
    for (int step = 1; step < 4; step *= 2) {
      const uint32_t other = __shfl_xor_sync(all_lanes, amax, step);
      amax = other > amax ? other : amax;
    }
  }
  float d = __uint_as_float(amax) / 127.0f;
  uint2 packed = {0, 0};
  if (amax >= 0x7f800000u)
    d = __uint_as_float(0x7fc00000u);
  else if (d != 0)
    packed = quantise_eight(v, d);
  if (held) *reinterpret_cast<uint2*>(q + 8 * lane) = packed;
  if constexpr (kPer256) {
    if (lane == 0) *scale = d;
    int sum = __dp4a(static_cast<int>(packed.x), 0x01010101, 0);
    sum = __dp4a(static_cast<int>(packed.y), 0x01010101, sum);
    sum += __shfl_xor_sync(all_lanes, sum, 1);
    sum += __shfl_xor_sync(all_lanes, sum, 2);
    if (sums && lane % 4 == 0) sums[lane / 4] = static_cast<int16_t>(sum);
  } else {
    if (held && lane % 4 == 0) scale[lane / 4] = d;
  }
}

__device__ __forceinline__ void load_eight(const float* from, bool held, float (&v)[8]) {
  float4 a = {0, 0, 0, 0}, b = {0, 0, 0, 0};
  if (held) {
    a = reinterpret_cast<const float4*>(from)[0];
    b = reinterpret_cast<const float4*>(from)[1];
  }
  v[0] = a.x, v[1] = a.y, v[2] = a.z, v[3] = a.w, v[4] = b.x, v[5] = b.y, v[6] = b.z, v[7] = b.w;
}

/// Rows of x, [shape.rows, in] from global memory (16-byte aligned), quantised by all warps of the block,
/// kAtOnce super-blocks each at a time, whose loads are in flight together. Ends without a barrier.
template <bool kPer256, bool kSums, int kAtOnce>
__device__ __forceinline__ void quantise_rows(uint8_t* shared, const SmallShape& shape, const float* x) {
  const int warps = static_cast<int>(blockDim.x / 32), lane = static_cast<int>(threadIdx.x % 32);
  const int count = shape.rows * shape.supers;
  for (int first = static_cast<int>(threadIdx.x / 32); first < count; first += kAtOnce * warps) {
    float v[kAtOnce][8];
    bool held[kAtOnce];
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) {
      const int i = first + k * warps, row = i / shape.supers,
                at = i % shape.supers * super_values + 8 * lane;
      held[k] = i < count && at < shape.in;
      load_eight(x + static_cast<int64_t>(row) * shape.in + at, held[k], v[k]);
    }
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) {
      const int i = first + k * warps, row = i / shape.supers, super = i % shape.supers;
      if (i >= count) break;
      uint8_t* q = shared + shape.q_at + row * shape.q_stride + super * super_values;
      auto* scale = reinterpret_cast<float*>(shared + shape.scale_at + row * shape.scale_stride);
      auto* sums = reinterpret_cast<int16_t*>(shared + shape.sums_at + row * shape.sums_stride);
      quantise_super<kPer256>(v[k], held[k], q, scale + super * (kPer256 ? 1 : 8),
                              kSums ? sums + super * 8 : nullptr);
    }
  }
}

/// What norm_and_quantise() keeps beside the shape: x and the norm's weight, and a sum for each float
/// segment.
__host__ __device__ constexpr int norm_bytes(int in) {
  return 8 * in + 4 * ((in + static_cast<int>(kFloatSegment) - 1) / static_cast<int>(kFloatSegment));
}

/// Before the wait: the norm's weight into `scratch` (norm_bytes). Any alignment.
__device__ __forceinline__ void stage_norm(float* scratch, const float* norm, int in) {
  for (int i = static_cast<int>(threadIdx.x); i < in; i += static_cast<int>(blockDim.x))
    scratch[in + i] = norm[i];
}

/// One row, normed first. Ends without a barrier.
template <bool kPer256, bool kSums>
__device__ __forceinline__ void norm_and_quantise(uint8_t* shared, const SmallShape& shape, float* scratch,
                                                  const float* x, float eps) {
  const int warps = static_cast<int>(blockDim.x / 32), lane = static_cast<int>(threadIdx.x % 32);
  const int warp = static_cast<int>(threadIdx.x / 32), in = shape.in;
  constexpr int segment = static_cast<int>(kFloatSegment);
  float* segments = scratch + 2 * in;
  for (int i = static_cast<int>(threadIdx.x); i < in / 4; i += static_cast<int>(blockDim.x))
    reinterpret_cast<float4*>(scratch)[i] = reinterpret_cast<const float4*>(x)[i];
  __syncthreads();  // x is in shared memory
  for (int s = warp; s * segment < in; s += warps) {
    const int count = (in - s * segment < segment ? in - s * segment : segment) / kFloatLanes;
    const float* from = scratch + s * segment + lane;
    float p = 0;
    if (count == segment / kFloatLanes) {
#pragma unroll
      for (int k = 0; k < segment / kFloatLanes; ++k) p = std::fma(from[32 * k], from[32 * k], p);
    } else {
      for (int k = 0; k < count; ++k) p = std::fma(from[32 * k], from[32 * k], p);
    }
#pragma unroll
    for (int step = 16; step > 0; step /= 2) p += __shfl_xor_sync(all_lanes, p, step);
    if (lane == 0) segments[s] = p;
  }
  __syncthreads();  // the segments' sums are there
  for (int super = warp; super < shape.supers; super += warps) {
    float total = segments[0];
    for (int s = 1; s * segment < in; ++s) total += segments[s];
    const float inv = 1.0f / sqrtf(total / static_cast<float>(in) + eps);
    const bool held = super * super_values + 8 * lane < in;
    float v[8], w[8];
    load_eight(scratch + super * super_values + 8 * lane, held, v);
    load_eight(scratch + in + super * super_values + 8 * lane, held, w);
#pragma unroll
    for (int i = 0; i < 8; ++i) v[i] = held ? (v[i] * inv) * w[i] : 0.0f;
    quantise_super<kPer256>(v, held, shared + shape.q_at + super * super_values,
                            reinterpret_cast<float*>(shared + shape.scale_at) + super * (kPer256 ? 1 : 8),
                            kSums ? reinterpret_cast<int16_t*>(shared + shape.sums_at) + super * 8 : nullptr);
  }
}

/// Starts the copies of one part of K of `count` rows of `acts` into activation slot `slot`; row i is
/// row_of(i). The caller waits (cp_wait<0>) and synchronises.
template <bool kPer256, bool kSums, typename RowOf>
__device__ __forceinline__ void stage_rows(uint8_t* shared, const SmallShape& shape, const Acts& acts,
                                           int part, int slot, int count, RowOf row_of) {
  const int first = part * shape.width * super_values;
  const int values =
      shape.in - first < shape.width * super_values ? shape.in - first : shape.width * super_values;
  const int chunks = values / 16, threads = static_cast<int>(blockDim.x),
            thread = static_cast<int>(threadIdx.x);
  uint8_t* base = shared + slot * shape.slot_bytes;
  for (int i = thread; i < count * chunks; i += threads) {
    const int row = i / chunks, chunk = i % chunks;
    cp_async16(base + shape.q_at + row * shape.q_stride + 16 * chunk,
               acts.q + static_cast<int64_t>(row_of(row)) * shape.in + first + 16 * chunk);
  }
  if constexpr (kSums) {
    const int supers = values / super_values;
    for (int i = thread; i < count * supers; i += threads) {
      const int row = i / supers, super = i % supers;
      cp_async16(base + shape.sums_at + row * shape.sums_stride + 16 * super,
                 acts.sums + (static_cast<int64_t>(row_of(row)) * shape.in + first) / 32 + 8 * super);
    }
  }
  cp_commit();
  constexpr int block = kPer256 ? super_values : 32;
  const int scales = values / block;
  for (int i = thread; i < count * scales; i += threads) {
    const int row = i / scales, k = i % scales;
    reinterpret_cast<float*>(base + shape.scale_at + row * shape.scale_stride)[k] =
        acts.scale[(static_cast<int64_t>(row_of(row)) * shape.in + first) / block + k];
  }
}

}  // namespace weir::cuda
