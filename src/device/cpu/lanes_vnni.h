// The instructions that the block kernels (lane_matmul.h, lanes_<format>.h) are written in, AVX-512 with
// VNNI: sixteen lanes of 32 bits, one weight row each. As lanes_avx2.h, which says what each does; the sums
// of four byte products go to 32 bits at once, so nothing can overflow on the way.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "quant/load.h"

namespace weir::cpu {
namespace {

struct VnniLanes {
  static constexpr int kLanes = 16;
  static constexpr int kRowsTogether = 4;  ///< activation rows that share a load of levels: measured
  using Int = __m512i;
  using Float = __m512;
  using Scale = __m512i;  ///< int32
  /// Signed levels are stored + 128 and corrected by the sum of the activations.
  static constexpr bool kSignedAsUnsigned = true;

  static inline Int set8(int v) { return _mm512_set1_epi8(static_cast<char>(v)); }
  static inline Int zero() { return _mm512_setzero_si512(); }
  static inline Int bit_and(Int a, Int b) { return _mm512_and_si512(a, b); }
  static inline Int bit_or(Int a, Int b) { return _mm512_or_si512(a, b); }
  static inline Int bit_xor(Int a, Int b) { return _mm512_xor_si512(a, b); }
  static inline Int add32(Int a, Int b) { return _mm512_add_epi32(a, b); }
  template <int kBits>
  static inline Int right32(Int a) {
    return _mm512_srli_epi32(a, kBits);
  }
  template <int kBits>
  static inline Int left32(Int a) {
    return _mm512_slli_epi32(a, kBits);
  }
  template <int kBits>
  static inline Int right16_signed(Int a) {
    return _mm512_srai_epi16(a, kBits);
  }
  static inline Int shuffle(Int a, __m128i pattern) {
    return _mm512_shuffle_epi8(a, _mm512_broadcast_i32x4(pattern));
  }
  static inline Int where_set(Int a, Int bits, Int value) {
    return _mm512_maskz_mov_epi8(_mm512_test_epi8_mask(a, bits), value);
  }
  static inline Int broadcast32(const void* p) {
    return _mm512_set1_epi32(static_cast<int>(quant::load_u32(static_cast<const uint8_t*>(p))));
  }

  static inline Float broadcast(float v) { return _mm512_set1_ps(v); }
  static inline Float zero_float() { return _mm512_setzero_ps(); }
  static inline Float add(Float a, Float b) { return _mm512_add_ps(a, b); }
  static inline Float multiply(Float a, Float b) { return _mm512_mul_ps(a, b); }
  static inline Float fma(Float a, Float b, Float c) { return _mm512_fmadd_ps(a, b, c); }
  static inline Float fnma(Float a, Float b, Float c) { return _mm512_fnmadd_ps(a, b, c); }
  static inline Float to_float(Int a) { return _mm512_cvtepi32_ps(a); }
  static inline Float f16_to_float(Int a) { return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(a)); }
  static inline Int lower_halves(Int a) { return a; }  // the conversion above ignores upper halves
  static inline void store(float* y, Float v, int rows) {
    _mm512_mask_storeu_ps(y, static_cast<__mmask16>((1u << rows) - 1), v);
  }

  static inline void transpose(const uint8_t* const* w, int offset, Int (&out)[4]) {
    __m512i v[4];
    for (int r = 0; r < 4; ++r) {
      v[r] = _mm512_castsi128_si512(load16(w[r] + offset));
      v[r] = _mm512_inserti32x4(v[r], load16(w[r + 4] + offset), 1);
      v[r] = _mm512_inserti32x4(v[r], load16(w[r + 8] + offset), 2);
      v[r] = _mm512_inserti32x4(v[r], load16(w[r + 12] + offset), 3);
    }
    const __m512i a = _mm512_unpacklo_epi32(v[0], v[1]), b = _mm512_unpackhi_epi32(v[0], v[1]);
    const __m512i c = _mm512_unpacklo_epi32(v[2], v[3]), d = _mm512_unpackhi_epi32(v[2], v[3]);
    out[0] = _mm512_unpacklo_epi64(a, c), out[1] = _mm512_unpackhi_epi64(a, c);
    out[2] = _mm512_unpacklo_epi64(b, d), out[3] = _mm512_unpackhi_epi64(b, d);
  }
  static inline __m128i load16(const uint8_t* p) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  }

  static inline Scale scale_unsigned(Int bytes, int j) {
    return _mm512_and_si512(_mm512_srl_epi32(bytes, _mm_cvtsi32_si128(8 * j)), _mm512_set1_epi32(255));
  }
  static inline Scale scale_signed(Int bytes, int j) {
    return _mm512_srai_epi32(_mm512_sll_epi32(bytes, _mm_cvtsi32_si128(24 - 8 * j)), 24);
  }

  template <int kLargest, int kCount, int X>
  static inline void dot_scaled(const Int* levels, const int8_t* const (&q)[X], int at, Scale scale,
                                Int (&total)[X]) {
    Int sum[X];
    for (Int& s : sum) s = zero();
    dot<kLargest, kCount>(levels, q, at, sum);
    for (int x = 0; x < X; ++x) total[x] = _mm512_add_epi32(total[x], _mm512_mullo_epi32(sum[x], scale));
  }

  template <int kLargest, int kCount, int X>
  static inline void dot(const Int* levels, const int8_t* const (&q)[X], int at, Int (&total)[X]) {
    for (int i = 0; i < kCount; ++i)
      for (int x = 0; x < X; ++x)
        total[x] = _mm512_dpbusd_epi32(total[x], levels[i], broadcast32(q[x] + at + 4 * i));
  }

  static inline Int add_products16(Int total, Int a, Int b) { return _mm512_dpwssd_epi32(total, a, b); }
};

}  // namespace
}  // namespace weir::cpu
