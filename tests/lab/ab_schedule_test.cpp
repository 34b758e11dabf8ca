// The order of runs: what must hold for every seed, and that the seed alone decides.
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>

#include "lab/ab/schedule.h"

namespace weir::lab::ab {
namespace {

constexpr uint64_t seeds = 200;

std::map<int, std::vector<PlannedRun>> blocks(const std::vector<PlannedRun>& runs) {
  std::map<int, std::vector<PlannedRun>> by_block;
  for (const auto& run : runs) by_block[run.block].push_back(run);
  return by_block;
}

std::string labels(const std::vector<PlannedRun>& runs) {
  std::string text;
  for (const auto& run : runs) text += name(run.label);
  return text;
}

TEST(AbSchedule, SameSeedSameOrder) {
  EXPECT_EQ(make_schedule(12, 7, 3), make_schedule(12, 7, 3));
  std::set<std::string> orders;
  for (uint64_t seed = 0; seed < 50; ++seed) orders.insert(labels(make_schedule(12, seed, 1)));
  EXPECT_GT(orders.size(), 45u);
}

TEST(AbSchedule, EveryBlockIsAbbaOrBaabAndBothOccur) {
  std::map<std::string, int> count;
  for (uint64_t seed = 0; seed < seeds; ++seed)
    for (const auto& [block, runs] : blocks(make_schedule(12, seed, 2))) ++count[labels(runs)];
  ASSERT_EQ(count.size(), 2u);
  const int total = count["ABBA"] + count["BAAB"];
  EXPECT_NEAR(count["ABBA"], total / 2, total / 20);
}

TEST(AbSchedule, WarmUpsComeFirstTwoPerArm) {
  const auto runs = make_schedule(6, 1, 1);
  std::map<Side, int> of_arm;
  for (size_t i = 0; i < runs.size(); ++i) {
    EXPECT_EQ(runs[i].kind == RunKind::warm_up, i < 4) << i;
    if (i < 4) ++of_arm[runs[i].arm];
  }
  EXPECT_EQ(of_arm[Side::a], warm_ups_per_arm);
  EXPECT_EQ(of_arm[Side::b], warm_ups_per_arm);
}

TEST(AbSchedule, AThirdOfTheBlocksIsNullAndSpreadOverTheWhole) {
  for (uint64_t seed = 0; seed < seeds; ++seed) {
    const auto by_block = blocks(make_schedule(12, seed, 1));
    ASSERT_EQ(by_block.size(), 10u);  // nine, and the warm-ups at -1
    for (int group = 0; group < 3; ++group) {
      int nulls = 0;
      for (int i = 0; i < 3; ++i)
        nulls += by_block.at(3 * group + i).front().kind == RunKind::null_pair ? 1 : 0;
      EXPECT_EQ(nulls, 1) << "seed " << seed << " group " << group;
    }
  }
}

TEST(AbSchedule, NullRunsAreArmAUnderBothLabels) {
  int a = 0, b = 0;
  for (const auto& run : make_schedule(12, 3, 1)) {
    if (run.kind == RunKind::null_pair) {
      EXPECT_EQ(run.arm, Side::a);
      ++(run.label == Side::a ? a : b);
    } else {
      EXPECT_EQ(run.arm, run.label);
    }
  }
  EXPECT_EQ(a, 6);
  EXPECT_EQ(b, 6);
}

TEST(AbSchedule, PairsAreNeighboursWithOneRunOfEachLabel) {
  for (const int pairs : {2, 6, 8, 14}) {
    const auto runs = make_schedule(pairs, 5, 1);
    std::map<RunKind, int> count;
    for (size_t i = 4; i < runs.size(); i += 2) {
      EXPECT_EQ(runs[i].kind, runs[i + 1].kind);
      EXPECT_EQ(runs[i].pair, runs[i + 1].pair);
      EXPECT_NE(runs[i].label, runs[i + 1].label);
      EXPECT_EQ(runs[i].pair, count[runs[i].kind]++) << "numbered in order";
    }
    EXPECT_EQ(count[RunKind::pair], pairs);
    EXPECT_EQ(count[RunKind::null_pair], null_pairs(pairs));
  }
  EXPECT_EQ(null_pairs(6), 4);
  EXPECT_EQ(null_pairs(12), 6);
}

TEST(AbSchedule, EachOrderComesOnceInABlock) {
  for (const auto& [block, runs] : blocks(make_schedule(12, 9, 1)))
    EXPECT_NE(runs[0].label, runs[2].label) << block;
}

TEST(AbSchedule, PromptsTakeTurnsByBlock) {
  std::map<int, int> blocks_of_prompt;
  std::set<int> first;
  for (const auto& [block, runs] : blocks(make_schedule(12, 2, 3))) {
    for (const auto& run : runs) EXPECT_EQ(run.prompt, runs.front().prompt);
    if (runs.front().kind == RunKind::pair) ++blocks_of_prompt[runs.front().prompt];
  }
  EXPECT_EQ(blocks_of_prompt, (std::map<int, int>{{0, 2}, {1, 2}, {2, 2}}));
  for (uint64_t seed = 0; seed < 50; ++seed) first.insert(make_schedule(12, seed, 3).front().prompt);
  EXPECT_EQ(first.size(), 3u) << "the seed shuffles the prompts";
}

}  // namespace
}  // namespace weir::lab::ab
