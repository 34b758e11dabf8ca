// Half precision as cuda_fp16.h has it: conversions are exact or correctly rounded (base/half.h); arithmetic
// is done in float or double and rounded once.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "base/half.h"
#include "emulation/include/vector_types.h"

struct __half_raw {
  unsigned short x;
};
struct alignas(2) __half {
  unsigned short bits;
  __half() = default;
  __half(__half_raw raw) : bits(raw.x) {}
  __half(float x) : bits(weir::f32_to_f16(x)) {}
  operator float() const { return weir::f16_to_f32(bits); }
  operator __half_raw() const { return {bits}; }
};
struct alignas(4) __half2 {
  __half x, y;
  __half2() = default;
  __half2(__half a, __half b) : x(a), y(b) {}
};
using half = __half;
using half2 = __half2;

inline __half __ushort_as_half(unsigned short bits) { return __half(__half_raw{bits}); }
inline __half __short_as_half(short bits) { return __ushort_as_half(static_cast<unsigned short>(bits)); }
inline unsigned short __half_as_ushort(__half h) { return h.bits; }
inline short __half_as_short(__half h) { return static_cast<short>(h.bits); }
inline float __half2float(__half h) { return weir::f16_to_f32(h.bits); }
inline __half __float2half(float x) { return __half(x); }
inline __half __float2half_rn(float x) { return __half(x); }

inline __half2 __halves2half2(__half a, __half b) { return {a, b}; }
inline __half2 make_half2(__half a, __half b) { return {a, b}; }
inline __half2 __half2half2(__half a) { return {a, a}; }
inline __half __low2half(__half2 h) { return h.x; }
inline __half __high2half(__half2 h) { return h.y; }
inline float __low2float(__half2 h) { return __half2float(h.x); }
inline float __high2float(__half2 h) { return __half2float(h.y); }
inline float2 __half22float2(__half2 h) { return {__half2float(h.x), __half2float(h.y)}; }
inline __half2 __floats2half2_rn(float a, float b) { return {__half(a), __half(b)}; }
inline __half2 __float22half2_rn(float2 v) { return {__half(v.x), __half(v.y)}; }
inline __half2 __float2half2_rn(float a) { return {__half(a), __half(a)}; }

// Sums and products of halves in float round the same as in one step: 24 >= 2 * 11 + 2.
inline __half __hadd(__half a, __half b) { return __half(__half2float(a) + __half2float(b)); }
inline __half __hsub(__half a, __half b) { return __half(__half2float(a) - __half2float(b)); }
inline __half __hmul(__half a, __half b) { return __half(__half2float(a) * __half2float(b)); }
inline __half __hdiv(__half a, __half b) { return __half(__half2float(a) / __half2float(b)); }
/// a * b is exact in double; the sum is rounded to odd there, so that the second rounding is the only one.
inline __half __hfma(__half a, __half b, __half c) {
  const double p = static_cast<double>(__half2float(a)) * __half2float(b), q = __half2float(c), sum = p + q;
  const double back = sum - p, lost = (p - (sum - back)) + (q - back);
  float f = static_cast<float>(sum);
  if (std::isfinite(sum) && (static_cast<double>(f) != sum || lost != 0)) {
    const double rest = (sum - static_cast<double>(f)) + lost;
    uint32_t bits;
    memcpy(&bits, &f, 4);
    if (rest != 0 && !(bits & 1)) bits += (rest > 0) == (f > 0 || (f == 0 && rest > 0)) ? 1 : -1u;
    memcpy(&f, &bits, 4);
  }
  return __half(f);
}
inline __half2 __hadd2(__half2 a, __half2 b) { return {__hadd(a.x, b.x), __hadd(a.y, b.y)}; }
inline __half2 __hsub2(__half2 a, __half2 b) { return {__hsub(a.x, b.x), __hsub(a.y, b.y)}; }
inline __half2 __hmul2(__half2 a, __half2 b) { return {__hmul(a.x, b.x), __hmul(a.y, b.y)}; }
inline __half2 __hfma2(__half2 a, __half2 b, __half2 c) {
  return {__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)};
}
