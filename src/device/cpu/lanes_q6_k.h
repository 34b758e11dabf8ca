// Q6_K by lanes (lane_matmul.h). Levels stay unsigned (0..63); the -32 is taken out through sums of 16
// activations: sum of scale * (level - 32) * q = sum of scale * level * q + sum of (2 * scale) * (-16 * sum
// of q).
#pragma once

#include "device/cpu/lane_matmul.h"
#include "quant/q6_k.h"

namespace weir::cpu {
namespace {

struct Q6_KLanes {
  using Codec = quant::Q6_K;
  /// -16 times the sums of 16 activations, at most 16 * 16 * 127 = 32,512.
  struct Prepared {
    int16_t sums[16];
  };

  static inline void prepare(const int8_t* q, Prepared& out) {
    const auto pairs = [&](int k) {
      return _mm256_maddubs_epi16(_mm256_set1_epi8(1),
                                  _mm256_loadu_si256(reinterpret_cast<const __m256i*>(q + 32 * k)));
    };
    const auto fours = [&](int k) { return _mm256_hadd_epi16(pairs(k), pairs(k + 1)); };
    const __m256i low = _mm256_hadd_epi16(fours(0), fours(2)), high = _mm256_hadd_epi16(fours(4), fours(6));
    // The lower half has the sums of the first 16 of each 32, the upper half those of the second 16.
    const __m256i sums = _mm256_mullo_epi16(_mm256_hadd_epi16(low, high), _mm256_set1_epi16(-16));
    const __m128i even = _mm256_castsi256_si128(sums), odd = _mm256_extracti128_si256(sums, 1);
    auto* to = reinterpret_cast<__m128i*>(out.sums);
    _mm_storeu_si128(to, _mm_unpacklo_epi16(even, odd)),
        _mm_storeu_si128(to + 1, _mm_unpackhi_epi16(even, odd));
  }

  template <typename S>
  struct Unpacked {
    typename S::Int level[16][4];  ///< [sub-block of 16][four elements]
    typename S::Scale scale[16];
    typename S::Int twice[8];  ///< int16 pairs: twice the scales of sub-blocks 2k and 2k + 1
    typename S::Float d;
  };

  template <typename S>
  static inline void unpack(const uint8_t* const* w, Unpacked<S>& u) {
    using Int = typename S::Int;
    Int piece[4];
    S::transpose(w, Codec::d_offset - 14, piece);  // for its last two bytes
    u.d = S::f16_to_float(S::template right32<16>(piece[3]));
    S::transpose(w, Codec::scales_offset, piece);
    const __m128i first = _mm_setr_epi8(-1, 0, -1, 1, -1, 4, -1, 5, -1, 8, -1, 9, -1, 12, -1, 13);
    const __m128i second = _mm_setr_epi8(-1, 2, -1, 3, -1, 6, -1, 7, -1, 10, -1, 11, -1, 14, -1, 15);
    for (int h = 0; h < 4; ++h) {
      for (int j = 0; j < 4; ++j) u.scale[4 * h + j] = S::scale_signed(piece[h], j);
      u.twice[2 * h] = S::template right16_signed<7>(S::shuffle(piece[h], first));
      u.twice[2 * h + 1] = S::template right16_signed<7>(S::shuffle(piece[h], second));
    }
    for (int p = 0; p < 4; ++p) unpack_quarter<S>(w, p / 2, p % 2, u);
  }

  /// Elements 128 half + 16 part + (0..15) and those 32, 64 and 96 further.
  template <typename S>
  static inline void unpack_quarter(const uint8_t* const* w, int half, int part, Unpacked<S>& u) {
    using Int = typename S::Int;
    Int low[4], low_next[4], high[4];
    S::transpose(w, 64 * half + 16 * part, low);
    S::transpose(w, 64 * half + 32 + 16 * part, low_next);
    S::transpose(w, Codec::qh_offset + 32 * half + 16 * part, high);
    const Int four = S::set8(0x0f), two = S::set8(0x30);
    for (int i = 0; i < 4; ++i) {
      const auto level = [&](int r) -> Int& { return u.level[8 * half + 2 * r + part][i]; };
      level(0) = S::bit_or(S::bit_and(low[i], four), S::bit_and(S::template left32<4>(high[i]), two));
      level(1) = S::bit_or(S::bit_and(low_next[i], four), S::bit_and(S::template left32<2>(high[i]), two));
      level(2) = S::bit_or(S::bit_and(S::template right32<4>(low[i]), four), S::bit_and(high[i], two));
      level(3) = S::bit_or(S::bit_and(S::template right32<4>(low_next[i]), four),
                           S::bit_and(S::template right32<2>(high[i]), two));
    }
  }

  template <typename S, int X>
  static inline void add(const Unpacked<S>& u, const ActBlock<Q6_KLanes, X>& a, typename S::Float* acc) {
    typename S::Int total[X];
    for (int x = 0; x < X; ++x) {
      total[x] = S::zero();
      for (int k = 0; k < 8; ++k)
        total[x] = S::add_products16(total[x], u.twice[k], S::broadcast32(a.prepared[x]->sums + 2 * k));
    }
    for (int s = 0; s < 16; ++s) S::template dot_scaled<63, 4>(u.level[s], a.q, 16 * s, u.scale[s], total);
    for (int x = 0; x < X; ++x) acc[x] = add_total<S>(u.d, a.scale[x], total[x], acc[x]);
  }
};

}  // namespace
}  // namespace weir::cpu
