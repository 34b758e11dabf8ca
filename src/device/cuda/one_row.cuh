// The latency path: one row of activations times Q4_K weights. A warp works by itself: it copies a few
// consecutive weight rows into its own shared memory (one bulk copy, before it waits for anything), and when
// the activations are there turns them into outputs without a word to other warps. A lane takes 16 bytes of
// quants at a time: unit u = lane % 8 of super-block 4 t + g, g = lane / 8, for t in 0..T-1.
#pragma once

#include <cuda_fp16.h>

#include <cmath>
#include <cstdint>

#include "base/arithmetic_constants.h"
#include "device/cuda/ptx.cuh"
#include "device/cuda/small_acts.cuh"
#include "quant/q4_k.h"

namespace weir::cuda::one_row {

inline constexpr int block_bytes = quant::Q4_K::block_bytes, super = 256;
/// Products of (row, t) that a warp forms at a time: 8 / T rows.
inline constexpr int products = 8;
template <int T>
inline constexpr int rows_at_once = products / T;
/// float4 terms of a row, one a super-block, and one of padding: rows begin in different banks.
template <int T>
inline constexpr int term_stride = 4 * T + 1;
template <int T>
inline constexpr int terms_bytes = rows_at_once<T>* term_stride<T>* static_cast<int>(sizeof(float4));

/// A lane's share of the activations: of its units, and its super-blocks' scales.
template <int T>
struct Share {
  uint4 low[T], high[T];        ///< 16 values of sub-block 2 c, and of 2 c + 1 (c = u / 2)
  int low_sum[T], high_sum[T];  ///< of the whole sub-blocks; zero for every second lane, which holds their
                                ///< other halves
  float scale[T];
};

/// From shared or global memory; super-blocks from `supers` on give zeros.
template <int T>
__device__ __forceinline__ Share<T> load_share(const int8_t* q, const int16_t* sums, const float* scale,
                                               int supers) {
  const int lane = static_cast<int>(threadIdx.x % 32), g = lane / 8, u = lane % 8;
  Share<T> s;
#pragma unroll
  for (int t = 0; t < T; ++t) {
    const int b = 4 * t + g;
    s.low[t] = s.high[t] = {0, 0, 0, 0};
    s.low_sum[t] = s.high_sum[t] = 0;
    s.scale[t] = 0;
    if (b < supers) {
      const int8_t* at = q + super * b + 64 * (u / 2) + 16 * (u % 2);
      s.low[t] = *reinterpret_cast<const uint4*>(at);
      s.high[t] = *reinterpret_cast<const uint4*>(at + 32);
      if (u % 2 == 0) {
        const uint32_t pair = *reinterpret_cast<const uint32_t*>(sums + 8 * b + u);
        s.low_sum[t] = static_cast<int16_t>(pair & 0xffffu);
        s.high_sum[t] = static_cast<int32_t>(pair) >> 16;
      }
      s.scale[t] = scale[b];
    }
  }
  return s;
}

__device__ __forceinline__ int dot(const uint4& levels, const uint4& q) {
  int sum = __dp4a(static_cast<int>(levels.x), static_cast<int>(q.x), 0);
  sum = __dp4a(static_cast<int>(levels.y), static_cast<int>(q.y), sum);
  sum = __dp4a(static_cast<int>(levels.z), static_cast<int>(q.z), sum);
  return __dp4a(static_cast<int>(levels.w), static_cast<int>(q.w), sum);
}

/// Adds value i of all eight lanes of a group into lane i of the group.
__device__ __forceinline__ int transpose_sum(int (&v)[products]) {
  const int lane = static_cast<int>(threadIdx.x);
#pragma unroll
  for (int half = 4; half > 0; half /= 2) {
    const bool upper = (lane & half) != 0;
#pragma unroll
    for (int i = 0; i < half; ++i) {
      const int kept = upper ? v[i + half] : v[i], sent = upper ? v[i] : v[i + half];
      v[i] = kept + __shfl_xor_sync(all_lanes, sent, half);
    }
  }
  return v[0];
}

/// The u-th of eight values, in registers.
template <typename V>
__device__ __forceinline__ V pick(const V (&v)[products], int u) {
  const V a = (u & 1) ? v[1] : v[0], b = (u & 1) ? v[3] : v[2], c = (u & 1) ? v[5] : v[4],
          d = (u & 1) ? v[7] : v[6];
  const V e = (u & 2) ? b : a, f = (u & 2) ? d : c;
  return (u & 4) ? f : e;
}

/// Outputs of the rows_at_once<T> weight rows at `weights` (shared memory, `stride` bytes apart, 16-byte
/// aligned; row r is copied row min(r, valid - 1)): lane r < rows_at_once<T> returns row r's, the others
/// nothing of use. `terms`: the warp's own scratch.
template <int T>
__device__ __forceinline__ float outputs(const uint8_t* weights, int stride, int valid, int supers,
                                         const Share<T>& x, float4* terms) {
  constexpr int rows = rows_at_once<T>;
  const int lane = static_cast<int>(threadIdx.x % 32), g = lane / 8, u = lane % 8, c = u / 2;
  int total[products], minimum[products];
  uint32_t factors[products];  // d and dmin, two halves
#pragma unroll
  for (int k = 0; k < products; ++k) {
    const int r = k / T, t = k % T, b = 4 * t + g;
    const uint8_t* row = weights + (r < valid ? r : valid - 1) * stride;
    const uint8_t* block = row + (b < supers ? b : supers - 1) * block_bytes;
    const uint4 head = *reinterpret_cast<const uint4*>(block);
    const uint4 quants = *reinterpret_cast<const uint4*>(block + quant::Q4_K::qs_offset + 16 * u);
    const uint4 low = {quants.x & 0x0f0f0f0fu, quants.y & 0x0f0f0f0fu, quants.z & 0x0f0f0f0fu,
                       quants.w & 0x0f0f0f0fu};
    const uint4 high = {quants.x >> 4 & 0x0f0f0f0fu, quants.y >> 4 & 0x0f0f0f0fu, quants.z >> 4 & 0x0f0f0f0fu,
                        quants.w >> 4 & 0x0f0f0f0fu};
    // Scales and minima of sub-blocks 2 c and 2 c + 1, in the two low bytes (quant/q4_k.h).
    const int shift = 16 * (c % 2);
    const uint32_t first = head.y >> shift, second = head.z >> shift, third = head.w >> shift;
    const uint32_t scales = c < 2 ? first & 0x3f3fu : (third & 0x0f0fu) | (first >> 2 & 0x3030u);
    const uint32_t minima = c < 2 ? second & 0x3f3fu : (third >> 4 & 0x0f0fu) | (second >> 2 & 0x3030u);
    total[k] = static_cast<int>(scales & 0xffu) * dot(low, x.low[t]) +
               static_cast<int>(scales >> 8) * dot(high, x.high[t]);
    minimum[k] =
        static_cast<int>(minima & 0xffu) * x.low_sum[t] + static_cast<int>(minima >> 8) * x.high_sum[t];
    factors[k] = head.x;
  }
  const int whole = transpose_sum(total), least = transpose_sum(minimum);
  const uint32_t own = pick(factors, u);
  float scales[T];  // halved bit by bit: an index would put x into local memory
#pragma unroll
  for (int t = 0; t < T; ++t) scales[t] = x.scale[t];
#pragma unroll
  for (int half = T / 2; half > 0; half /= 2) {
#pragma unroll
    for (int t = 0; t < half; ++t) scales[t] = (u & half) != 0 ? scales[t + half] : scales[t];
  }
  const float scale = scales[0];
  const float d = __half2float(__ushort_as_half(static_cast<unsigned short>(own & 0xffffu))),
              dmin = __half2float(__ushort_as_half(static_cast<unsigned short>(own >> 16)));
  terms[u / T * term_stride<T> + 4 * (u % T) + g] = {d * scale, static_cast<float>(whole), -(dmin * scale),
                                                     static_cast<float>(least)};
  __syncwarp();
  float y = 0;
  if (lane < rows) {
    const float4* term = terms + lane * term_stride<T>;
    float acc = 0;
#pragma unroll
    for (int b = 0; b < 4 * T; ++b) {
      if (b >= supers) break;
      if (b > 0 && b % (static_cast<int>(kSegment) / super) == 0) {
        y = b == static_cast<int>(kSegment) / super ? acc : y + acc;
        acc = 0;
      }
      const float4 v = term[b];
      acc = std::fma(v.x, v.y, acc);
      acc = std::fma(v.z, v.w, acc);
    }
    y = supers <= static_cast<int>(kSegment) / super ? acc : y + acc;
  }
  __syncwarp();  // the terms are free
  return y;
}

/// Where a block keeps the activations that it quantises itself, in shared memory.
struct OwnActs {
  int8_t* q;       ///< [in]
  int16_t* sums;   ///< [in / 32]
  float* scale;    ///< [in / 256]
  float* segment;  ///< [ceil(in / 512)] of the norm's dot
};
inline constexpr int own_acts_bytes(int in) {
  return (in + in / 16 + in / 64 + 4 * ((in + 511) / 512) + 127) / 128 * 128;
}
__device__ __forceinline__ OwnActs own_acts(uint8_t* shared, int in) {
  OwnActs a;
  a.q = reinterpret_cast<int8_t*>(shared);
  a.sums = reinterpret_cast<int16_t*>(shared + in);
  a.scale = reinterpret_cast<float*>(shared + in + in / 16);
  a.segment = reinterpret_cast<float*>(shared + in + in / 16 + in / 64);
  return a;
}

/// x [in], RMS-normed where norm is not null, quantised by all warps of the block. The norm's weights of a
/// warp's first super-block may be loaded ahead (constant since loading). Ends with a barrier of the block.
__device__ __forceinline__ void quantise_own(const OwnActs& to, const float* x, const float* norm,
                                             const float (&ahead)[8], float eps, int in) {
  const int warps = static_cast<int>(blockDim.x / 32), warp = static_cast<int>(threadIdx.x / 32),
            lane = static_cast<int>(threadIdx.x % 32);
  float v[8] = {};
  if (warp * super < in) load_eight(x + warp * super + 8 * lane, true, v);  // in flight with the norm's reads
  float inverse = 1;
  if (norm) {
    const int segments = (in + 511) / 512;
    for (int s = warp; s < segments; s += warps) {
      float p = 0;
#pragma unroll
      for (int i = 0; i < 16; ++i) {
        const int at = 512 * s + 32 * i + lane;
        if (at < in) {
          const float value = x[at];
          p = std::fma(value, value, p);
        }
      }
#pragma unroll
      for (int step = 16; step > 0; step /= 2) p = p + __shfl_xor_sync(all_lanes, p, step);
      if (lane == 0) to.segment[s] = p;
    }
    __syncthreads();
    float sum = to.segment[0];
    for (int s = 1; s < segments; ++s) sum = sum + to.segment[s];
    inverse = 1.0f / std::sqrt(sum / static_cast<float>(in) + eps);
  }
  for (int b = warp; b * super < in; b += warps) {
    float w[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) w[i] = ahead[i];
    if (b != warp) {
      load_eight(x + b * super + 8 * lane, true, v);
      if (norm) load_eight(norm + b * super + 8 * lane, true, w);
    }
    if (norm) {
#pragma unroll
      for (int i = 0; i < 8; ++i) v[i] = (v[i] * inverse) * w[i];
    }
    quantise_super<true>(v, true, reinterpret_cast<uint8_t*>(to.q) + b * super, to.scale + b,
                         to.sums + 8 * b);
  }
  __syncthreads();
}

/// Every warp of the block makes its own barrier ready.
__device__ __forceinline__ void ready(uint64_t* barrier) {
  if (threadIdx.x % 32 == 0) barrier_init(barrier, 1);
  __syncthreads();  // the barriers are initialised
}
/// The copies that follow bring `bytes` (a multiple of 16) in all; barrier_wait(barrier, 0) waits for them.
__device__ __forceinline__ void expect(uint64_t* barrier, uint32_t bytes) {
  if (threadIdx.x % 32 == 0) arrive_expecting(barrier, bytes);
  __syncwarp();
}
__device__ __forceinline__ void copy(uint8_t* to, const uint8_t* from, uint32_t bytes, uint64_t* barrier) {
  if (threadIdx.x % 32 == 0) bulk_copy(to, from, bytes, barrier);
}

}  // namespace weir::cuda::one_row
