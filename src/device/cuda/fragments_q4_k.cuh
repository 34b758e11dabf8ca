// Q4_K as tensor-core operands (fragments.cuh): 32 bytes of nibbles are two steps, the low ones first.
#pragma once

#include "device/cuda/fragments.cuh"
#include "device/cuda/fragments_words.cuh"
#include "quant/q4_k.h"

namespace weir::cuda {

template <>
struct Fragments<quant::Q4_K> {
  static constexpr int step_k = 32;
  static constexpr bool integer_scale = true;
  static constexpr int block_bytes = 144;

  __device__ __forceinline__ void load(const uint8_t* row0, const uint8_t* row1, int t, int) {
    load_row<0>(row0, t);
    load_row<1>(row1, t);
  }
  __device__ __forceinline__ void a(int step, uint32_t (&a)[4]) const {
    const int shift = step % 2 * 4;
    a[0] = level_[0][step / 2].x >> shift & 0x0f0f0f0fu;
    a[1] = level_[1][step / 2].x >> shift & 0x0f0f0f0fu;
    a[2] = level_[0][step / 2].y >> shift & 0x0f0f0f0fu;
    a[3] = level_[1][step / 2].y >> shift & 0x0f0f0f0fu;
  }
  __device__ __forceinline__ int scale(int step, int row) const {
    return static_cast<int>(scale_[row][step / 4] >> step % 4 * 8 & 0xffu);
  }
  __device__ __forceinline__ int minimum(int step, int row) const {
    return static_cast<int>(minimum_[row][step / 4] >> step % 4 * 8 & 0xffu);
  }
  __device__ __forceinline__ float d(int row) const { return half_bits_to_float(d_[row] & 0xffffu); }
  __device__ __forceinline__ float dmin(int row) const { return half_bits_to_float(d_[row] >> 16); }

  /// By lane: the scales of steps 2t (low byte) and 2t + 1 of the eight in `set`; the minima likewise.
  __device__ __forceinline__ uint32_t scale_pair(int, int t, int row) const {
    return (t & 2 ? scale_[row][1] : scale_[row][0]) >> (t & 1) * 16;
  }
  __device__ __forceinline__ uint32_t minimum_pair(int t, int row) const {
    return (t & 2 ? minimum_[row][1] : minimum_[row][0]) >> (t & 1) * 16;
  }
  /// By lane: the minima of steps 4t..4t + 3 in the bytes of a word, zero for t > 1.
  __device__ __forceinline__ uint32_t minima(int t, int row) const {
    return t & 2 ? 0u : t & 1 ? minimum_[row][1] : minimum_[row][0];
  }

 private:
  template <int kRow>
  __device__ __forceinline__ void load_row(const uint8_t* row, int t) {
    const uint4 head = *reinterpret_cast<const uint4*>(row);
    d_[kRow] = head.x;
    // Six bits each: sub-blocks 0..3 in head.y and head.z; of 4..7 the low four in head.w, the high two atop
    // these.
    scale_[kRow][0] = head.y & 0x3f3f3f3fu;
    minimum_[kRow][0] = head.z & 0x3f3f3f3fu;
    scale_[kRow][1] = (head.w & 0x0f0f0f0fu) | (head.y >> 2 & 0x30303030u);
    minimum_[kRow][1] = (head.w >> 4 & 0x0f0f0f0fu) | (head.z >> 2 & 0x30303030u);
#pragma unroll
    for (int c = 0; c < 4; ++c)
      level_[kRow][c] = *reinterpret_cast<const uint2*>(row + quant::Q4_K::qs_offset + 32 * c + 8 * t);
  }

  uint2 level_[2][4];
  uint32_t d_[2];  ///< d, then dmin in the upper half
  uint32_t scale_[2][2], minimum_[2][2];
};

}  // namespace weir::cuda
