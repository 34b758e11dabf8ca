// The tie between the two clocks: what brackets allow, how it narrows, and what a drift does to it.
#include "device/cuda/clock_tie.h"

#include <gtest/gtest.h>

namespace weir::cuda {
namespace {

TEST(ClockTie, KnowsTheOffsetWithinTheSlackOfOneBracket) {
  ClockTie tie;
  EXPECT_FALSE(tie.tied());
  // The device's clock is 1,000 behind; 300 ns pass before the first stamp and 500 after the last.
  tie.add(10'000, 20'000, 9'300, 18'500);
  ASSERT_TRUE(tie.tied());
  EXPECT_EQ(tie.bound_ns(), 400u);         // half of 300 + 500
  EXPECT_EQ(tie.to_host(9'300), 10'400u);  // truth: 10,300
  EXPECT_LE(tie.to_host(9'300) - 10'300, tie.bound_ns());
}

TEST(ClockTie, NarrowsWithEveryBracketThatIsTighterOnASide) {
  ClockTie tie;
  tie.add(10'000, 20'000, 9'300, 18'500);
  tie.add(30'000, 40'000, 29'010, 38'000);  // 10 ns before the first stamp
  tie.add(50'000, 60'000, 49'500, 58'980);  // 20 ns after the last
  EXPECT_EQ(tie.bound_ns(), 15u);
  EXPECT_EQ(tie.to_host(49'500), 50'505u);
}

TEST(ClockTie, FollowsClocksThatDriftApart) {
  ClockTie tie;
  tie.add(10'000, 20'000, 9'010, 18'990);
  tie.add(30'000, 40'000, 28'010, 37'990);  // now 2,000 behind: no offset fits both
  EXPECT_EQ(tie.bound_ns(), 10u);
  EXPECT_EQ(tie.to_host(28'010), 30'010u);
}

TEST(ClockTie, IgnoresABracketThatContradictsItself) {
  ClockTie tie;
  tie.add(10'000, 20'000, 9'010, 18'990);
  tie.add(30'000, 31'000, 29'000, 39'000);  // longer on the device than on the host
  EXPECT_EQ(tie.bound_ns(), 10u);
  EXPECT_EQ(tie.to_host(9'010), 10'010u);
}

TEST(ClockTie, ForgetsBracketsThatAreOld) {
  ClockTie tie;
  tie.add(10'000, 20'000, 9'000, 19'000);  // no slack at all
  EXPECT_EQ(tie.bound_ns(), 0u);
  for (int i = 0; i < 64; ++i) tie.add(100'000, 110'000, 99'100, 108'900);  // 100 ns on either side
  EXPECT_EQ(tie.bound_ns(), 100u);
}

TEST(ClockTie, ABracketOlderThanASecondNoLongerCounts) {
  ClockTie tie;
  tie.add(10'000, 20'000, 10'015, 20'005);  // the offset is between -15 and -5
  const uint64_t later = 1'100'000'000;
  tie.add(later, later + 10'000, later - 5, later + 9'995 - 30);  // drifted: now between 5 and 35
  EXPECT_EQ(tie.bound_ns(), 15u);
  tie.add(later + 20'000, later + 30'000, later + 20'000 - 10, later + 30'000 - 20);
  EXPECT_EQ(tie.bound_ns(), 5u) << "the recent two together";
}

TEST(ClockTie, TheDevicesClockMayBeAheadOfTheHosts) {
  ClockTie tie;
  tie.add(1'000, 2'000, 5'000'100, 5'000'900);
  EXPECT_EQ(tie.to_host(5'000'100), 1'100u);
  EXPECT_EQ(tie.bound_ns(), 100u);
}

}  // namespace
}  // namespace weir::cuda
