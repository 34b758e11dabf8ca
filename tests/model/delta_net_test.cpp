// The recurrence of docs/arithmetic.md before any kernel has it: how close to the formulas, free of chunking,
// and rolled back by replay.
#include "reference/delta_net.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/random.h"

namespace weir::reference {
namespace {

constexpr uint64_t seed = 7;

class DeltaNet : public testing::TestWithParam<bool> {
 protected:
  DeltaNet() {
    shape_.key_heads = 2, shape_.value_heads = 6, shape_.dim = 32, shape_.tiled = GetParam();
    weights_.conv = numbers(shape_.channels() * shape_.taps, -0.5f, 0.5f);
    weights_.a = numbers(shape_.value_heads, -2.0f, -0.01f);
    weights_.dt_bias = numbers(shape_.value_heads, -1.0f, 1.0f);
    weights_.norm = numbers(shape_.dim, 0.5f, 1.5f);
    for (int i = 0; i < 70; ++i)
      rows_.push_back({numbers(shape_.channels(), -1, 1), numbers(shape_.value_heads, -3, 3),
                       numbers(shape_.value_heads, -3, 3), numbers(shape_.value_heads * shape_.dim, -2, 2)});
  }
  std::vector<float> numbers(int count, float low, float high) {
    std::vector<float> values;
    for (int i = 0; i < count; ++i)
      values.push_back(low + (high - low) * static_cast<float>(random_unit(seed, draws_++)));
    return values;
  }
  std::span<const DeltaNetRow> rows(size_t begin, size_t end) const {
    return std::span(rows_).subspan(begin, end - begin);
  }
  /// The output of all rows, `step` at a time.
  std::vector<float> outputs(size_t step, DeltaNetState& state) const {
    std::vector<float> all;
    for (size_t i = 0; i < rows_.size(); i += step) {
      const auto some = delta_net(shape_, weights_, state, rows(i, std::min(rows_.size(), i + step)));
      all.insert(all.end(), some.begin(), some.end());
    }
    return all;
  }
  DeltaNetShape shape_;
  DeltaNetWeights weights_;
  std::vector<DeltaNetRow> rows_;
  uint64_t draws_ = 0;
};
INSTANTIATE_TEST_SUITE_P(Heads, DeltaNet, testing::Bool(),
                         [](const auto& test) { return test.param ? "tiled" : "grouped"; });

TEST_P(DeltaNet, IsCloseToTheFormulas) {
  DeltaNetState state(shape_);
  const auto got = outputs(rows_.size(), state);
  const auto exact = delta_net_exact(shape_, weights_, rows_);
  ASSERT_EQ(got.size(), exact.size());
  double worst = 0, largest = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    worst = std::max(worst, std::fabs(static_cast<double>(got[i]) - exact[i]));
    largest = std::max(largest, std::fabs(exact[i]));
  }
  EXPECT_GT(largest, 1);
  EXPECT_LT(worst, 3e-5 * largest);
}

TEST_P(DeltaNet, EveryChunkingHasTheSameBits) {
  DeltaNetState whole(shape_);
  const auto expected = outputs(rows_.size(), whole);
  for (const size_t step : {1, 2, 7, 64}) {
    DeltaNetState state(shape_);
    EXPECT_EQ(outputs(step, state), expected) << step << " rows at a time";
    EXPECT_EQ(state, whole) << step << " rows at a time";
  }
}

/// A state cannot be cut back, as keys and values can. What was committed and the inputs of the rows since
/// are kept instead, and those that stay are taken again.
TEST_P(DeltaNet, RollsBackByReplay) {
  constexpr size_t committed = 40, drafted = 8;
  DeltaNetState state(shape_);
  delta_net(shape_, weights_, state, rows(0, committed));
  for (size_t accepted = 0; accepted <= drafted; ++accepted) {
    DeltaNetState ahead = state;
    delta_net(shape_, weights_, ahead, rows(committed, committed + drafted));
    DeltaNetState rolled_back = state;
    delta_net(shape_, weights_, rolled_back, rows(committed, committed + accepted));
    DeltaNetState straight(shape_);
    delta_net(shape_, weights_, straight, rows(0, committed + accepted));
    EXPECT_EQ(rolled_back, straight) << accepted << " accepted";
    EXPECT_EQ(rolled_back == ahead, accepted == drafted);
  }
}

/// The order of additions is the arithmetic: small beside large, which another order would lose or keep.
TEST(DeltaNetSums, AreEightPartialSumsAndAButterfly) {
  float x[16], y[16];
  std::fill(std::begin(x), std::end(x), 1.0f);
  std::fill(std::begin(y), std::end(y), 0.0f);
  y[0] = 0x1p24f, y[8] = 1, y[1] = 1,
  y[9] = 1;  // 2^24 + 1 rounds to 2^24 within a partial sum, 2^24 + 2 does not
  EXPECT_EQ(dot_by_eights(x, y, 1, 16), 0x1p24f + 2);
  y[9] = 0, y[4] = 1;  // the butterfly adds sum 4 to sum 0 before sum 1 is: both ones are lost
  EXPECT_EQ(dot_by_eights(x, y, 1, 16), 0x1p24f);
  const float strided[4] = {1, 9, 2, 9};
  EXPECT_EQ(dot_by_eights(x, strided, 2, 2), 3);
}

TEST(DeltaNetShape, ValueHeadsReadTheirKeyHead) {
  DeltaNetShape shape;
  shape.key_heads = 2, shape.value_heads = 6;
  EXPECT_EQ(shape.key_head(1), 0);
  EXPECT_EQ(shape.key_head(3), 1);
  shape.tiled = true;
  EXPECT_EQ(shape.key_head(1), 1);
  EXPECT_EQ(shape.key_head(4), 0);
}

}  // namespace
}  // namespace weir::reference
