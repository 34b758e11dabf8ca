// Q8_0 as tensor-core operands (fragments.cuh): eight blocks of 34 bytes, 2-byte aligned.
#pragma once

#include "device/cuda/fragments.cuh"
#include "device/cuda/fragments_words.cuh"
#include "quant/q8_0.h"

namespace weir::cuda {

template <>
struct Fragments<quant::Q8_0> {
  static constexpr int step_k = 32;
  static constexpr bool integer_scale = false;
  static constexpr int block_bytes = 8 * 34;

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
  template <int kRow, bool kAligned>
  __device__ __forceinline__ void load_words(const uint8_t* row, int t, int values) {
#pragma unroll
    for (int step = 0; step < 8; ++step) {
      uint32_t d = 0;
      level_[kRow][step][0] = level_[kRow][step][1] = 0;
      if (32 * step < values) {
        const int offset = step * quant::Q8_0::block_bytes;
        d = load_half_bits(row + offset);
        level_[kRow][step][0] = load_word<kAligned>(row, offset + quant::Q8_0::qs_offset, 8 * t);
        level_[kRow][step][1] = load_word<kAligned>(row, offset + quant::Q8_0::qs_offset + 4, 8 * t);
      }
      d_[kRow][step / 2] = step % 2 == 0 ? d : d_[kRow][step / 2] | d << 16;
    }
  }

  uint32_t level_[2][8][2];
  uint32_t d_[2][4];  ///< two steps a word
};

}  // namespace weir::cuda
