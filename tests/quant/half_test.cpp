// Half-precision conversions against the definition, for every f16 and for every rounding boundary.
#include "base/half.h"

#include <gtest/gtest.h>
#include <immintrin.h>

#include <bit>
#include <cmath>

namespace weir {
namespace {

/// From the definition of binary16, in double (exact).
double value_of(uint16_t h) {
  const int exponent = (h >> 10) & 31, mantissa = h & 1023;
  const double sign = h & 0x8000 ? -1 : 1;
  if (exponent == 31) return mantissa ? std::nan("") : sign * INFINITY;
  return sign * (exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25));
}

TEST(Half, EveryF16BecomesItsValue) {
  for (uint32_t i = 0; i < 65536; ++i) {
    const auto h = static_cast<uint16_t>(i);
    const float f = f16_to_f32(h);
    const double expected = value_of(h);
    ASSERT_EQ(std::signbit(f), (h & 0x8000) != 0) << i;
    if (std::isnan(expected))
      ASSERT_EQ(std::bit_cast<uint32_t>(f),
                (h & 0x8000u) << 16 | 0x7fc00000u | static_cast<uint32_t>(h & 0x3ff) << 13)
          << i;
    else
      ASSERT_EQ(f, expected) << i;
  }
}

TEST(Half, EveryF16SurvivesTheRoundTrip) {
  for (uint32_t i = 0; i < 65536; ++i) {
    const auto h = static_cast<uint16_t>(i);
    const uint16_t quiet = std::isnan(value_of(h)) ? 0x200 : 0;
    ASSERT_EQ(f32_to_f16(f16_to_f32(h)), h | quiet) << i;
  }
}

TEST(Half, BetweenNeighboursTheNearerWinsAndTiesGoToEven) {
  for (uint32_t i = 0; i < 0x7bff; ++i) {
    const auto low = static_cast<uint16_t>(i), high = static_cast<uint16_t>(i + 1);
    const auto middle = static_cast<float>((value_of(low) + value_of(high)) / 2);
    const uint16_t even = i % 2 ? high : low;
    ASSERT_EQ(f32_to_f16(middle), even) << i;
    ASSERT_EQ(f32_to_f16(-middle), even | 0x8000) << i;
    ASSERT_EQ(f32_to_f16(std::nextafter(middle, 0.0f)), low) << i;
    ASSERT_EQ(f32_to_f16(std::nextafter(middle, INFINITY)), high) << i;
  }
}

TEST(Half, OverflowUnderflowAndNaN) {
  EXPECT_EQ(f32_to_f16(65519.996f), 0x7bff);
  EXPECT_EQ(f32_to_f16(65520.0f), 0x7c00);
  EXPECT_EQ(f32_to_f16(-3e38f), 0xfc00);
  EXPECT_EQ(f32_to_f16(INFINITY), 0x7c00);
  EXPECT_EQ(f32_to_f16(0x1p-25f), 0);
  EXPECT_EQ(f32_to_f16(std::nextafter(0x1p-25f, 1.0f)), 1);
  EXPECT_EQ(f32_to_f16(-0x1p-149f), 0x8000);
  EXPECT_EQ(f32_to_f16(std::bit_cast<float>(0x7f800001u)), 0x7e00);
  EXPECT_EQ(f32_to_f16(std::bit_cast<float>(0xffabc000u)), 0xff5e);
}

TEST(Half, Bf16IsTheUpperHalfOfAFloat) {
  EXPECT_EQ(bf16_to_f32(0x3f80), 1.0f);
  EXPECT_EQ(bf16_to_f32(0xc049), -3.140625f);
  EXPECT_EQ(f32_to_bf16(-3.140625f), 0xc049);
  EXPECT_EQ(f32_to_bf16(std::bit_cast<float>(0x3f808000u)), 0x3f80);  // tie to even
  EXPECT_EQ(f32_to_bf16(std::bit_cast<float>(0x3f818000u)), 0x3f82);
  EXPECT_EQ(f32_to_bf16(std::bit_cast<float>(0x3f808001u)), 0x3f81);
  EXPECT_EQ(f32_to_bf16(std::bit_cast<float>(0x7f800001u)), 0x7fc0);
  EXPECT_EQ(f32_to_bf16(std::bit_cast<float>(0x7f7fffffu)), 0x7f80);
}

#if defined(__x86_64__)
[[gnu::target("f16c")]] uint16_t processor_f32_to_f16(float f) {
  return static_cast<uint16_t>(_cvtss_sh(f, _MM_FROUND_TO_NEAREST_INT));
}
[[gnu::target("f16c")]] float processor_f16_to_f32(uint16_t h) { return _cvtsh_ss(h); }

TEST(Half, EqualsTheProcessorsConversion) {
  if (!__builtin_cpu_supports("f16c")) GTEST_SKIP() << "no F16C";
  for (uint32_t i = 0; i < 65536; ++i) {
    const auto h = static_cast<uint16_t>(i);
    ASSERT_EQ(std::bit_cast<uint32_t>(f16_to_f32(h)), std::bit_cast<uint32_t>(processor_f16_to_f32(h))) << i;
  }
  for (uint64_t bits = 0; bits < 1ull << 32;
       bits += 4093) {  // a prime stride through all floats, NaNs included
    const float f = std::bit_cast<float>(static_cast<uint32_t>(bits));
    ASSERT_EQ(f32_to_f16(f), processor_f32_to_f16(f)) << std::hex << bits;
  }
}
#endif

}  // namespace
}  // namespace weir
