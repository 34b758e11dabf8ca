// Q6_K as tensor-core operands (fragments.cuh): steps of 16, as its scales are. Blocks are 2-byte aligned.
#pragma once

#include "device/cuda/fragments.cuh"
#include "device/cuda/fragments_words.cuh"
#include "quant/q6_k.h"

namespace weir::cuda {

template <>
struct Fragments<quant::Q6_K> {
  static constexpr int step_k = 16;
  static constexpr bool integer_scale = true;
  static constexpr int block_bytes = 210;

  __device__ __forceinline__ void load(const uint8_t* row0, const uint8_t* row1, int t, int) {
    load_row<0>(row0, t);
    load_row<1>(row1, t);
  }
  __device__ __forceinline__ void a(int step, uint32_t (&a)[4]) const {
    a[0] = minus_packed(raised(step, 0) | 0x80808080u, 0x20202020u);
    a[1] = minus_packed(raised(step, 1) | 0x80808080u, 0x20202020u);
    a[2] = a[3] = 0;
  }
  /// Levels as they are stored, 0..63, are 32 more than what they mean: A of four times -32 takes that off.
  static constexpr uint32_t minus_raise = 0xe0e0e0e0u;
  __device__ __forceinline__ uint32_t raised(int step, int row) const {
    // Step s covers elements 32 r + 16 (s % 2).. of half s / 8, r = s / 2 % 4.
    const int half = step / 8, r = step / 2 % 4, odd = step % 2;
    const uint32_t low = low_[row][4 * half + 2 * (r % 2) + odd] >> (r < 2 ? 0 : 4);
    const uint32_t bits = high_[row][2 * half + odd];
    const uint32_t high = r < 2 ? bits << (4 - 2 * r) : bits >> (2 * r - 4);
    return (low & 0x0f0f0f0fu) | (high & 0x30303030u);
  }
  __device__ __forceinline__ int scale(int step, int row) const {
    return static_cast<int>(scale_[row][step / 4] << (3 - step % 4) * 8) >> 24;
  }
  __device__ __forceinline__ int minimum(int, int) const { return 0; }
  __device__ __forceinline__ float d(int row) const { return half_bits_to_float(d_[row]); }
  __device__ __forceinline__ float dmin(int) const { return 0; }

  /// By lane, of one row's super-block: the scales of steps 8 set + 2t (low byte) and the next.
  static __device__ __forceinline__ uint32_t scale_pair(const uint8_t* row, int set, int t) {
    return load_half_bits(row + quant::Q6_K::scales_offset + 8 * set + 2 * t);
  }

 private:
  template <int kRow>
  __device__ __forceinline__ void load_row(const uint8_t* row, int t) {
    if (word_aligned(row))
      load_words<kRow, true>(row, t);
    else
      load_words<kRow, false>(row, t);
    d_[kRow] = load_half_bits(row + quant::Q6_K::d_offset);
  }
  template <int kRow, bool kAligned>
  __device__ __forceinline__ void load_words(const uint8_t* row, int t) {
#pragma unroll
    for (int i = 0; i < 8; ++i) low_[kRow][i] = load_word<kAligned>(row, 16 * i, 4 * t);
#pragma unroll
    for (int i = 0; i < 4; ++i)
      high_[kRow][i] = load_word<kAligned>(row, quant::Q6_K::qh_offset + 16 * i, 4 * t);
#pragma unroll
    for (int i = 0; i < 4; ++i)
      scale_[kRow][i] = load_word<kAligned>(row, quant::Q6_K::scales_offset + 4 * i, 0);
  }

  uint32_t low_[2][8], high_[2][4], scale_[2][4], d_[2];
};

}  // namespace weir::cuda
