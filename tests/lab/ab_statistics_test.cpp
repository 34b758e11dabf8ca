// The tests and estimates on inputs whose answers are in any table, and their false alarms by simulation.
#include "lab/ab/statistics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "lab/ab/pairs.h"
#include "lab/ab/schedule.h"
#include "lab/ab/synthetic.h"

namespace weir::lab::ab {
namespace {

using Values = std::vector<double>;

TEST(AbStatistics, StudentsTAgreesWithTheTables) {
  struct Row {
    int df;
    double t, p;
  };
  for (const Row& row :
       {Row{1, 12.7062, .05}, Row{2, 4.302653, .05}, Row{3, 5.840909, .01}, Row{4, 2.776445, .05},
        Row{5, 4.032143, .01}, Row{10, 2.228139, .05}, Row{10, 3.169273, .01}, Row{11, 3.105807, .01},
        Row{30, 2.749996, .01}, Row{60, 1.670649, .10}}) {
    EXPECT_NEAR(student_t_p(row.t, row.df), row.p, 2e-7) << "t " << row.t << " df " << row.df;
    EXPECT_DOUBLE_EQ(student_t_p(-row.t, row.df), student_t_p(row.t, row.df));
  }
  EXPECT_DOUBLE_EQ(student_t_p(0, 7), 1);
  EXPECT_LT(student_t_p(1e6, 9), 1e-12);
}

TEST(AbStatistics, QuantilesAndIntervalsOfStudentsT) {
  EXPECT_NEAR(student_t_quantile(.95, 1), 12.7062, 1e-3);
  EXPECT_NEAR(student_t_quantile(.95, 11), 2.200985, 1e-6);
  EXPECT_NEAR(student_t_quantile(.99, 5), 4.032143, 1e-6);
  const auto i = mean_interval(Values{1, 2, 3, 4, 5}, .95);  // 3 +- 2.776445 * sqrt(.5)
  ASSERT_TRUE(i);
  EXPECT_NEAR(i->low, 3 - 1.963243, 1e-5);
  EXPECT_NEAR(i->high, 3 + 1.963243, 1e-5);
  EXPECT_FALSE(mean_interval(Values{1}, .95));
}

TEST(AbStatistics, SignsThatCouldAsWellBeOthers) {
  EXPECT_DOUBLE_EQ(sign_flip_p(Values{1, 2, 3, 4, 5, 6}), 2.0 / 64) << "only all of one sign are as far";
  EXPECT_DOUBLE_EQ(sign_flip_p(Values{1, 1, 1, -1}), 10.0 / 16) << "sums of 2 and more: 1, 4, 4, 1 of 16";
  EXPECT_DOUBLE_EQ(sign_flip_p(Values{.1, .1, .1, .1, .1, .1, -.2}), 46.0 / 128)
      << "equal sums count, however they round";
  EXPECT_DOUBLE_EQ(sign_flip_p(Values{0, 0, 0}), 1);
  EXPECT_DOUBLE_EQ(sign_flip_p(Values{}), 1);
  const Values many(most_flipped + 1, .1);
  EXPECT_DOUBLE_EQ(sign_flip_p(many), mean_is_zero_p(many)) << "Student's t beyond";
}

TEST(AbStatistics, MeanAgainstZero) {
  EXPECT_NEAR(mean_is_zero_p(Values{1, 2, 3, 4, 5}), 0.0132356, 1e-6);  // t = 3 sqrt 2, df 4
  EXPECT_DOUBLE_EQ(mean_is_zero_p(Values{-1, 1, -1, 1}), 1);
  EXPECT_DOUBLE_EQ(mean_is_zero_p(Values{0, 0, 0}), 1) << "equal readings";
  EXPECT_DOUBLE_EQ(mean_is_zero_p(Values{.1, .1, .1}), 0) << "a difference without any spread";
  EXPECT_DOUBLE_EQ(mean_is_zero_p(Values{5}), 1);
  EXPECT_DOUBLE_EQ(mean_is_zero_p({}), 1);
}

TEST(AbStatistics, TwoMeans) {
  EXPECT_NEAR(means_are_equal_p(Values{1, 2, 3}, Values{3, 4, 5}), 0.0704840, 1e-6);  // t = sqrt 6, df 4
  EXPECT_DOUBLE_EQ(means_are_equal_p(Values{1, 2}, Values{2, 1}), 1);
  EXPECT_DOUBLE_EQ(means_are_equal_p(Values{1}, Values{2, 1}), 1);
}

TEST(AbStatistics, Trend) {
  EXPECT_DOUBLE_EQ(slope(Values{1, 2, 2, 4}), 0.9);
  EXPECT_NEAR(no_trend_p(Values{1, 2, 2, 4}), 0.0766195, 1e-6);  // t = 3.40168, df 2
  EXPECT_DOUBLE_EQ(no_trend_p(Values{.3, .3, .3, .3}), 1) << "the rounding of a constant is no trend";
  EXPECT_DOUBLE_EQ(no_trend_p(Values{1, 2, 3, 4}), 0);
  EXPECT_DOUBLE_EQ(no_trend_p(Values{1, 2}), 1);
}

TEST(AbStatistics, TestsAlarmAtTheirLevel) {
  // 4,000 experiments without anything to find; a share of 1 % is known to 0.16 %.
  const int experiments = 4000;
  int zero = 0, equal = 0, trend = 0;
  for (int i = 0; i < experiments; ++i) {
    const auto noise = synthetic_log_times(blocked_order(6), {0, .005, {}, static_cast<uint64_t>(i)});
    const std::span<const double> all(noise);
    zero += mean_is_zero_p(all.first(6)) < .01 ? 1 : 0;
    equal += means_are_equal_p(all.first(6), all.last(6)) < .01 ? 1 : 0;
    trend += no_trend_p(all) < .01 ? 1 : 0;
  }
  for (const int alarms : {zero, equal, trend}) EXPECT_NEAR(alarms, experiments / 100, 22) << alarms;
}

TEST(AbPairs, RatioIsAboveOneWhereBIsBetter) {
  Experiment e = synthetic_experiment(6, 1, {0, 0, {}, 1});
  for (auto& o : e.observations) o.value = o.run.arm == Side::a ? 40 : 20;
  for (const bool higher : {false, true}) {
    e.design.higher_is_better = higher;
    for (const auto& pair : complete_pairs(e, RunKind::pair))
      EXPECT_DOUBLE_EQ(pair.log_ratio, higher ? -std::log(2) : std::log(2));
  }
}

TEST(AbPairs, OpeningsAreTheGeometricMeansOfTheirRuns) {
  Experiment e = synthetic_experiment(synthetic_design(6, 1, 2), {0, 0, {}, 1});
  int run = 0;
  for (auto& o : e.observations) o.value = o.run.arm == Side::a ? (run++ % 2 == 0 ? 10 : 40) : 5;
  for (const auto& pair : complete_pairs(e, RunKind::pair)) EXPECT_NEAR(pair.log_ratio, std::log(4), 1e-12);
}

TEST(AbPairs, WhichRanFirstAndWhatIsIncomplete) {
  Experiment e = synthetic_experiment(synthetic_design(6, 1, 2), {});
  e.observations.pop_back();
  const auto last = e.observations.back().run;
  const auto pairs = complete_pairs(e, last.kind);
  for (const auto& pair : pairs) {
    EXPECT_EQ(pair.a.size(), 2u);
    EXPECT_LT(pair.first == Side::a ? pair.a.back() : pair.b.back(),
              pair.first == Side::a ? pair.b.front() : pair.a.front());
    EXPECT_NE(pair.a.front()->run.pair, last.pair) << "a run is missing";
  }
  EXPECT_EQ(static_cast<int>(pairs.size()), (last.kind == RunKind::pair ? 6 : null_pairs(6)) - 1);
}

TEST(AbPairs, EstimateIsMeanIntervalAndWins) {
  const Values ratios{.01, .02, .03, .04, .05, .06, .07, .08, .09, .10, -.01, 0};
  const auto e = estimate(ratios);
  ASSERT_TRUE(e);
  EXPECT_DOUBLE_EQ(e->log_ratio, .045);
  EXPECT_NEAR(e->high - .045, 2.200985 * std::sqrt(.0143 / 11 / 12), 1e-8);
  EXPECT_NEAR(e->low - .045, -(e->high - .045), 1e-12);
  EXPECT_EQ(e->wins, 10);
  EXPECT_EQ(e->losses, 1);
  EXPECT_EQ(e->ties, 1);
  EXPECT_NEAR(e->p, sign_flip_p(ratios), 1e-12);
  EXPECT_EQ(e->direction(), 1);
  EXPECT_FALSE(estimate(Values{1, 1, 1, 1, 1}));
}

TEST(AbPairs, BothTestsMustAgree) {
  // Two far values of seven: the interval leaves zero out only where the spread is small, and one sign
  // against six is 2 of 128 at best.
  const Values mixed{.01, .011, .009, .0105, .0095, .01, -.0001};
  const Estimate e = *estimate(mixed);
  EXPECT_GT(e.low, 0);
  EXPECT_LT(e.p, .05);
  EXPECT_TRUE(e.resolved());
  Estimate disagreeing = e;
  disagreeing.p = .06;
  EXPECT_FALSE(disagreeing.resolved());
  EXPECT_EQ(disagreeing.direction(), 0);
}

TEST(AbPairs, TheSmallestEffectIsWhereTheVerdictTurns) {
  Values ratios{-.03, -.02, -.01, .00, .01, .01, .02, .04, .05, -.04, -.02, .035};
  const Estimate e = *estimate(ratios);
  ASSERT_FALSE(e.resolved());
  for (const double sign : {-1.0, 1.0}) {
    Values more;
    for (const double r : ratios) more.push_back(r - e.log_ratio + sign * (e.smallest * 1.1));
    EXPECT_TRUE(estimate(more)->resolved());
  }
}

}  // namespace
}  // namespace weir::lab::ab
