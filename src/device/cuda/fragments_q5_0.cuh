// Q5_0 as tensor-core operands (fragments.cuh): eight blocks of 22 bytes, 2-byte aligned, unpacked when
// loaded.
#pragma once

#include "device/cuda/fragments.cuh"
#include "device/cuda/fragments_words.cuh"
#include "quant/q5_0.h"

namespace weir::cuda {

template <>
struct Fragments<quant::Q5_0> {
  static constexpr int step_k = 32;
  static constexpr bool integer_scale = false;
  static constexpr int block_bytes = 8 * 22;

  __device__ __forceinline__ void load(const uint8_t* row0, const uint8_t* row1, int t, int values) {
    load_row<0>(row0, t, values);
    load_row<1>(row1, t, values);
  }
  __device__ __forceinline__ void a(int step, uint32_t (&a)[4]) const {
    a[0] = level_[0][step][0];
    a[1] = level_[1][step][0];
    a[2] = level_[0][step][1];
    a[3] = level_[1][step][1];
  }
  __device__ __forceinline__ float d(int step, int row) const {
    return half_bits_to_float(d_[row][step / 2] >> step % 2 * 16);
  }

  /// By lane: d of steps 2t (low half) and 2t + 1, as f16.
  __device__ __forceinline__ uint32_t d_pair(int t, int row) const {
    const uint32_t low = t & 1 ? d_[row][1] : d_[row][0], high = t & 1 ? d_[row][3] : d_[row][2];
    return t & 2 ? high : low;
  }

 private:
  template <int kRow>
  __device__ __forceinline__ void load_row(const uint8_t* row, int t, int values) {
    if (word_aligned(row))
      load_words<kRow, true>(row, t, values);
    else
      load_words<kRow, false>(row, t, values);
  }
  /// Values 8t.. of a block are the low nibbles of bytes 8t.. for t < 2, else the high nibbles of 8 (t - 2)..
  template <int kRow, bool kAligned>
  __device__ __forceinline__ void load_words(const uint8_t* row, int t, int values) {
    const int moved = 8 * (t % 2), shift = t / 2 * 4;
#pragma unroll
    for (int step = 0; step < 8; ++step) {
      uint32_t d = 0;
      level_[kRow][step][0] = level_[kRow][step][1] = 0;
      if (32 * step < values) {
        const int offset = step * quant::Q5_0::block_bytes;
        d = load_half_bits(row + offset);
        const uint32_t fifth = load_word<kAligned>(row, offset + quant::Q5_0::qh_offset, 0) >> 8 * t;
        const uint32_t q0 = load_word<kAligned>(row, offset + quant::Q5_0::qs_offset, moved);
        const uint32_t q1 = load_word<kAligned>(row, offset + quant::Q5_0::qs_offset + 4, moved);
        level_[kRow][step][0] = levels(q0 >> shift, fifth);
        level_[kRow][step][1] = levels(q1 >> shift, fifth >> 4);
      }
      d_[kRow][step / 2] = step % 2 == 0 ? d : d_[kRow][step / 2] | d << 16;
    }
  }
  /// Four values from nibbles and the low four bits of `fifth`, which the product spreads to one a byte.
  __device__ __forceinline__ static uint32_t levels(uint32_t nibbles, uint32_t fifth) {
    const uint32_t spread = (fifth & 15u) * 0x00204081u & 0x01010101u;
    return minus_packed((nibbles & 0x0f0f0f0fu) | spread << 4 | 0x80808080u, 0x10101010u);
  }

  uint32_t level_[2][8][2];
  uint32_t d_[2][4];  ///< two steps a word
};

}  // namespace weir::cuda
