// The promises of `weir ab --self-test`, held by simulation.
#include "lab/ab/self_test.h"

#include <gtest/gtest.h>

namespace weir::lab::ab {
namespace {

TEST(AbSelfTest, KeepsItsPromises) {
  const SelfTest t = self_test({.seed = 1, .experiments = 4000, .judged = 1000});
  for (const auto& line : t.failures) ADD_FAILURE() << line;
  EXPECT_NEAR(t.nominal, .05, 1e-12);

  // The table of orders: what blocked and alternating orders, and one opening of each, make of identical
  // arms.
  ASSERT_EQ(t.orders.size(), 8u);
  EXPECT_NEAR(t.orders[0].blocked, .047, .012);
  EXPECT_GT(t.orders[1].blocked, .99) << "drift";
  EXPECT_NEAR(t.orders[1].alternating, .265, .04);
  EXPECT_GT(t.orders[2].blocked, .95) << "warm-up";
  EXPECT_NEAR(t.orders[3].blocked, .048, .012) << "bonus for the second of a pair";
  EXPECT_NEAR(t.orders[3].alternating, .6, .04);
  EXPECT_LT(t.orders[5].once, .06);
  EXPECT_NEAR(t.orders[6].once, .913, .03) << "openings that differ";
  for (const auto& row : t.orders) EXPECT_LT(row.randomised, .06) << row.condition;

  // Each test refuses clean arms at about 1 %, all of them together under 5 %.
  const Verdicts& clean = t.clean[0];
  for (const double share : {clean.by_nulls, clean.by_drift, clean.by_control}) {
    EXPECT_GT(share, .001);
    EXPECT_LT(share, .022);
  }
  EXPECT_LT(clean.refused, .05);
  EXPECT_GT(t.planted.faster, .95);
  EXPECT_EQ(t.planted.slower, 0);
  EXPECT_GT(t.planted_openings.faster, .85);
  EXPECT_EQ(t.planted_openings.slower, 0);
  EXPECT_NEAR(t.blocked.refused, 1, 1e-9);
}

TEST(AbSelfTest, FailsForAJudgeThatOpensEachArmOnce) {
  const SelfTest t = self_test({.seed = 1, .experiments = 100, .judged = 200, .open_once = true});
  int false_verdicts = 0;
  for (const auto& line : t.failures)
    if (line.find("openings 3 % apart") == 0 && line.find("false verdicts") != std::string::npos)
      ++false_verdicts;
  EXPECT_EQ(false_verdicts, 2) << "with drift and without";
}

TEST(AbSelfTest, IsAFunctionOfItsSeed) {
  const SelfTestOptions options{.seed = 5, .experiments = 50, .judged = 20};
  EXPECT_EQ(self_test_text(self_test(options)), self_test_text(self_test(options)));
}

}  // namespace
}  // namespace weir::lab::ab
