// Q5_0 blocks, AVX2: unpacked to signed bytes in -16..15, then as Q8_0.
#include "device/cpu/blocks_avx2.h"
#include "quant/q5_0.h"

namespace weir::cpu {
namespace {

struct Q5_0Kernel {
  using Codec = quant::Q5_0;
  using Prepared = Nothing;

  /// Levels - 16: a clear fifth bit means nibble - 16, which is nibble | 0xf0 as a signed byte.
  static inline __m256i unpack(const uint8_t* block) {
    const __m128i qs = load128(block + Codec::qs_offset);
    const __m256i nibbles = _mm256_and_si256(
        _mm256_inserti128_si256(_mm256_castsi128_si256(qs), _mm_srli_epi16(qs, 4), 1), _mm256_set1_epi8(15));
    const __m256i qh = _mm256_set1_epi32(static_cast<int>(quant::load_u32(block + Codec::qh_offset)));
    const __m256i byte_of =
        _mm256_setr_epi64x(0x0000000000000000, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303);
    const __m256i bit_of = _mm256_set1_epi64x(static_cast<int64_t>(0x8040201008040201ull));
    const __m256i clear =
        _mm256_cmpeq_epi8(_mm256_and_si256(_mm256_shuffle_epi8(qh, byte_of), bit_of), _mm256_setzero_si256());
    return _mm256_or_si256(nibbles, _mm256_and_si256(clear, _mm256_set1_epi8(static_cast<char>(0xf0))));
  }

  template <int X>
  static inline __m256 block(const uint8_t* const* w, const ActSegment<Q5_0Kernel, X>& s, int b, __m256 acc) {
    const __m256i ones = _mm256_set1_epi16(1);
    __m256i v[kLanes];
    for (int k = 0; k < kLanes / X; ++k) {
      const __m256i levels = unpack(w[k]), magnitude = _mm256_abs_epi8(levels);
      for (int x = 0; x < X; ++x) {
        const __m256i a = _mm256_sign_epi8(load256(s.q[x] + 32 * b), levels);
        v[k * X + x] = _mm256_madd_epi16(_mm256_maddubs_epi16(magnitude, a), ones);
      }
    }
    return add_total(f16_lanes<X>(w, 0), s.scale[b], sum_lanes(v), acc);
  }
};

}  // namespace

void matmul_q5_0_avx2(const MatmulTask& task) { matmul_blocks<Q5_0Kernel>(task); }

}  // namespace weir::cpu
