// Rotary tables: the angles' definition, factors, and tables grown by blocks.
#include "base/rope_table.h"

#include <gtest/gtest.h>

#include <vector>

namespace weir {
namespace {

TEST(RopeTable, HoldsTheCosineAndSineOfPositionTimesFrequency) {
  const RopeTableSpec spec{.n_rot = 4, .base = 100.0};
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

TEST(RopeTable, FactorsDivideTheFrequencies) {
  const float factors[] = {1.0f, 2.0f};
  std::vector<float> cos(2), sin(2), plain_cos(2), plain_sin(2);
  fill_rope_table({.n_rot = 4, .base = 100.0, .factors = factors}, 10, 1, cos.data(), sin.data());
  fill_rope_table({.n_rot = 4, .base = 100.0}, 5, 1, plain_cos.data(), plain_sin.data());
  EXPECT_EQ(cos[1], plain_cos[1]) << "half the frequency at twice the position";
  EXPECT_EQ(sin[1], plain_sin[1]);
  EXPECT_NE(cos[0], plain_cos[0]);
}

TEST(RopeTable, ATableGrownByBlocksEqualsOneMadeAtOnce) {
  const RopeTableSpec spec{.n_rot = 128, .base = 1e6};
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
