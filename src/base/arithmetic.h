// The elementary functions of weir's one arithmetic (docs/arithmetic.md), in float, from IEEE operations and
// explicit fma alone, so that the host, its vector forms (device/cpu/arithmetic_avx2.h) and a GPU give the
// same bits. Compiled for several instruction sets: everything here is internal to its translation unit and
// always inlined, so that the linker can never take a vector unit's copy for a plain one. Bounds are measured
// densely by tests/base/arithmetic_test.cpp. NaN gives NaN (its payload is unspecified).
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#if defined(__CUDACC__)
#define WEIR_ARITHMETIC static __host__ __device__ __forceinline__
#else
#define WEIR_ARITHMETIC [[gnu::always_inline]] static inline
#endif

namespace weir {

/// Raised by every change that can change a bit of a result: anything in this file, an order of summation, a
/// rounding of activations, a chunk or segment size. Goldens and recorded hashes carry it.
inline constexpr int arithmetic_version = 1;

/// Coefficients by tools/fit_arithmetic.py, shared with the vector forms.
namespace arithmetic {
inline constexpr float log2e = 0x1.715476p+0f;
inline constexpr float ln2_high = 0x1.63p-1f;  ///< 9 bits: n * ln2_high is exact
inline constexpr float ln2_low = -0x1.bd0106p-13f;
inline constexpr float round_magic = 0x1.8p+23f;  ///< adding it leaves the nearest integer in the low bits
inline constexpr float exp_high = 89.0f, exp_low = -105.0f;  ///< past these, inf and 0
inline constexpr float exp2 = 0x1.fffffcp-2f, exp3 = 0x1.555492p-3f, exp4 = 0x1.5558b8p-5f,
                       exp5 = 0x1.1239aap-7f, exp6 = 0x1.6a4508p-10f;
inline constexpr float tanh_small = 0.625f;
inline constexpr float tanh3 = -0x1.555532p-2f, tanh5 = 0x1.1106f6p-3f, tanh7 = -0x1.b835a4p-5f,
                       tanh9 = 0x1.51f8cep-6f, tanh11 = -0x1.750ce4p-8f;
inline constexpr float log3 = 0x1.555558p-4f, log5 = 0x1.9996d8p-7f, log7 = 0x1.250512p-9f,
                       log9 = 0x1.b72b50p-12f, log11 = 0x1.f08d68p-14f;
}  // namespace arithmetic

WEIR_ARITHMETIC float exp_f32(float x) {
  using namespace arithmetic;
  x = exp_high < x ? exp_high : x;  // written so that NaN stays
  x = exp_low > x ? exp_low : x;
  const float t = std::fma(x, log2e, round_magic);
  const float n = t - round_magic;
  float r = std::fma(n, -ln2_high, x);
  r = std::fma(n, -ln2_low, r);
  float p = std::fma(exp6, r, exp5);
  p = std::fma(p, r, exp4);
  p = std::fma(p, r, exp3);
  p = std::fma(p, r, exp2);
  const float y = 1.0f + std::fma(r * r, p, r);
  // 2^n in two exact factors: the second product rounds once where the result is subnormal or infinite.
  const int32_t k = std::bit_cast<int32_t>(t) - std::bit_cast<int32_t>(round_magic);
  const int32_t half = k >> 1;
  const float s0 = std::bit_cast<float>(static_cast<uint32_t>(half + 127) << 23);
  const float s1 = std::bit_cast<float>(static_cast<uint32_t>(k - half + 127) << 23);
  return (y * s0) * s1;
}

/// 1 / (1 + exp(-x)), from exp(-|x|) so that neither side overflows and the left tail underflows gradually.
WEIR_ARITHMETIC float sigmoid_f32(float x) {
  const float e = exp_f32(-std::fabs(x));
  return (x < 0 ? e : 1.0f) / (1.0f + e);
}

/// x * sigmoid(x), with one rounding fewer. -inf gives NaN: a non-finite activation is to be reported. Below
/// x = -87.3, where exp(x) is subnormal, the error is absolute: at most 100 * 2^-149.
WEIR_ARITHMETIC float silu_f32(float x) {
  const float e = exp_f32(-std::fabs(x));
  return (x < 0 ? x * e : x) / (1.0f + e);
}

WEIR_ARITHMETIC float tanh_f32(float x) {
  using namespace arithmetic;
  const float a = std::fabs(x);
  const float z = a * a;
  float q = std::fma(tanh11, z, tanh9);
  q = std::fma(q, z, tanh7);
  q = std::fma(q, z, tanh5);
  q = std::fma(q, z, tanh3);
  const float small = std::fma(a * z, q, a);
  const float large = 1.0f - 2.0f / (exp_f32(a + a) + 1.0f);
  return std::copysign(a < tanh_small ? small : large, x);
}

/// log(1 + exp(x)) = max(x, 0) + log1p(exp(-|x|)), the logarithm as 2 atanh(e / (2 + e)).
WEIR_ARITHMETIC float softplus_f32(float x) {
  using namespace arithmetic;
  const float e = exp_f32(-std::fabs(x));
  const float s = (e + e) / (2.0f + e);
  const float z = s * s;
  float q = std::fma(log11, z, log9);
  q = std::fma(q, z, log7);
  q = std::fma(q, z, log5);
  q = std::fma(q, z, log3);
  const float log1p = std::fma(s * z, q, s);
  return (x < 0 ? 0.0f : x) + log1p;
}

}  // namespace weir
