// CUDA's functions of one thread: loads and stores with cache hints, bits, packed integers, conversions and
// correctly rounded floats.
#pragma once

#include <math.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <type_traits>

// --- loads and stores: the cache hint is dropped

#define WEIR_LOAD(name) \
  template <typename T> \
  T name(const T* at) { \
    return *at;         \
  }
WEIR_LOAD(__ldg)
WEIR_LOAD(__ldcg)
WEIR_LOAD(__ldca)
WEIR_LOAD(__ldcs)
WEIR_LOAD(__ldlu)
WEIR_LOAD(__ldcv)
#undef WEIR_LOAD
#define WEIR_STORE(name)                            \
  template <typename T>                             \
  void name(T* at, std::type_identity_t<T> value) { \
    *at = value;                                    \
  }
WEIR_STORE(__stcg)
WEIR_STORE(__stcs)
WEIR_STORE(__stwb)
WEIR_STORE(__stwt)
#undef WEIR_STORE

// --- bits

inline int __popc(unsigned x) { return std::popcount(x); }
inline int __popcll(unsigned long long x) { return std::popcount(x); }
inline int __clz(int x) { return std::countl_zero(static_cast<unsigned>(x)); }
inline int __clzll(long long x) { return std::countl_zero(static_cast<unsigned long long>(x)); }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __ffsll(long long x) { return __builtin_ffsll(x); }
inline unsigned __brev(unsigned x) {
  unsigned y = 0;
  for (int i = 0; i < 32; ++i) y |= ((x >> i) & 1u) << (31 - i);
  return y;
}
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned by) {
  return static_cast<unsigned>((uint64_t{high} << 32 | low) >> (by & 31));
}
inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned by) {
  return static_cast<unsigned>((uint64_t{high} << 32 | low) << (by & 31) >> 32);
}
inline unsigned __funnelshift_rc(unsigned low, unsigned high, unsigned by) {
  return by >= 32 ? high : __funnelshift_r(low, high, by);
}
inline unsigned __funnelshift_lc(unsigned low, unsigned high, unsigned by) {
  return by >= 32 ? low : __funnelshift_l(low, high, by);
}
/// Each nibble of `selector` picks one of the eight bytes of b:a; its bit 3 spreads that byte's sign instead.
inline unsigned __byte_perm(unsigned a, unsigned b, unsigned selector) {
  const uint64_t bytes = uint64_t{b} << 32 | a;
  unsigned result = 0;
  for (int i = 0; i < 4; ++i) {
    const unsigned s = (selector >> (4 * i)) & 0xf;
    unsigned byte = static_cast<unsigned>(bytes >> (8 * (s & 7))) & 0xff;
    if (s & 8) byte = byte & 0x80 ? 0xff : 0;
    result |= byte << (8 * i);
  }
  return result;
}

// --- integers

namespace weir::emulation {
template <typename T>
constexpr T lane_of(unsigned v, int i) {
  return static_cast<T>(v >> (8 * sizeof(T) * static_cast<unsigned>(i)));
}
template <typename T, typename F>
unsigned each(unsigned a, unsigned b, F&& f) {
  unsigned result = 0;
  constexpr int bits = 8 * sizeof(T);
  for (int i = 0; i < 32 / bits; ++i)
    result |=
        static_cast<unsigned>(static_cast<std::make_unsigned_t<T>>(f(lane_of<T>(a, i), lane_of<T>(b, i))))
        << (bits * i);
  return result;
}
}  // namespace weir::emulation

inline int __dp4a(int a, int b, int c) {
  int64_t sum = c;
  for (int i = 0; i < 4; ++i)
    sum += weir::emulation::lane_of<int8_t>(static_cast<unsigned>(a), i) *
           weir::emulation::lane_of<int8_t>(static_cast<unsigned>(b), i);
  return static_cast<int>(sum);
}
inline unsigned __dp4a(unsigned a, unsigned b, unsigned c) {
  for (int i = 0; i < 4; ++i)
    c += static_cast<unsigned>(weir::emulation::lane_of<uint8_t>(a, i)) *
         weir::emulation::lane_of<uint8_t>(b, i);
  return c;
}
/// Two signed halves times the lower (upper) two signed bytes.
inline int __dp2a_lo(int halves, int bytes, int c) {
  for (int i = 0; i < 2; ++i)
    c += weir::emulation::lane_of<int16_t>(static_cast<unsigned>(halves), i) *
         weir::emulation::lane_of<int8_t>(static_cast<unsigned>(bytes), i);
  return c;
}
inline int __dp2a_hi(int halves, int bytes, int c) { return __dp2a_lo(halves, bytes >> 16, c); }
#define WEIR_PACKED(name, T, expression)                                            \
  inline unsigned name(unsigned a, unsigned b) {                                    \
    return weir::emulation::each<T>(a, b, [](int x, int y) { return expression; }); \
  }
WEIR_PACKED(__vadd4, uint8_t, x + y)
WEIR_PACKED(__vsub4, uint8_t, x - y)
WEIR_PACKED(__vadd2, uint16_t, x + y)
WEIR_PACKED(__vsub2, uint16_t, x - y)
WEIR_PACKED(__vsubss4, int8_t, std::clamp(x - y, -128, 127))
WEIR_PACKED(__vaddss4, int8_t, std::clamp(x + y, -128, 127))
WEIR_PACKED(__vmaxs4, int8_t, std::max(x, y))
WEIR_PACKED(__vmins4, int8_t, std::min(x, y))
WEIR_PACKED(__vmaxu4, uint8_t, std::max(x, y))
WEIR_PACKED(__vminu4, uint8_t, std::min(x, y))
WEIR_PACKED(__vcmpeq4, uint8_t, x == y ? 0xff : 0)
WEIR_PACKED(__vcmpne4, uint8_t, x != y ? 0xff : 0)
#undef WEIR_PACKED
inline int __mulhi(int a, int b) { return static_cast<int>(int64_t{a} * b >> 32); }
inline unsigned __umulhi(unsigned a, unsigned b) { return static_cast<unsigned>(uint64_t{a} * b >> 32); }
inline int __mul24(int a, int b) { return (a << 8 >> 8) * (b << 8 >> 8); }

// min and max as CUDA overloads them; of floats they pass over a NaN.
#define WEIR_MIN_MAX(T)                            \
  inline T min(T a, T b) { return b < a ? b : a; } \
  inline T max(T a, T b) { return a < b ? b : a; }
WEIR_MIN_MAX(int)
WEIR_MIN_MAX(unsigned)
WEIR_MIN_MAX(long)
WEIR_MIN_MAX(unsigned long)
WEIR_MIN_MAX(long long)
WEIR_MIN_MAX(unsigned long long)
#undef WEIR_MIN_MAX
inline unsigned min(int a, unsigned b) { return min(static_cast<unsigned>(a), b); }
inline unsigned min(unsigned a, int b) { return min(a, static_cast<unsigned>(b)); }
inline unsigned max(int a, unsigned b) { return max(static_cast<unsigned>(a), b); }
inline unsigned max(unsigned a, int b) { return max(a, static_cast<unsigned>(b)); }
inline float min(float a, float b) { return fminf(a, b); }
inline float max(float a, float b) { return fmaxf(a, b); }
inline double min(double a, double b) { return ::fmin(a, b); }
inline double max(double a, double b) { return ::fmax(a, b); }

// --- floats

inline int __float_as_int(float x) { return std::bit_cast<int>(x); }
inline unsigned __float_as_uint(float x) { return std::bit_cast<unsigned>(x); }
inline float __int_as_float(int x) { return std::bit_cast<float>(x); }
inline float __uint_as_float(unsigned x) { return std::bit_cast<float>(x); }
inline long long __double_as_longlong(double x) { return std::bit_cast<long long>(x); }
inline double __longlong_as_double(long long x) { return std::bit_cast<double>(x); }

inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __frcp_rn(float a) { return 1.0f / a; }
inline float __fsqrt_rn(float a) { return std::sqrt(a); }
inline float __fmaf_rn(float a, float b, float c) { return std::fma(a, b, c); }
inline float __saturatef(float x) { return x > 0 ? std::min(x, 1.0f) : 0.0f; }

/// Conversions saturate, and NaN gives 0, as the hardware's do.
inline int __float2int_rn(float x) {
  if (std::isnan(x)) return 0;
  const double y = std::nearbyint(static_cast<double>(x));
  return static_cast<int>(std::clamp(y, -2147483648.0, 2147483647.0));
}
inline int __float2int_rz(float x) {
  return std::isnan(x) ? 0
                       : static_cast<int>(std::clamp(static_cast<double>(x), -2147483648.0, 2147483647.0));
}
inline unsigned __float2uint_rn(float x) {
  return std::isnan(x)
             ? 0
             : static_cast<unsigned>(std::clamp(std::nearbyint(static_cast<double>(x)), 0.0, 4294967295.0));
}
inline float __int2float_rn(int x) { return static_cast<float>(x); }
inline float __uint2float_rn(unsigned x) { return static_cast<float>(x); }
inline float __ll2float_rn(long long x) { return static_cast<float>(x); }

// Approximate on a GPU: close here, not equal.
inline float __expf(float x) { return std::exp(x); }
inline float __exp2f(float x) { return std::exp2(x); }
inline float __logf(float x) { return std::log(x); }
inline float __fdividef(float a, float b) { return a / b; }
inline float rsqrtf(float x) { return 1.0f / std::sqrt(x); }
inline float __frsqrt_rn(float x) { return static_cast<float>(1.0 / std::sqrt(static_cast<double>(x))); }
