#include "base/stats.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace weir {
namespace {

/// n, n - 1, ..., 1
std::vector<double> ramp(int n) {
  std::vector<double> values;
  for (int i = n; i > 0; --i) values.push_back(i);
  return values;
}

TEST(Stats, MedianAndMean) {
  EXPECT_DOUBLE_EQ(median(std::vector<double>{3, 1, 2}), 2);
  EXPECT_DOUBLE_EQ(median(std::vector<double>{4, 1, 3, 2}), 2.5);
  EXPECT_DOUBLE_EQ(mean(std::vector<double>{4, 1, 3, 2}), 2.5);
  EXPECT_DOUBLE_EQ(median(std::vector<double>{7}), 7);
  EXPECT_TRUE(std::isnan(median({})));
  EXPECT_TRUE(std::isnan(mean({})));
}

TEST(Stats, QuantilesInterpolateBetweenOrderStatistics) {
  const std::vector<double> values = ramp(5);
  EXPECT_DOUBLE_EQ(quantile(values, 0), 1);
  EXPECT_DOUBLE_EQ(quantile(values, 0.25), 2);
  EXPECT_DOUBLE_EQ(quantile(values, 0.9), 4.6);
  EXPECT_DOUBLE_EQ(quantile(values, 1), 5);
  EXPECT_DOUBLE_EQ(values[0], 5) << "the input is left alone";
}

TEST(Stats, RatioOfNothingIsZero) {
  EXPECT_DOUBLE_EQ(ratio(1, 4), 0.25);
  EXPECT_DOUBLE_EQ(ratio(1, 0), 0);
}

TEST(Stats, SignTestIsExact) {
  EXPECT_DOUBLE_EQ(sign_test_p(4, 0), 0.125);
  EXPECT_DOUBLE_EQ(sign_test_p(0, 6), 2 / 64.0);
  EXPECT_DOUBLE_EQ(sign_test_p(1, 7), 2 * 9 / 256.0);
  EXPECT_DOUBLE_EQ(sign_test_p(3, 3), 1);
  EXPECT_DOUBLE_EQ(sign_test_p(0, 0), 1);
}

TEST(Stats, IntervalNeedsSixValuesFor95Percent) {
  EXPECT_FALSE(median_interval(ramp(4)));
  EXPECT_FALSE(median_interval(ramp(5)));
  EXPECT_FALSE(median_interval({}));
  EXPECT_TRUE(median_interval(ramp(5), 0.9));
  EXPECT_TRUE(median_interval(ramp(6)));
}

TEST(Stats, IntervalHasItsTextbookCoverage) {
  struct Row {
    int n;
    double low, high, coverage;
  };
  for (const Row& row : {Row{6, 1, 6, .969}, Row{8, 1, 8, .992}, Row{12, 3, 10, .961}, Row{16, 4, 13, .979},
                         Row{20, 6, 15, .959}}) {
    const auto interval = median_interval(ramp(row.n));
    ASSERT_TRUE(interval) << row.n;
    EXPECT_EQ(interval->low, row.low) << row.n;
    EXPECT_EQ(interval->high, row.high) << row.n;
    EXPECT_NEAR(interval->coverage, row.coverage, 0.0005) << row.n;
  }
}

TEST(Stats, IntervalHoldsItsLevelForManyValues) {
  const auto interval = median_interval(ramp(301), 0.99);
  ASSERT_TRUE(interval);
  EXPECT_GE(interval->coverage, 0.99);
  EXPECT_LT(interval->coverage, 0.993);
  EXPECT_DOUBLE_EQ(interval->low + interval->high, 302) << "symmetric in rank";
}

}  // namespace
}  // namespace weir
