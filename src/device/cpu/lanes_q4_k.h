// Q4_K by lanes (lane_matmul.h): the head's twelve scale bytes are unpacked for all rows at once.
#pragma once

#include "device/cpu/lane_matmul.h"
#include "quant/q4_k.h"

namespace weir::cpu {
namespace {

struct Q4_KLanes {
  using Codec = quant::Q4_K;
  using Prepared = Nothing;

  template <typename S>
  struct Unpacked {
    typename S::Int level[8][8];  ///< [sub-block][four elements]
    typename S::Scale scale[8];
    typename S::Int minimum[4];  ///< int16 pairs: sub-blocks 2k and 2k + 1
    typename S::Float d, dmin;
  };

  template <typename S>
  static inline void unpack(const uint8_t* const* w, Unpacked<S>& u) {
    using Int = typename S::Int;
    Int head[4];  // d and dmin; scale bytes 0..3, 4..7, 8..11
    S::transpose(w, 0, head);
    u.d = S::f16_to_float(S::lower_halves(head[0]));
    u.dmin = S::f16_to_float(S::template right32<16>(head[0]));
    const Int six = S::set8(0x3f), four = S::set8(0x0f), upper = S::set8(0x30);
    const Int scales[2] = {
        S::bit_and(head[1], six),
        S::bit_or(S::bit_and(head[3], four), S::bit_and(S::template right32<2>(head[1]), upper))};
    const Int minima[2] = {S::bit_and(head[2], six),
                           S::bit_or(S::bit_and(S::template right32<4>(head[3]), four),
                                     S::bit_and(S::template right32<2>(head[2]), upper))};
    const __m128i first = _mm_setr_epi8(0, -1, 1, -1, 4, -1, 5, -1, 8, -1, 9, -1, 12, -1, 13, -1);
    const __m128i second = _mm_setr_epi8(2, -1, 3, -1, 6, -1, 7, -1, 10, -1, 11, -1, 14, -1, 15, -1);
    for (int h = 0; h < 2; ++h) {
      for (int j = 0; j < 4; ++j) u.scale[4 * h + j] = S::scale_unsigned(scales[h], j);
      u.minimum[2 * h] = S::shuffle(minima[h], first), u.minimum[2 * h + 1] = S::shuffle(minima[h], second);
    }
    for (int c = 0; c < 4; ++c)
      for (int p = 0; p < 2; ++p) {
        Int piece[4];
        S::transpose(w, Codec::qs_offset + 32 * c + 16 * p, piece);
        for (int i = 0; i < 4; ++i) {
          u.level[2 * c][4 * p + i] = S::bit_and(piece[i], four);
          u.level[2 * c + 1][4 * p + i] = S::bit_and(S::template right32<4>(piece[i]), four);
        }
      }
  }

  template <typename S, int X>
  static inline void add(const Unpacked<S>& u, const ActBlock<Q4_KLanes, X>& a, typename S::Float* acc) {
    typename S::Int total[X];
    for (int x = 0; x < X; ++x) total[x] = S::zero();
    for (int j = 0; j < 8; ++j) S::template dot_scaled<15, 8>(u.level[j], a.q, 32 * j, u.scale[j], total);
    for (int x = 0; x < X; ++x) {
      typename S::Int minimum = S::zero();
      for (int k = 0; k < 4; ++k)
        minimum = S::add_products16(minimum, u.minimum[k], S::broadcast32(a.sums[x] + 2 * k));
      acc[x] = add_total<S>(u.d, a.scale[x], total[x], acc[x]);
      acc[x] = S::fnma(S::multiply(u.dmin, S::broadcast(a.scale[x])), S::to_float(minimum), acc[x]);
    }
  }
};

}  // namespace
}  // namespace weir::cpu
