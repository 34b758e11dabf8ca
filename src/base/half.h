// Half-precision and bfloat16 conversions in plain integers: exact, ties to even, subnormals, infinities and
// NaN included, equal bit for bit to the processor's own conversions in their default mode. Knows no format
// and no instruction set. Always inlined, so that a unit compiled for a newer processor never lends its copy
// to another unit.
#pragma once

#include <cstdint>

#include "base/both_sides.h"

namespace weir {

/// Exact. A NaN keeps its sign and payload and becomes quiet.
[[gnu::always_inline]] WEIR_BOTH_SIDES inline float f16_to_f32(uint16_t half) {
  const uint32_t sign = (half & 0x8000u) << 16;
  const uint32_t exponent = (half >> 10) & 31u, mantissa = half & 0x3ffu;
  if (exponent == 0) {  // zero or subnormal: mantissa * 2^-24
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
    return __builtin_bit_cast(float, __builtin_bit_cast(uint32_t, magnitude) | sign);
  }
  uint32_t bits = sign | (exponent + 112) << 23 | mantissa << 13;
  if (exponent == 31) bits = sign | 0x7f800000u | mantissa << 13 | (mantissa ? 0x00400000u : 0u);
  return __builtin_bit_cast(float, bits);
}

/// Rounds to nearest, ties to even; magnitudes from 65520 become infinity. A NaN keeps its sign and the upper
/// ten bits of its payload and becomes quiet.
[[gnu::always_inline]] WEIR_BOTH_SIDES inline uint16_t f32_to_f16(float value) {
  const uint32_t bits = __builtin_bit_cast(uint32_t, value);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  uint32_t a = bits & 0x7fffffffu;
  if (a > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u | ((a >> 13) & 0x3ffu));
  if (a >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7c00u);
  if (a >= 0x38800000u) {  // normal in f16: drop 13 bits of mantissa
    a += 0xfffu + ((a >> 13) & 1u);
    return static_cast<uint16_t>(sign | (a - 0x38000000u) >> 13);
  }
  if (a <= 0x33000000u) return static_cast<uint16_t>(sign);  // at most half of the smallest subnormal
  const uint32_t shift = 126 - (a >> 23);                    // 14..24
  const uint32_t mantissa = (a & 0x7fffffu) | 0x800000u;
  const uint32_t rest = mantissa & ((1u << shift) - 1), half = 1u << (shift - 1);
  uint32_t rounded = mantissa >> shift;
  if (rest > half || (rest == half && (rounded & 1u))) ++rounded;
  return static_cast<uint16_t>(sign | rounded);
}

/// Exact: bf16 is the upper half of a float.
[[gnu::always_inline]] WEIR_BOTH_SIDES inline float bf16_to_f32(uint16_t bits) {
  return __builtin_bit_cast(float, static_cast<uint32_t>(bits) << 16);
}

/// Rounds to nearest, ties to even. A NaN keeps its sign and upper payload and becomes quiet.
[[gnu::always_inline]] WEIR_BOTH_SIDES inline uint16_t f32_to_bf16(float value) {
  const uint32_t bits = __builtin_bit_cast(uint32_t, value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((bits >> 16) | 0x40u);
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

}  // namespace weir
