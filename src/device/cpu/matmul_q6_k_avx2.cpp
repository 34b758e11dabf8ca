// Q6_K blocks, AVX2. Levels stay unsigned (0..63; a pair's sum is at most 2 * 63 * 127 = 16,002) and the -32
// is taken out through sums of 16 activations: sum of scale * (level - 32) * q = sum of scale * level * q
// + sum of (2 * scale) * (-16 * sum of q).
#include "device/cpu/blocks_avx2.h"
#include "quant/q6_k.h"

namespace weir::cpu {
namespace {

struct Q6_KKernel {
  using Codec = quant::Q6_K;
  /// int16: -16 times the sum of 16 activations; word k of the lower half belongs to the first 16 of
  /// activations 32k.., of the upper half to the second 16. At most 16 * 16 * 127 = 32,512.
  using Prepared = __m256i;

  static inline Prepared prepare(const int8_t* q) {
    const auto pairs = [&](int k) { return _mm256_maddubs_epi16(_mm256_set1_epi8(1), load256(q + 32 * k)); };
    const __m256i a =
        _mm256_hadd_epi16(_mm256_hadd_epi16(pairs(0), pairs(1)), _mm256_hadd_epi16(pairs(2), pairs(3)));
    const __m256i b =
        _mm256_hadd_epi16(_mm256_hadd_epi16(pairs(4), pairs(5)), _mm256_hadd_epi16(pairs(6), pairs(7)));
    return _mm256_mullo_epi16(_mm256_hadd_epi16(a, b), _mm256_set1_epi16(-16));
  }

  /// Levels of elements 128 half + 32 r ..+31.
  static inline __m256i unpack(const uint8_t* block, int half, int r) {
    const __m256i low = load256(block + 64 * half + 32 * (r % 2));
    const __m256i high = load256(block + Codec::qh_offset + 32 * half);
    const __m256i nibbles = _mm256_and_si256(r < 2 ? low : _mm256_srli_epi16(low, 4), _mm256_set1_epi8(15));
    const __m256i moved = r == 0   ? _mm256_slli_epi16(high, 4)
                          : r == 1 ? _mm256_slli_epi16(high, 2)
                          : r == 2 ? high
                                   : _mm256_srli_epi16(high, 2);
    return _mm256_or_si256(nibbles, _mm256_and_si256(moved, _mm256_set1_epi8(0x30)));
  }

  template <int X>
  static inline __m256 block(const uint8_t* const* w, const ActSegment<Q6_KKernel, X>& s, int b, __m256 acc) {
    __m256i v[kLanes];
    for (int k = 0; k < kLanes / X; ++k) {
      // Even scales as int16 in the lower half, odd ones in the upper: word r serves elements 32 r..32 r
      // + 31.
      const __m128i even_odd = _mm_setr_epi8(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15);
      const __m256i scales =
          _mm256_cvtepi8_epi16(_mm_shuffle_epi8(load128(w[k] + Codec::scales_offset), even_odd));
      const __m256i twice = _mm256_add_epi16(scales, scales);
      for (int x = 0; x < X; ++x) v[k * X + x] = _mm256_madd_epi16(twice, s.prepared[x][b]);
      for (int r = 0; r < 8; ++r) {
        const __m256i levels = unpack(w[k], r / 4, r % 4);
        const __m256i scale =
            _mm256_shuffle_epi8(scales, _mm256_set1_epi16(static_cast<int16_t>(0x0100 + 0x0202 * r)));
        for (int x = 0; x < X; ++x) {
          const __m256i p = _mm256_maddubs_epi16(levels, load256(s.q[x] + 256 * b + 32 * r));
          v[k * X + x] = _mm256_add_epi32(v[k * X + x], _mm256_madd_epi16(p, scale));
        }
      }
    }
    return add_total(f16_lanes<X>(w, Codec::d_offset), s.scale[b], sum_lanes(v), acc);
  }
};

}  // namespace

void matmul_q6_k_avx2(const MatmulTask& task) { matmul_blocks<Q6_KKernel>(task); }

}  // namespace weir::cpu
