// Rotary tables: the angles' definition, the magnitude, and tables grown by blocks.
#include "base/rope_table.h"

#include <gtest/gtest.h>

#include <vector>

namespace weir {
namespace {

TEST(RopeTable, HoldsTheCosineAndSineOfPositionTimesFrequency) {
  const std::vector<double> frequencies = plain_rope_frequencies(4, 100.0);
  const RopeTableSpec spec{frequencies};
  std::vector<float> cos(3 * 2), sin(3 * 2);
  fill_rope_table(spec, 0, 3, cos.data(), sin.data());
  // frequencies 1 and 100^(-1/2) = 0.1
  const float expected_cos[] = {1, 1, 0.54030231f, 0.99500417f, -0.41614684f, 0.98006658f};
  const float expected_sin[] = {0, 0, 0.84147098f, 0.09983342f, 0.90929743f, 0.19866933f};
  for (size_t i = 0; i < 6; ++i) {
    EXPECT_FLOAT_EQ(cos[i], expected_cos[i]) << i;
    EXPECT_FLOAT_EQ(sin[i], expected_sin[i]) << i;
  }
}

TEST(RopeTable, TheMagnitudeMultipliesBoth) {
  const double frequency[] = {0.25};
  float cos, sin;
  fill_rope_table({frequency, 1.5}, 4, 1, &cos, &sin);
  EXPECT_FLOAT_EQ(cos, 1.5f * 0.54030231f);
  EXPECT_FLOAT_EQ(sin, 1.5f * 0.84147098f);
}

TEST(RopeTable, ATableGrownByBlocksEqualsOneMadeAtOnce) {
  const std::vector<double> frequencies = plain_rope_frequencies(128, 1e6);
  const RopeTableSpec spec{frequencies};
  const int positions = 100'000, pairs = 64, tail = 300;
  std::vector<float> cos(static_cast<size_t>(tail) * pairs), sin(cos.size()), block_cos(cos.size()),
      block_sin(cos.size());
  fill_rope_table(spec, positions, tail, cos.data(), sin.data());
  for (int p = 0; p < tail; p += 100)
    fill_rope_table(spec, positions + p, 100, block_cos.data() + p * pairs, block_sin.data() + p * pairs);
  EXPECT_EQ(cos, block_cos);
  EXPECT_EQ(sin, block_sin);
}

}  // namespace
}  // namespace weir
