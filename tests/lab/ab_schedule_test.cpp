// The order of openings and runs: what must hold for every seed, and that the seed alone decides.
#include "lab/ab/schedule.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>

namespace weir::lab::ab {
namespace {

constexpr uint64_t seeds = 200;

Design design(int pairs, uint64_t seed, int prompts = 1, int runs = 1) {
  Design d;
  d.pairs = pairs, d.seed = seed, d.runs = runs;
  d.prompts.resize(static_cast<size_t>(prompts));
  return d;
}

/// Without the pilot's.
std::map<int, std::vector<PlannedRun>> blocks(const std::vector<PlannedRun>& runs) {
  std::map<int, std::vector<PlannedRun>> by_block;
  for (const auto& run : runs)
    if (run.kind != RunKind::pilot) by_block[run.block].push_back(run);
  return by_block;
}

TEST(AbSchedule, SameSeedSameOrder) {
  EXPECT_EQ(make_schedule(design(12, 7, 3)), make_schedule(design(12, 7, 3)));
  std::set<std::string> orders;
  for (uint64_t seed = 0; seed < 50; ++seed) {
    std::string labels;
    for (const auto& run : make_schedule(design(12, seed))) labels += name(run.label);
    orders.insert(labels);
  }
  EXPECT_GT(orders.size(), 45u);
}

TEST(AbSchedule, HalfOfThePairsBeginWithEachArmInEveryPlaceAlike) {
  std::map<int, int> a_first_at;
  for (uint64_t seed = 0; seed < seeds; ++seed) {
    int a_first = 0;
    for (const auto& [block, runs] : blocks(make_schedule(design(12, seed, 2)))) {
      if (runs.front().kind != RunKind::pair || runs.front().label != Side::a) continue;
      ++a_first, ++a_first_at[runs.front().pair];
    }
    EXPECT_EQ(a_first, 6) << "seed " << seed;
  }
  for (int pair = 0; pair < 12; ++pair) EXPECT_NEAR(a_first_at[pair], seeds / 2, 30) << pair;
}

TEST(AbSchedule, EveryHalfOfAPairIsAnOpeningOfItsOwn) {
  for (const int runs_each : {1, 3}) {
    const auto runs = make_schedule(design(12, 3, 1, runs_each));
    std::map<int, int> runs_of;
    int before = -1;
    for (const auto& run : runs) {
      EXPECT_TRUE(run.opening == before || run.opening == before + 1) << "never opened again";
      before = run.opening;
      if (run.kind != RunKind::pilot) ++runs_of[run.opening];
    }
    EXPECT_EQ(runs_of.size(), 2u * (12 + 6));
    for (const auto& [opening, count] : runs_of) EXPECT_EQ(count, runs_each) << opening;
    for (const auto& [block, pair] : blocks(runs)) {
      ASSERT_EQ(pair.size(), 2u * runs_each);
      EXPECT_NE(pair.front().opening, pair.back().opening);
      EXPECT_NE(pair.front().label, pair.back().label);
    }
  }
}

TEST(AbSchedule, OpenedOnceEachArmHasOneOpening) {
  Design d = design(12, 3);
  d.open_once = true;
  std::map<Side, std::set<int>> openings;
  for (const auto& run : make_schedule(d))
    if (run.kind != RunKind::pilot) openings[run.arm].insert(run.opening);
  EXPECT_EQ(openings[Side::a].size(), 1u);
  EXPECT_EQ(openings[Side::b].size(), 1u);
}

TEST(AbSchedule, ThePilotComesFirstAndIsTheSameWhateverFollows) {
  Design d = design(6, 1, 3);
  d.pilot_openings = 8, d.pilot_runs = 2;
  const auto pilot = make_pilot(d);
  ASSERT_EQ(pilot.size(), 16u);
  std::map<Side, std::set<int>> openings;
  for (const auto& run : pilot) openings[run.arm].insert(run.opening);
  EXPECT_EQ(openings[Side::a].size(), 4u);
  EXPECT_EQ(openings[Side::b].size(), 4u);
  for (const int pairs : {6, 20}) {
    d.pairs = pairs, d.runs = pairs / 2;
    const auto runs = make_schedule(d);
    for (size_t i = 0; i < runs.size(); ++i) EXPECT_EQ(runs[i].kind == RunKind::pilot, i < pilot.size()) << i;
    EXPECT_TRUE(std::equal(pilot.begin(), pilot.end(), runs.begin()));
  }
}

TEST(AbSchedule, AThirdOfThePairsIsNullAndSpreadOverTheWhole) {
  for (uint64_t seed = 0; seed < seeds; ++seed) {
    const auto by_block = blocks(make_schedule(design(12, seed)));
    ASSERT_EQ(by_block.size(), 18u);
    for (int group = 0; group < 6; ++group) {
      int nulls = 0;
      for (int i = 0; i < 3; ++i)
        nulls += by_block.at(3 * group + i).front().kind == RunKind::null_pair ? 1 : 0;
      EXPECT_EQ(nulls, 1) << "seed " << seed << " group " << group;
    }
  }
}

TEST(AbSchedule, ANullPairIsTwoOpeningsOfOneArmAndTheArmsTakeTurns) {
  std::map<Side, int> nulls_of;
  for (const auto& [block, runs] : blocks(make_schedule(design(12, 3)))) {
    if (runs.front().kind != RunKind::null_pair) {
      for (const auto& run : runs) EXPECT_EQ(run.arm, run.label);
      continue;
    }
    EXPECT_EQ(runs.front().arm, runs.back().arm);
    EXPECT_NE(runs.front().opening, runs.back().opening);
    ++nulls_of[runs.front().arm];
  }
  EXPECT_EQ(nulls_of[Side::a], 3);
  EXPECT_EQ(nulls_of[Side::b], 3);
}

TEST(AbSchedule, PairsAreNumberedInOrder) {
  for (const int pairs : {2, 6, 8, 14}) {
    std::map<RunKind, int> count;
    for (const auto& [block, runs] : blocks(make_schedule(design(pairs, 5)))) {
      for (const auto& run : runs) EXPECT_EQ(run.pair, count[runs.front().kind]);
      ++count[runs.front().kind];
    }
    EXPECT_EQ(count[RunKind::pair], pairs);
    EXPECT_EQ(count[RunKind::null_pair], null_pairs(pairs));
  }
  EXPECT_EQ(null_pairs(6), 3);
  EXPECT_EQ(null_pairs(12), 6);
}

TEST(AbSchedule, PromptsTakeTurnsByPair) {
  std::map<int, int> pairs_of_prompt;
  std::set<int> first;
  for (const auto& [block, runs] : blocks(make_schedule(design(12, 2, 3, 2)))) {
    for (const auto& run : runs) EXPECT_EQ(run.prompt, runs.front().prompt);
    if (runs.front().kind == RunKind::pair) ++pairs_of_prompt[runs.front().prompt];
  }
  EXPECT_EQ(pairs_of_prompt, (std::map<int, int>{{0, 4}, {1, 4}, {2, 4}}));
  for (uint64_t seed = 0; seed < 50; ++seed) first.insert(make_pilot(design(12, seed, 3)).front().prompt);
  EXPECT_EQ(first.size(), 3u) << "the seed shuffles the prompts";
}

}  // namespace
}  // namespace weir::lab::ab
