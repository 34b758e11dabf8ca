// Activations to int8, AVX2: the bits of quantize_scalar.cpp. Compiled for AVX2: calls no inline function of
// other headers that is not always inlined.
#include <immintrin.h>

#include "device/cpu/matmul_tables.h"

namespace weir::cpu {
namespace {

/// Largest magnitude as bits: for non-negative floats the order of the bits is the order of the values, with
/// infinity and then NaNs above every finite one.
int magnitude_bits(const float* x, int count) {
  const __m256i mask = _mm256_set1_epi32(0x7fffffff);
  __m256i most = _mm256_setzero_si256();
  for (int i = 0; i < count; i += 8)
    most = _mm256_max_epi32(
        most, _mm256_and_si256(mask, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x + i))));
  __m128i m = _mm_max_epi32(_mm256_castsi256_si128(most), _mm256_extracti128_si256(most, 1));
  m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0x4e));
  m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0xb1));
  return _mm_cvtsi128_si32(m);
}

/// 32 values; ties to even is the processor's default rounding.
__m256i quantize32_values(const float* x, __m256 d) {
  const auto rounded = [&](int i) { return _mm256_cvtps_epi32(_mm256_div_ps(_mm256_loadu_ps(x + i), d)); };
  // The packs work within 128-bit lanes: the permutation puts groups of four back in order.
  __m256i q = _mm256_packs_epi16(_mm256_packs_epi32(rounded(0), rounded(8)),
                                 _mm256_packs_epi32(rounded(16), rounded(24)));
  q = _mm256_permutevar8x32_epi32(q, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
  return _mm256_max_epi8(q, _mm256_set1_epi8(-127));  // +127 is the packs' own saturation
}

int16_t sum32(__m256i q) {
  const __m256i pairs = _mm256_maddubs_epi16(_mm256_set1_epi8(1), q);
  const __m256i fours = _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
  __m128i s = _mm_add_epi32(_mm256_castsi256_si128(fours), _mm256_extracti128_si256(fours, 1));
  s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4e));
  s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0xb1));
  return static_cast<int16_t>(_mm_cvtsi128_si32(s));
}

template <int kBlock>
bool quantize(const QuantizeTask& t) {
  bool finite = true;
  for (int64_t r = t.row_begin; r < t.row_end; ++r) {
    const float* x = t.x + (t.x_index ? t.x_index[r] : r) * t.x_stride;
    for (int64_t i = 0; i < t.in; i += kBlock) {
      const int64_t at = r * t.in + i;
      const int most = magnitude_bits(x + i, kBlock);
      const bool block_finite = most < 0x7f800000;
      const float d = __builtin_bit_cast(float, most) / 127.0f;
      finite &= block_finite;
      t.scale[at / kBlock] = block_finite ? d : __builtin_nanf("");
      const bool zero = !block_finite || d == 0;
      for (int64_t s = 0; s < kBlock; s += 32) {
        const __m256i q = zero ? _mm256_setzero_si256() : quantize32_values(x + i + s, _mm256_set1_ps(d));
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(t.q + at + s), q);
        if (kBlock == 256) t.sums[(at + s) / 32] = sum32(q);
      }
    }
  }
  return finite;
}

}  // namespace

bool quantize32_avx2(const QuantizeTask& task) { return quantize<32>(task); }
bool quantize256_avx2(const QuantizeTask& task) { return quantize<256>(task); }

}  // namespace weir::cpu
