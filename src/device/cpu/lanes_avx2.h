// The instructions that the block kernels (lane_matmul.h, lanes_<format>.h) are written in, AVX2: eight lanes
// of 32 bits, one weight row each. All in an anonymous namespace and calling no inline function of other
// headers that is not always inlined, so that no other unit can be given code compiled for AVX2.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "quant/load.h"

namespace weir::cpu {
namespace {

struct Avx2Lanes {
  static constexpr int kLanes = 8;
  static constexpr int kRowsTogether = 2;  ///< activation rows that share a load of levels: measured
  using Int = __m256i;
  using Float = __m256;
  /// A factor for the sums of pairs that maddubs leaves: each lane's scale as int16, twice.
  using Scale = __m256i;
  /// Signed levels are multiplied as they are (dot_signed).
  static constexpr bool kSignedAsUnsigned = false;

  static inline Int set8(int v) { return _mm256_set1_epi8(static_cast<char>(v)); }
  static inline Int zero() { return _mm256_setzero_si256(); }
  static inline Int bit_and(Int a, Int b) { return _mm256_and_si256(a, b); }
  static inline Int bit_or(Int a, Int b) { return _mm256_or_si256(a, b); }
  static inline Int bit_xor(Int a, Int b) { return _mm256_xor_si256(a, b); }
  static inline Int add32(Int a, Int b) { return _mm256_add_epi32(a, b); }
  template <int kBits>
  static inline Int right32(Int a) {
    return _mm256_srli_epi32(a, kBits);
  }
  template <int kBits>
  static inline Int left32(Int a) {
    return _mm256_slli_epi32(a, kBits);
  }
  template <int kBits>
  static inline Int right16_signed(Int a) {
    return _mm256_srai_epi16(a, kBits);
  }
  /// The same permutation of bytes in every 16; -1 gives 0.
  static inline Int shuffle(Int a, __m128i pattern) {
    return _mm256_shuffle_epi8(a, _mm256_broadcastsi128_si256(pattern));
  }
  /// Each byte: `value` where (a & bits) is not 0.
  static inline Int where_set(Int a, Int bits, Int value) {
    return _mm256_andnot_si256(_mm256_cmpeq_epi8(_mm256_and_si256(a, bits), zero()), value);
  }
  static inline Int broadcast32(const void* p) {
    return _mm256_set1_epi32(static_cast<int>(quant::load_u32(static_cast<const uint8_t*>(p))));
  }

  static inline Float broadcast(float v) { return _mm256_set1_ps(v); }
  static inline Float zero_float() { return _mm256_setzero_ps(); }
  static inline Float add(Float a, Float b) { return _mm256_add_ps(a, b); }
  static inline Float multiply(Float a, Float b) { return _mm256_mul_ps(a, b); }
  static inline Float fma(Float a, Float b, Float c) { return _mm256_fmadd_ps(a, b, c); }
  /// c - a * b, fused: fma(-a, b, c).
  static inline Float fnma(Float a, Float b, Float c) { return _mm256_fnmadd_ps(a, b, c); }
  static inline Float to_float(Int a) { return _mm256_cvtepi32_ps(a); }
  /// The f16 in the lower half of each lane, whose upper half is 0.
  static inline Float f16_to_float(Int a) {
    const __m256i packed = _mm256_packus_epi32(a, a);
    return _mm256_cvtph_ps(_mm256_castsi256_si128(_mm256_permute4x64_epi64(packed, 0x08)));
  }
  static inline Int lower_halves(Int a) { return _mm256_and_si256(a, _mm256_set1_epi32(0xffff)); }
  /// The first `rows` lanes.
  static inline void store(float* y, Float v, int rows) {
    if (rows == kLanes) return _mm256_storeu_ps(y, v);
    alignas(32) float lanes[kLanes];
    _mm256_store_ps(lanes, v);
    for (int r = 0; r < rows; ++r) y[r] = lanes[r];
  }

  /// out[i], lane r: bytes offset + 4i..+3 of row r's block.
  static inline void transpose(const uint8_t* const* w, int offset, Int (&out)[4]) {
    __m256i v[4];
    for (int r = 0; r < 4; ++r)
      v[r] = _mm256_inserti128_si256(_mm256_castsi128_si256(load16(w[r] + offset)), load16(w[r + 4] + offset),
                                     1);
    const __m256i a = _mm256_unpacklo_epi32(v[0], v[1]), b = _mm256_unpackhi_epi32(v[0], v[1]);
    const __m256i c = _mm256_unpacklo_epi32(v[2], v[3]), d = _mm256_unpackhi_epi32(v[2], v[3]);
    out[0] = _mm256_unpacklo_epi64(a, c), out[1] = _mm256_unpackhi_epi64(a, c);
    out[2] = _mm256_unpacklo_epi64(b, d), out[3] = _mm256_unpackhi_epi64(b, d);
  }
  static inline __m128i load16(const uint8_t* p) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  }

  /// Byte j of each lane as a scale.
  static inline Scale scale_unsigned(Int bytes, int j) {
    return shuffle(bytes, _mm_add_epi8(_mm_setr_epi8(0, -128, 0, -128, 4, -128, 4, -128,  //
                                                     8, -128, 8, -128, 12, -128, 12, -128),
                                       _mm_set1_epi8(static_cast<char>(j))));
  }
  static inline Scale scale_signed(Int bytes, int j) {
    return right16_signed<8>(shuffle(bytes, _mm_add_epi8(_mm_setr_epi8(-128, 0, -128, 0, -128, 4, -128, 4,  //
                                                                       -128, 8, -128, 8, -128, 12, -128, 12),
                                                         _mm_set1_epi8(static_cast<char>(j)))));
  }

  /// total[x] += scale * dot of 4 kCount levels (0..kLargest) with q[x] from `at`.
  template <int kLargest, int kCount, int X>
  static inline void dot_scaled(const Int* levels, const int8_t* const (&q)[X], int at, Scale scale,
                                Int (&total)[X]) {
    constexpr int kFit = 32767 / (2 * kLargest * 127);  // sums of pairs that 16 bits can hold together
    static_assert(kFit >= 1);
    for (int begin = 0; begin < kCount; begin += kFit) {
      Int pairs[X];
      for (int i = begin; i < begin + kFit && i < kCount; ++i)
        for (int x = 0; x < X; ++x) {
          const Int p = _mm256_maddubs_epi16(levels[i], broadcast32(q[x] + at + 4 * i));
          pairs[x] = i == begin ? p : _mm256_add_epi16(pairs[x], p);
        }
      for (int x = 0; x < X; ++x) total[x] = _mm256_add_epi32(total[x], _mm256_madd_epi16(pairs[x], scale));
    }
  }

  template <int kLargest, int kCount, int X>
  static inline void dot(const Int* levels, const int8_t* const (&q)[X], int at, Int (&total)[X]) {
    dot_scaled<kLargest, kCount>(levels, q, at, _mm256_set1_epi16(1), total);
  }

  /// Levels -128..127: |w| * sign(a, w) keeps the first factor unsigned. a is never -128, so its negation is
  /// exact; |-128| is 128 as an unsigned byte; a pair's sum is at most 2 * 128 * 127 = 32,512.
  template <int kCount, int X>
  static inline void dot_signed(const Int* levels, const int8_t* const (&q)[X], int at, Int (&total)[X]) {
    const Int ones = _mm256_set1_epi16(1);
    for (int i = 0; i < kCount; ++i) {
      const Int magnitude = _mm256_abs_epi8(levels[i]);
      for (int x = 0; x < X; ++x) {
        const Int a = _mm256_sign_epi8(broadcast32(q[x] + at + 4 * i), levels[i]);
        total[x] = _mm256_add_epi32(total[x], _mm256_madd_epi16(_mm256_maddubs_epi16(magnitude, a), ones));
      }
    }
  }

  /// total + the products of two int16 in each lane.
  static inline Int add_products16(Int total, Int a, Int b) {
    return _mm256_add_epi32(total, _mm256_madd_epi16(a, b));
  }
};

}  // namespace
}  // namespace weir::cpu
