// A warp's work in the small-rows kernels: one super-block of a tile of 16 weight rows times the activations,
// as exact integers, and the float chains that add them in the order of docs/arithmetic.md.
//
// One row: the eight columns of the tensor core's B are eight steps of K of that one row. Step s multiplies
// with column s alone (the others are zero), so that the products of all steps accumulate side by side and
// every lane scales two of them.
// More rows: the columns are activation rows, in groups of eight.
#pragma once

#include <cmath>
#include <cstdint>

#include "device/cuda/fragments.cuh"
#include "device/cuda/small_acts.cuh"
#include "device/cuda/small_shape.h"

namespace weir::cuda {

/// Terms that a super-block adds to a float chain.
template <typename Codec>
inline constexpr int terms_of = Fragments<Codec>::integer_scale ? (Codec::has_minimum ? 2 : 1) : 8;

__device__ __forceinline__ int low_byte(uint32_t word) { return static_cast<int8_t>(word & 0xffu); }
__device__ __forceinline__ int second_byte(uint32_t word) { return static_cast<int8_t>(word >> 8 & 0xffu); }

/// One row of activations over one super-block.
struct SuperActs {
  const uint8_t* q = nullptr;
  const int16_t* sums = nullptr;
  const float* scale = nullptr;
};

/// The products of all steps, by lane: dots[row][set][i] is weight row g + 8 row times step 8 set + 2t + i.
template <typename F>
__device__ __forceinline__ void step_dots(const F& f, const uint8_t* q, int g, int t, int (&dots)[2][2][2]) {
  if constexpr (F::step_k == 32) {
    int32_t c[2][4] = {};  // even and odd steps, to shorten the chain
    const uint2 b = *reinterpret_cast<const uint2*>(q + 32 * g + 8 * t);
#pragma unroll
    for (int s = 0; s < 8; ++s) {
      uint32_t a[4];
      f.a(s, a);
      mma_k32(c[s % 2], a, g == s ? b.x : 0u, g == s ? b.y : 0u);
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) dots[i / 2][0][i % 2] = c[0][i] + c[1][i];
  } else {
    int32_t c[2][4] = {};
    uint32_t b[2];
    b[0] = *reinterpret_cast<const uint32_t*>(q + 16 * g + 4 * t);
    b[1] = *reinterpret_cast<const uint32_t*>(q + 128 + 16 * g + 4 * t);
    // All steps' activations at once, each in its own column: what the stored levels are too large by. Then
    // the levels, two steps at a time, one in either half of k.
#pragma unroll
    for (int set = 0; set < 2; ++set) mma_k16(c[set], F::minus_raise, F::minus_raise, b[set]);
#pragma unroll
    for (int s = 0; s < 8; s += 2) {
      const bool first = g == s, second = g == s + 1;
#pragma unroll
      for (int set = 0; set < 2; ++set) {
        const int step = 8 * set + s;
        const uint32_t a[4] = {f.raised(step, 0), f.raised(step, 1), f.raised(step + 1, 0),
                               f.raised(step + 1, 1)};
        mma_k32(c[set], a, first ? b[set] : 0u, second ? b[set] : 0u);
      }
    }
#pragma unroll
    for (int set = 0; set < 2; ++set)
#pragma unroll
      for (int i = 0; i < 4; ++i) dots[i / 2][set][i % 2] = c[set][i];
  }
}

/// (factor, value) of every term and weight row: terms[term * 16 + row].
template <typename Codec>
__device__ __forceinline__ void unit_one_row(const uint8_t* row0, const uint8_t* row1, int values,
                                             const SuperActs& x, float2* terms) {
  using F = Fragments<Codec>;
  const int lane = static_cast<int>(threadIdx.x % 32), g = lane / 4, t = lane % 4;
  F f;
  f.load(row0, row1, t, values);
  int dots[2][2][2];
  step_dots(f, x.q, g, t, dots);
  if constexpr (F::integer_scale) {
    constexpr int sets = F::step_k == 32 ? 1 : 2;
    int total[2] = {};
#pragma unroll
    for (int row = 0; row < 2; ++row)
#pragma unroll
      for (int set = 0; set < sets; ++set) {
        uint32_t scales;
        if constexpr (F::step_k == 16)
          scales = F::scale_pair(row == 0 ? row0 : row1, set, t);
        else
          scales = f.scale_pair(set, t, row);
        total[row] += dots[row][set][0] * low_byte(scales) + dots[row][set][1] * second_byte(scales);
      }
    // The four lanes of a row add up, each ending with one of the row's results.
    const bool odd = t % 2 != 0, upper = t / 2 != 0;
    const float da = *x.scale;
    if constexpr (Codec::has_minimum) {
      const auto sums = *reinterpret_cast<const uint32_t*>(x.sums + 2 * t);
      const int sum0 = static_cast<int16_t>(sums & 0xffffu), sum1 = static_cast<int16_t>(sums >> 16);
      int mine[2];
#pragma unroll
      for (int row = 0; row < 2; ++row) {
        const uint32_t minima = f.minimum_pair(t, row);
        const int minimum = low_byte(minima) * sum0 + second_byte(minima) * sum1;
        mine[row] = upper ? minimum : total[row];
        mine[row] += __shfl_xor_sync(all_lanes, upper ? total[row] : minimum, 2);
      }
      int value = odd ? mine[1] : mine[0];
      value += __shfl_xor_sync(all_lanes, odd ? mine[0] : mine[1], 1);
      const float d = odd ? f.d(1) : f.d(0), dmin = odd ? f.dmin(1) : f.dmin(0);
      const float factor = upper ? -(dmin * da) : d * da;
      terms[(t / 2) * tile_rows + g + 8 * (t % 2)] = {factor, static_cast<float>(value)};
    } else {
#pragma unroll
      for (int row = 0; row < 2; ++row) total[row] += __shfl_xor_sync(all_lanes, total[row], 2);
      int value = odd ? total[1] : total[0];
      value += __shfl_xor_sync(all_lanes, odd ? total[0] : total[1], 1);
      const float d = odd ? f.d(1) : f.d(0);
      if (!upper) terms[g + 8 * t] = {d * da, static_cast<float>(value)};
    }
  } else {
    if (64 * t < values) {  // what is past the row's end has no scale
      const bool second = 64 * t + 32 < values;
      const float da0 = x.scale[2 * t], da1 = second ? x.scale[2 * t + 1] : 0.0f;
#pragma unroll
      for (int row = 0; row < 2; ++row) {
        const uint32_t d = f.d_pair(t, row);
        terms[2 * t * tile_rows + g + 8 * row] = {half_bits_to_float(d & 0xffffu) * da0,
                                                  static_cast<float>(dots[row][0][0])};
        terms[(2 * t + 1) * tile_rows + g + 8 * row] = {half_bits_to_float(d >> 16) * da1,
                                                        static_cast<float>(dots[row][0][1])};
      }
    }
  }
}

/// The columns' minima sums: minima (at most 63) times sums of 32 (13 bits and sign) on the tensor cores, the
/// sums cut into their low seven bits and the rest. minimum[2 row + i]: weight row g + 8 row, column 2t + i.
template <typename F>
__device__ __forceinline__ void column_minima(const F& f, const int16_t* sums, int t, int (&minimum)[4]) {
  uint32_t low = 0, high = 0;
  if (t < 2) {
    const uint2 four = *reinterpret_cast<const uint2*>(sums + 4 * t);
    const uint32_t low_bytes = __byte_perm(four.x, four.y, 0x6420),
                   high_bytes = __byte_perm(four.x, four.y, 0x7531);
    low = low_bytes & 0x7f7f7f7fu;
    high = (high_bytes & 0x7f7f7f7fu) << 1 | (low_bytes >> 7 & 0x01010101u);
  }
  int32_t c_low[4] = {}, c_high[4] = {};
  mma_k16(c_low, f.minima(t, 0), f.minima(t, 1), low);
  mma_k16(c_high, f.minima(t, 0), f.minima(t, 1), high);
#pragma unroll
  for (int i = 0; i < 4; ++i) minimum[i] = c_low[i] + c_high[i] * 128;
}

/// Activation rows in shared memory, over one super-block.
struct SuperRows {
  const uint8_t* q = nullptr;
  const int16_t* sums = nullptr;
  int q_stride = 0, sums_stride = 0;  ///< bytes
  int rows = 0;                       ///< held: a multiple of 8
  int used = 0;                       ///< of these
};

/// integers[(term * rows + activation row) * exchange_stride + weight row], and the weight's own factors:
/// factors[term * 16 + weight row].
template <typename Codec>
__device__ __forceinline__ void unit_rows(const uint8_t* row0, const uint8_t* row1, int values,
                                          const SuperRows& x, int32_t* integers, float* factors) {
  using F = Fragments<Codec>;
  const int lane = static_cast<int>(threadIdx.x % 32), g = lane / 4, t = lane % 4;
  F f;
  f.load(row0, row1, t, values);
  if constexpr (F::integer_scale) {
    if (t < 2) factors[g + 8 * t] = t == 0 ? f.d(0) : f.d(1);
    if constexpr (Codec::has_minimum) {
      if (t >= 2) factors[tile_rows + g + 8 * (t - 2)] = t == 2 ? f.dmin(0) : f.dmin(1);
    }
  } else {
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      const uint32_t d = f.d_pair(t, row);
      factors[2 * t * tile_rows + g + 8 * row] = half_bits_to_float(d & 0xffffu);
      factors[(2 * t + 1) * tile_rows + g + 8 * row] = half_bits_to_float(d >> 16);
    }
  }
#pragma unroll 1
  for (int first = 0; first < x.used; first += 8) {
    const uint8_t* q = x.q + (first + g) * x.q_stride;
    const auto store = [&](int term, const int(&c)[4]) {
      int32_t* to = integers + (term * x.rows + first + 2 * t) * exchange_stride + g;
      to[0] = c[0], to[8] = c[2];
      to[exchange_stride] = c[1], to[exchange_stride + 8] = c[3];
    };
    int total[4] = {};
#pragma unroll
    for (int s = 0; s < super_values / F::step_k; ++s) {
      uint32_t a[4];
      f.a(s, a);
      int32_t c[4] = {};
      if constexpr (F::step_k == 32) {
        const uint2 b = *reinterpret_cast<const uint2*>(q + 32 * s + 8 * t);
        mma_k32(c, a, b.x, b.y);
      } else {
        mma_k16(c, a[0], a[1], *reinterpret_cast<const uint32_t*>(q + 16 * s + 4 * t));
      }
      if constexpr (F::integer_scale) {
        const int scale0 = f.scale(s, 0), scale1 = f.scale(s, 1);
        total[0] += c[0] * scale0, total[1] += c[1] * scale0;
        total[2] += c[2] * scale1, total[3] += c[3] * scale1;
      } else {
        store(s, c);
      }
    }
    if constexpr (F::integer_scale) store(0, total);
    if constexpr (F::integer_scale && Codec::has_minimum) {
      int minimum[4];
      const auto* sums = reinterpret_cast<const uint8_t*>(x.sums) + (first + g) * x.sums_stride;
      column_minima(f, reinterpret_cast<const int16_t*>(sums), t, minimum);
      store(1, minimum);
    }
  }
}

/// The sum so far of one output: y of whole segments and the open segment's acc.
struct Chain {
  float y = 0, acc = 0;
};

/// Goes on from super-block `first` of K over `supers` of them; add(chain, s, terms) adds super-block s of
/// these.
template <int kTerms, typename Add>
__device__ __forceinline__ void run_chain(Chain& chain, int first, int supers, int last_terms, Add add) {
  for (int begin = 0; begin < supers;) {
    const int at = first + begin;
    if (at > 0 && at % segment_supers == 0) {
      chain.y = at == segment_supers ? chain.acc : chain.y + chain.acc;
      chain.acc = 0;
    }
    int end = begin + segment_supers - at % segment_supers;
    end = end < supers ? end : supers;
    int whole = end;  // super-blocks with all their terms
    if (kTerms == 8 && end == supers && last_terms < 8) --whole;
#pragma unroll 4
    for (int s = begin; s < whole; ++s) {
#pragma unroll
      for (int k = 0; k < kTerms; ++k) add(chain, s, k);
    }
    if (kTerms == 8 && whole < end)
      for (int k = 0; k < last_terms; ++k) add(chain, whole, k);
    begin = end;
  }
}

__device__ __forceinline__ float end_chain(const Chain& chain, int supers) {
  return supers <= segment_supers ? chain.acc : chain.y + chain.acc;
}

}  // namespace weir::cuda
