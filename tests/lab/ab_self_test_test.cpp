// The promises of `weir ab --self-test`, held by simulation.
#include "lab/ab/self_test.h"

#include <gtest/gtest.h>

namespace weir::lab::ab {
namespace {

TEST(AbSelfTest, KeepsItsPromises) {
  const SelfTest t = self_test({.seed = 1, .experiments = 4000, .judged = 1000});
  for (const auto& line : t.failures) ADD_FAILURE() << line;
  EXPECT_NEAR(t.nominal, .0386, 1e-4);

  // The table of orders: what blocked and alternating orders make of identical arms.
  ASSERT_EQ(t.orders.size(), 6u);
  EXPECT_NEAR(t.orders[0].blocked, .039, .012);
  EXPECT_GT(t.orders[1].blocked, .99) << "drift";
  EXPECT_NEAR(t.orders[1].alternating, .185, .03);
  EXPECT_GT(t.orders[2].blocked, .95) << "warm-up";
  EXPECT_NEAR(t.orders[2].alternating, .097, .02);
  EXPECT_NEAR(t.orders[3].blocked, .039, .012) << "bonus for the second run";
  EXPECT_NEAR(t.orders[3].alternating, .427, .03);
  for (const auto& row : t.orders) EXPECT_LT(row.randomised, .05) << row.condition;

  // Each test refuses clean arms at about 1 %, all of them together under 5 %.
  const Verdicts& clean = t.clean[0];
  for (const double share : {clean.by_nulls, clean.by_order, clean.by_drift, clean.by_control}) {
    EXPECT_GT(share, .001);
    EXPECT_LT(share, .022);
  }
  EXPECT_LT(clean.refused, .05);
  EXPECT_GT(t.planted.faster, .95);
  EXPECT_EQ(t.planted.slower, 0);
  EXPECT_NEAR(t.blocked.refused, 1, 1e-9);
}

TEST(AbSelfTest, IsAFunctionOfItsSeed) {
  const SelfTestOptions options{.seed = 5, .experiments = 50, .judged = 20};
  EXPECT_EQ(self_test_text(self_test(options)), self_test_text(self_test(options)));
}

}  // namespace
}  // namespace weir::lab::ab
