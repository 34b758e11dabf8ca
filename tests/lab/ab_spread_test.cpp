// The levels of variance, and the numbers of openings and runs that follow from them.
#include "lab/ab/spread.h"

#include <gtest/gtest.h>

#include <cmath>

#include "lab/ab/schedule.h"
#include "lab/ab/synthetic.h"

namespace weir::lab::ab {
namespace {

/// Runs of arm A on one prompt, by opening.
Experiment experiment(const std::vector<std::vector<double>>& openings, RunKind kind = RunKind::pair) {
  Experiment e;
  for (size_t i = 0; i < openings.size(); ++i)
    for (const double log_value : openings[i]) {
      Observation o;
      o.run.kind = kind;
      o.run.opening = static_cast<int>(i);
      o.value = std::exp(log_value);
      e.observations.push_back(o);
    }
  return e;
}

TEST(AbSpread, NestedVariancesByHand) {
  // Means 2, 6, 4: between them 4. Within each +-1: 2. Openings: 4 - 2 / 2.
  const Spread s = spread_of(experiment({{1, 3}, {5, 7}, {3, 5}}));
  EXPECT_NEAR(*s.run, std::sqrt(2), 1e-12);
  EXPECT_NEAR(*s.opening, std::sqrt(3), 1e-12);
  EXPECT_NEAR(*spread_of(experiment({{1, 3}, {1, 3}})).opening, 0, 1e-12) << "the runs explain it";
}

TEST(AbSpread, WhatCannotBeToldIsNotSaid) {
  const Spread one_run = spread_of(experiment({{1}, {2}, {3}}));
  EXPECT_FALSE(one_run.run);
  EXPECT_NEAR(*one_run.opening, 1, 1e-12) << "the runs' part is in it";
  const Spread one_opening = spread_of(experiment({{1, 2, 3}}));
  EXPECT_NEAR(*one_opening.run, 1, 1e-12);
  EXPECT_FALSE(one_opening.opening);
  EXPECT_FALSE(spread_of({}).run);
}

TEST(AbSpread, ArmsPromptsAndThePilotAreKeptApart) {
  Experiment e = experiment({{1, 3}, {1, 3}});
  Experiment b = experiment({{11, 13}, {11, 13}}), pilot = experiment({{100, 200}}, RunKind::pilot);
  for (auto& o : b.observations) o.run.arm = Side::b, e.observations.push_back(o);
  for (auto& o : pilot.observations) e.observations.push_back(o);
  EXPECT_NEAR(*spread_of(e).opening, 0, 1e-12);
  EXPECT_NEAR(*spread_of(e, true).run, 100 / std::sqrt(2), 1e-9);
}

TEST(AbSpread, SyntheticSpreadIsFound) {
  const Design design = synthetic_design(400, 3, 3);
  const Spread s = spread_of(synthetic_experiment(design, {0, .005, {.opening = .03}, 5}));
  EXPECT_NEAR(*s.run, .005, .0004);
  EXPECT_NEAR(*s.opening, .03, .002);
}

TEST(AbSpread, CostsComeFromThePilot) {
  Experiment e = experiment({{1, 1, 1}, {1, 1, 1}}, RunKind::pilot);
  const double took[] = {5, 2, 2, 7, 2, 2};
  for (size_t i = 0; i < 6; ++i) e.observations[i].took_s = took[i];
  EXPECT_DOUBLE_EQ(costs_of_pilot(e).opening_s, 4);
  EXPECT_DOUBLE_EQ(costs_of_pilot(e).run_s, 2);
  Experiment commands = experiment({{1}, {1}}, RunKind::pilot);
  for (auto& o : commands.observations) o.took_s = 3;
  EXPECT_DOUBLE_EQ(costs_of_pilot(commands).opening_s, 3);
}

TEST(AbNumbers, RunsFollowFromVarianceAndCost) {
  const Spread s{.09, .03};
  // sqrt(cost * 9): an opening as dear as a run, four runs, 16 runs.
  EXPECT_EQ(choose_numbers(s, {1, 1}, {}, true).runs, 3);
  EXPECT_EQ(choose_numbers(s, {4, 1}, {}, true).runs, 6);
  EXPECT_EQ(choose_numbers(s, {16, 1}, {.limit_s = 1e6}, true).runs, most_chosen_runs);
  EXPECT_EQ(choose_numbers({.03, .01}, {4, 1}, {}, true).runs, 3)
      << "the least number of pairs is enough then";
  EXPECT_EQ(choose_numbers({.0001, .03}, {1, 1}, {}, true).runs, 1)
      << "runs tell nothing that openings do not";
  EXPECT_EQ(choose_numbers({.001, 0}, {1, 1}, {}, true).runs, 1)
      << "more would narrow nothing that is too wide";
}

TEST(AbNumbers, PairsFollowFromTheAim) {
  EXPECT_EQ(choose_numbers({.001, .001}, {1, 1}, {}, true).pairs, least_chosen_pairs);
  // 2 * .03^2 * (2.2 / .02)^2 = 21.8
  EXPECT_EQ(choose_numbers({std::nullopt, .03}, {1, 0}, {}, true).pairs, 22);
  EXPECT_EQ(choose_numbers({std::nullopt, .3}, {1, 0}, {}, true).pairs, most_chosen_pairs);
}

TEST(AbNumbers, WhatWasAskedForStands) {
  const Numbers n = choose_numbers({.03, .03}, {100, 1}, {.pairs = 8, .runs = 5, .limit_s = 1}, true);
  EXPECT_EQ(n.pairs, 8);
  EXPECT_EQ(n.runs, 5);
  EXPECT_FALSE(n.open_once);
  EXPECT_DOUBLE_EQ(n.expected_s, 2 * 12 * (100 + 5));
}

TEST(AbNumbers, TheLimitShrinksPairsThenRunsThenOpensOnce) {
  const Spread s{.03, .03};
  const Costs c{10, 5};
  const auto with = [&](double limit, bool can_stay_open) {
    return choose_numbers(s, c, {.limit_s = limit}, can_stay_open);
  };
  const Numbers free = with(1e6, true), less = with(600, true), least = with(270, true);
  EXPECT_GT(free.pairs, less.pairs);
  EXPECT_LE(less.expected_s, 600);
  EXPECT_EQ(least.pairs, 6);
  EXPECT_EQ(least.runs, 1);
  EXPECT_DOUBLE_EQ(least.expected_s, 18 * 15);
  const Numbers once = with(200, true), slow = with(200, false);
  EXPECT_TRUE(once.open_once);
  EXPECT_LE(once.expected_s, 200);
  EXPECT_FALSE(slow.open_once) << "both at once do not fit: it takes its time";
  EXPECT_EQ(slow.pairs, 6);
}

}  // namespace
}  // namespace weir::lab::ab
