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

/// A lane's share of the activations: of its units, and of the super-block whose terms it forms.
template <int T>
struct Share {
  uint4 low[T], high[T];  ///< 16 values of sub-block 2 c, and of 2 c + 1 (c = u / 2)
  uint4 sums;             ///< of the eight sub-blocks of super-block own_super<T>()
  float scale;            ///< of that super-block
};

/// A lane forms the terms of product u of its group: of row u / T, t = u % T.
template <int T>
__device__ __forceinline__ int own_super() {
  const int lane = static_cast<int>(threadIdx.x % 32);
  return 4 * (lane % 8 % T) + lane / 8;
}

/// From shared or global memory; super-blocks from `supers` on are the last: nothing comes of theirs.
template <int T>
__device__ __forceinline__ Share<T> load_share(const int8_t* q, const int16_t* sums, const float* scale,
                                               int supers) {
  const int lane = static_cast<int>(threadIdx.x % 32), g = lane / 8, u = lane % 8;
  Share<T> s;
#pragma unroll
  for (int t = 0; t < T; ++t) {
    const int8_t* at = q + super * min(4 * t + g, supers - 1) + 64 * (u / 2) + 16 * (u % 2);
    s.low[t] = *reinterpret_cast<const uint4*>(at);
    s.high[t] = *reinterpret_cast<const uint4*>(at + 32);
  }
  const int own = min(own_super<T>(), supers - 1);
  s.sums = *reinterpret_cast<const uint4*>(sums + 8 * own);
  s.scale = scale[own];
  return s;
}

/// The products of 16 unsigned bytes and 16 signed ones.
__device__ __forceinline__ int dot(uint32_t x, uint32_t y, uint32_t z, uint32_t w, const uint4& q) {
  return dot_unsigned(w, q.w, dot_unsigned(z, q.z, dot_unsigned(y, q.y, dot_unsigned(x, q.x, 0))));
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

/// The sum of a block's minima times its sub-blocks' sums (quant/q4_k.h); `head` is the block's first 16
/// bytes.
__device__ __forceinline__ int minima_product(const uint4& head, const uint4& sums) {
  const auto first = static_cast<int>(head.z & 0x3f3f3f3fu);
  const auto last = static_cast<int>((head.w >> 4 & 0x0f0f0f0fu) | (head.z >> 2 & 0x30303030u));
  int product = __dp2a_lo(static_cast<int>(sums.x), first, 0);
  product = __dp2a_hi(static_cast<int>(sums.y), first, product);
  product = __dp2a_lo(static_cast<int>(sums.z), last, product);
  return __dp2a_hi(static_cast<int>(sums.w), last, product);
}

/// Outputs of the rows_at_once<T> weight rows at `weights` (shared memory, `stride` bytes apart, 16-byte
/// aligned): lane r < rows_at_once<T> returns row r's, the others nothing of use. Rows that were not copied
/// may hold anything. `terms`: the warp's own scratch.
template <int T>
__device__ __forceinline__ float outputs(const uint8_t* weights, int stride, int supers, const Share<T>& x,
                                         float4* terms) {
  constexpr int rows = rows_at_once<T>;
  const int lane = static_cast<int>(threadIdx.x % 32), g = lane / 8, u = lane % 8, c = u / 2;
  // Scales of sub-blocks 2 c and 2 c + 1: bytes of (word & mask) | (head.y >> 2 & upper_mask).
  const bool upper = c >= 2;
  const uint32_t mask = upper ? 0x0f0f0f0fu : 0x3f3f3f3fu, upper_mask = upper ? 0x30303030u : 0;
  const unsigned low_scale = 0x4440u + 2 * (c % 2), high_scale = low_scale + 1;
  int total[products];
#pragma unroll
  for (int t = 0; t < T; ++t) {
    const uint8_t* block = weights + min(4 * t + g, supers - 1) * block_bytes;
#pragma unroll
    for (int r = 0; r < rows; ++r, block += stride) {
      const uint4 head = *reinterpret_cast<const uint4*>(block);
      const uint4 quants = *reinterpret_cast<const uint4*>(block + quant::Q4_K::qs_offset + 16 * u);
      constexpr uint32_t nibbles = 0x0f0f0f0fu;
      const int low =
          dot(quants.x & nibbles, quants.y & nibbles, quants.z & nibbles, quants.w & nibbles, x.low[t]);
      // Sixteen times the levels: the sum is shifted instead of each word.
      const int high = dot(quants.x & ~nibbles, quants.y & ~nibbles, quants.z & ~nibbles, quants.w & ~nibbles,
                           x.high[t]) >>
                       4;
      const uint32_t scales = ((upper ? head.w : head.y) & mask) | (head.y >> 2 & upper_mask);
      total[r * T + t] = static_cast<int>(__byte_perm(scales, 0, low_scale)) * low +
                         static_cast<int>(__byte_perm(scales, 0, high_scale)) * high;
    }
  }
  const int whole = transpose_sum(total);
  const int own = own_super<T>();
  const uint4 head =
      *reinterpret_cast<const uint4*>(weights + u / T * stride + min(own, supers - 1) * block_bytes);
  const int least = minima_product(head, x.sums);
  const float d = __half2float(__ushort_as_half(static_cast<unsigned short>(head.x & 0xffffu))),
              dmin = __half2float(__ushort_as_half(static_cast<unsigned short>(head.x >> 16)));
  terms[u / T * term_stride<T> + own] = {d * x.scale, static_cast<float>(whole), -(dmin * x.scale),
                                         static_cast<float>(least)};
  __syncwarp();
  float y = 0;
  if (lane < rows) {
    constexpr int segment = static_cast<int>(kSegment) / super;
    const float4* term = terms + lane * term_stride<T>;
    float acc = 0;
#pragma unroll
    for (int b = 0; b < 4 * T; ++b) {
      const float4 v = term[b];
      if (b >= supers) continue;
      if (b > 0 && b % segment == 0) {
        y = b == segment ? acc : y + acc;
        acc = 0;
      }
      acc = std::fma(v.x, v.y, acc);
      acc = std::fma(v.z, v.w, acc);
    }
    y = supers <= segment ? acc : y + acc;
  }
  __syncwarp();  // the terms are free
  return y;
}

/// A row that is quantised already (Acts without what is not per row).
struct ActRow {
  const int8_t* q = nullptr;
  const int16_t* sums = nullptr;
  const float* scale = nullptr;
};

/// Where a block keeps the activations that it quantises itself, in shared memory.
struct OwnActs {
  int8_t* q;       ///< [in]
  int16_t* sums;   ///< [in / 32]
  float* scale;    ///< [in / 256]
  float* segment;  ///< [ceil(in / 512)] of the norm's dot
};
WEIR_BOTH_SIDES inline constexpr int own_acts_bytes(int in) {
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

/// What of x a thread reads first in quantise_own(): of its warp's first super-block, and of its first
/// segment of the norm's dot.
struct FirstReads {
  const float *super_block, *segment;
};
__device__ __forceinline__ FirstReads first_reads(const float* x) {
  const int warp = static_cast<int>(threadIdx.x / 32), lane = static_cast<int>(threadIdx.x % 32);
  return {x + warp * super + 8 * lane, x + warp * 512 + lane};
}

/// x [in], RMS-normed where norm is not null, quantised by all warps of the block. The norm's weights of a
/// warp's first super-block may be loaded ahead (constant since loading). Ends with a barrier of the block.
__device__ __forceinline__ void quantise_own(const OwnActs& to, const float* x, const FirstReads& first,
                                             const float* norm, const float (&ahead)[8], float eps, int in) {
  const int warps = static_cast<int>(blockDim.x / 32), warp = static_cast<int>(threadIdx.x / 32),
            lane = static_cast<int>(threadIdx.x % 32);
  float v[8] = {};
  if (warp * super < in) load_eight(first.super_block, true, v);  // in flight with the norm's reads
  float inverse = 1;
  if (norm) {
    const int segments = (in + 511) / 512;
    const float* own = first.segment;
    for (int s = warp; s < segments; s += warps, own += 512 * warps) {
      float p = 0;
      const int left = in - 512 * s - lane;
#pragma unroll
      for (int i = 0; i < 16; ++i) {
        if (32 * i < left) {
          const float value = own[32 * i];
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

/// A pair's gated products, quantised by its warp.
__device__ __forceinline__ void quantise_pair(const float* act, const OwnActs& own, int supers, int lane) {
  constexpr int at_once = 3;  // super-blocks whose loads are in flight together
  for (int b0 = 0; b0 < supers; b0 += at_once) {
    float v[at_once][8];
#pragma unroll
    for (int k = 0; k < at_once; ++k) load_eight(act + (b0 + k) * super + 8 * lane, b0 + k < supers, v[k]);
#pragma unroll
    for (int k = 0; k < at_once; ++k) {
      const int b = b0 + k;
      if (b < supers)
        quantise_super<true>(v[k], true, reinterpret_cast<uint8_t*>(own.q) + b * super, own.scale + b,
                             own.sums + 8 * b);
    }
  }
  __syncwarp();
}

/// The sum over a row's experts, in order: of weights[j] times what is at parts[j * stride].
__device__ __forceinline__ float weighted_sum(const float* weights, const float* parts, int stride,
                                              int pairs) {
  float sum = 0;
  for (int j = 0; j < pairs; ++j) sum = std::fma(weights[j], parts[j * stride], sum);
  return sum;
}

__device__ __forceinline__ int slot_of_expert(const int32_t* slot_of, int expert) {
  return slot_of ? __ldcg(slot_of + expert) : expert;
}

/// Holds in a kernel whose predecessor calls allow_next() after its own wait: all launches before that one
/// are complete. The emulation, which runs one kernel after another, knows no state between.
__device__ __forceinline__ void earlier_are_complete() {
#if defined(WEIR_CUDA_EMULATION)
  wait_for_previous();
#endif
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
