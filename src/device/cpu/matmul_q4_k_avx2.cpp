// Q4_K blocks, AVX2. A pair of nibble products is at most 2 * 15 * 127 = 3,810, so sixteen-bit pairs go to
// the scales by one multiply-add. The minima are one more over the sums of 32 activations.
#include "device/cpu/blocks_avx2.h"
#include "quant/q4_k.h"

namespace weir::cpu {
namespace {

struct Q4_KKernel {
  using Codec = quant::Q4_K;
  using Prepared = Nothing;

  /// Bytes 0..7: the eight scales; bytes 8..15: the eight minima. `head` is the block's first 16 bytes.
  static inline __m128i unpack_scales(__m128i head) {
    const __m128i low = _mm_shuffle_epi8(head, _mm_setr_epi8(4, 5, 6, 7, 12, 13, 14, 15,  //
                                                             8, 9, 10, 11, 12, 13, 14, 15));
    const __m128i high = _mm_shuffle_epi8(head, _mm_setr_epi8(-1, -1, -1, -1, 4, 5, 6, 7,  //
                                                              -1, -1, -1, -1, 8, 9, 10, 11));
    const __m128i low_bits = _mm_and_si128(_mm_srlv_epi32(low, _mm_setr_epi32(0, 0, 0, 4)),
                                           _mm_setr_epi32(0x3f3f3f3f, 0x0f0f0f0f, 0x3f3f3f3f, 0x0f0f0f0f));
    const __m128i high_bits = _mm_and_si128(_mm_srli_epi32(high, 2), _mm_set1_epi8(0x30));
    return _mm_or_si128(low_bits, high_bits);
  }

  template <int X>
  static inline __m256 block(const uint8_t* const* w, const ActSegment<Q4_KKernel, X>& s, int b, __m256 acc) {
    constexpr int W = kLanes / X;
    const __m256i nibble = _mm256_set1_epi8(15);
    __m256i v[kLanes];
    __m128i minima[W];
    for (int k = 0; k < W; ++k) {
      const __m128i bytes = unpack_scales(load128(w[k]));
      minima[k] = _mm_unpackhi_epi8(bytes, _mm_setzero_si128());
      const __m256i scales = _mm256_broadcastsi128_si256(_mm_unpacklo_epi8(bytes, _mm_setzero_si128()));
      for (int c = 0; c < 4; ++c) {
        const __m256i packed = load256(w[k] + Codec::qs_offset + 32 * c);
        const __m256i low = _mm256_and_si256(packed, nibble);
        const __m256i high = _mm256_and_si256(_mm256_srli_epi16(packed, 4), nibble);
        const auto scale = [&](int j) {
          return _mm256_shuffle_epi8(scales, _mm256_set1_epi16(static_cast<int16_t>(0x0100 + 0x0202 * j)));
        };
        const __m256i scale_low = scale(2 * c), scale_high = scale(2 * c + 1);
        for (int x = 0; x < X; ++x) {
          const int8_t* q = s.q[x] + 256 * b + 64 * c;
          const __m256i p = _mm256_madd_epi16(_mm256_maddubs_epi16(low, load256(q)), scale_low);
          const __m256i r = _mm256_madd_epi16(_mm256_maddubs_epi16(high, load256(q + 32)), scale_high);
          const __m256i both = _mm256_add_epi32(p, r);
          v[k * X + x] = c == 0 ? both : _mm256_add_epi32(v[k * X + x], both);
        }
      }
    }
    acc = add_total(f16_lanes<X>(w, 0), s.scale[b], sum_lanes(v), acc);
    return subtract_minimum(f16_lanes<X>(w, Codec::dmin_offset), s.scale[b], minimum_lanes<X>(minima, s, b),
                            acc);
  }

  /// Lane l: the sum over the sub-blocks of minimum times sum of activations. Lanes l and l + 4 share a
  /// vector, one in each half.
  template <int X>
  static inline __m256i minimum_lanes(const __m128i* minima, const ActSegment<Q4_KKernel, X>& s, int b) {
    const auto pair = [&](int l) {
      const __m256i m = _mm256_set_m128i(minima[(l + 4) / X], minima[l / X]);
      const __m256i sums =
          _mm256_set_m128i(load128(s.sums[(l + 4) % X] + 8 * b), load128(s.sums[l % X] + 8 * b));
      return _mm256_madd_epi16(m, sums);
    };
    return _mm256_hadd_epi32(_mm256_hadd_epi32(pair(0), pair(1)), _mm256_hadd_epi32(pair(2), pair(3)));
  }
};

}  // namespace

void matmul_q4_k_avx2(const MatmulTask& task) { matmul_blocks<Q4_KKernel>(task); }

}  // namespace weir::cpu
