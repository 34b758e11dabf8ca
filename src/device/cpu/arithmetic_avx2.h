// The AVX2 forms of base/arithmetic.h: the same operations in the same order on eight floats, so the same
// bits. For *_avx2.cpp files only. Where the plain form selects, this one computes both sides and blends.
#pragma once

#include <immintrin.h>

#include "base/arithmetic.h"

namespace weir::cpu {

#define WEIR_AVX2 [[gnu::always_inline]] static inline

WEIR_AVX2 __m256 abs8(__m256 x) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), x); }
WEIR_AVX2 __m256 negative_abs8(__m256 x) { return _mm256_or_ps(_mm256_set1_ps(-0.0f), x); }

WEIR_AVX2 __m256 exp8(__m256 x) {
  using namespace arithmetic;
  x = _mm256_min_ps(_mm256_set1_ps(exp_high), x);  // the second operand where either is NaN
  x = _mm256_max_ps(_mm256_set1_ps(exp_low), x);
  const __m256 magic = _mm256_set1_ps(round_magic);
  const __m256 t = _mm256_fmadd_ps(x, _mm256_set1_ps(log2e), magic);
  const __m256 n = _mm256_sub_ps(t, magic);
  __m256 r = _mm256_fmadd_ps(n, _mm256_set1_ps(-ln2_high), x);
  r = _mm256_fmadd_ps(n, _mm256_set1_ps(-ln2_low), r);
  __m256 p = _mm256_fmadd_ps(_mm256_set1_ps(exp6), r, _mm256_set1_ps(exp5));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(exp4));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(exp3));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(exp2));
  const __m256 y = _mm256_add_ps(_mm256_set1_ps(1.0f), _mm256_fmadd_ps(_mm256_mul_ps(r, r), p, r));
  const __m256i k = _mm256_sub_epi32(_mm256_castps_si256(t), _mm256_castps_si256(magic));
  const __m256i half = _mm256_srai_epi32(k, 1);
  const __m256i bias = _mm256_set1_epi32(127);
  const __m256i s0 = _mm256_slli_epi32(_mm256_add_epi32(half, bias), 23);
  const __m256i s1 = _mm256_slli_epi32(_mm256_add_epi32(_mm256_sub_epi32(k, half), bias), 23);
  return _mm256_mul_ps(_mm256_mul_ps(y, _mm256_castsi256_ps(s0)), _mm256_castsi256_ps(s1));
}

/// Lanes where x < 0 (not -0, not NaN).
WEIR_AVX2 __m256 below_zero8(__m256 x) { return _mm256_cmp_ps(x, _mm256_setzero_ps(), _CMP_LT_OQ); }

WEIR_AVX2 __m256 sigmoid8(__m256 x) {
  const __m256 one = _mm256_set1_ps(1.0f);
  const __m256 e = exp8(negative_abs8(x));
  return _mm256_div_ps(_mm256_blendv_ps(one, e, below_zero8(x)), _mm256_add_ps(one, e));
}

WEIR_AVX2 __m256 silu8(__m256 x) {
  const __m256 e = exp8(negative_abs8(x));
  return _mm256_div_ps(_mm256_blendv_ps(x, _mm256_mul_ps(x, e), below_zero8(x)),
                       _mm256_add_ps(_mm256_set1_ps(1.0f), e));
}

WEIR_AVX2 __m256 tanh8(__m256 x) {
  using namespace arithmetic;
  const __m256 one = _mm256_set1_ps(1.0f), sign = _mm256_and_ps(_mm256_set1_ps(-0.0f), x);
  const __m256 a = abs8(x), z = _mm256_mul_ps(a, a);
  __m256 q = _mm256_fmadd_ps(_mm256_set1_ps(tanh11), z, _mm256_set1_ps(tanh9));
  q = _mm256_fmadd_ps(q, z, _mm256_set1_ps(tanh7));
  q = _mm256_fmadd_ps(q, z, _mm256_set1_ps(tanh5));
  q = _mm256_fmadd_ps(q, z, _mm256_set1_ps(tanh3));
  const __m256 small = _mm256_fmadd_ps(_mm256_mul_ps(a, z), q, a);
  const __m256 e = _mm256_add_ps(exp8(_mm256_add_ps(a, a)), one);
  const __m256 large = _mm256_sub_ps(one, _mm256_div_ps(_mm256_set1_ps(2.0f), e));
  const __m256 is_small = _mm256_cmp_ps(a, _mm256_set1_ps(tanh_small), _CMP_LT_OQ);
  return _mm256_or_ps(abs8(_mm256_blendv_ps(large, small, is_small)), sign);
}

WEIR_AVX2 __m256 softplus8(__m256 x) {
  using namespace arithmetic;
  const __m256 e = exp8(negative_abs8(x));
  const __m256 s = _mm256_div_ps(_mm256_add_ps(e, e), _mm256_add_ps(_mm256_set1_ps(2.0f), e));
  const __m256 z = _mm256_mul_ps(s, s);
  __m256 q = _mm256_fmadd_ps(_mm256_set1_ps(log11), z, _mm256_set1_ps(log9));
  q = _mm256_fmadd_ps(q, z, _mm256_set1_ps(log7));
  q = _mm256_fmadd_ps(q, z, _mm256_set1_ps(log5));
  q = _mm256_fmadd_ps(q, z, _mm256_set1_ps(log3));
  const __m256 log1p = _mm256_fmadd_ps(_mm256_mul_ps(s, z), q, s);
  return _mm256_add_ps(_mm256_blendv_ps(x, _mm256_setzero_ps(), below_zero8(x)), log1p);
}

}  // namespace weir::cpu
