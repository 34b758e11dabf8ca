// Criticality from delays: known slopes are found through noise, interruptions and drift, and the interval
// covers the truth as often as it says.
#include "lab/profile/what_if.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include <cmath>

#include "base/random.h"
#include "lab/synthetic_profile.h"
#include "support/deferred_device.h"
#include "support/temp_dir.h"
#include "support/tiny_model.h"

namespace weir::lab {
namespace {

struct World {
  double slope = 1;
  double noise_ns = 20'000;
  double interruptions = 0;  // share of rounds that lose 5 ms to something else
  double drift = 0;          // a run is this much slower than the one before
  int runs = 4, rounds = 64;
};

double gaussian(uint64_t seed, uint64_t i) {
  return std::sqrt(-2 * std::log(1 - random_unit(seed, 2 * i))) *
         std::cos(6.283185307179586 * random_unit(seed, 2 * i + 1));
}

/// Runs without a delay, then as many with 200 us and 400 us in half of their rounds.
std::vector<DelayedRun> observe(const World& w, uint64_t seed) {
  std::vector<DelayedRun> runs;
  uint64_t draw = 0;
  for (int r = 0; r < 2 * w.runs; ++r) {
    DelayedRun run;
    for (int i = 0; i < w.rounds; ++i) {
      const double work =
          1'000'000 + 300'000 * random_unit(7, static_cast<uint64_t>(i));  // the same in all runs
      const bool hit = r >= w.runs && random_unit(seed + 1, draw) < 0.5;
      const double delay = hit ? (r % 2 ? 400'000 : 200'000) : 0;
      const double lost = random_unit(seed + 2, draw) < w.interruptions ? 5'000'000 : 0;
      run.delay_ns.push_back(delay);
      run.time_ns.push_back(work * (1 + w.drift * r) + w.slope * delay + lost +
                            w.noise_ns * gaussian(seed + 3, draw));
      ++draw;
    }
    runs.push_back(std::move(run));
  }
  return runs;
}

TEST(WhatIf, KnownSlopesAreFound) {
  for (const double truth : {0.0, 0.4, 1.0}) {
    World world;
    world.slope = truth;
    const auto slope = delay_slope(observe(world, 11));
    ASSERT_TRUE(slope);
    EXPECT_NEAR(slope->value, truth, 0.05);
    EXPECT_LE(slope->low, slope->value);
    EXPECT_GE(slope->high, slope->value);
    EXPECT_LT(slope->high - slope->low, 0.15);
    EXPECT_GE(slope->coverage, 0.95);
  }
}

TEST(WhatIf, InterruptionsAndDriftDoNotMoveTheSlope) {
  World world;
  world.interruptions = 0.03;
  world.drift = 0.02;
  const auto slope = delay_slope(observe(world, 12));
  ASSERT_TRUE(slope);
  EXPECT_NEAR(slope->value, 1, 0.1);
}

TEST(WhatIf, TheIntervalCoversTheTruthAsOftenAsItSays) {
  World world;
  world.slope = 0.5;
  world.noise_ns = 80'000;
  int covered = 0;
  constexpr int experiments = 400;
  for (uint64_t e = 0; e < experiments; ++e) {
    const auto slope = delay_slope(observe(world, 1000 + 17 * e));
    covered += slope->low <= 0.5 && 0.5 <= slope->high;
  }
  EXPECT_GE(covered, 0.92 * experiments);
}

TEST(WhatIf, TooFewDelaysGiveNoSlope) {
  World world;
  world.rounds = 5;
  EXPECT_FALSE(delay_slope(observe(world, 13)));
  std::vector<DelayedRun> none = observe(World{}, 14);
  for (auto& run : none) std::fill(run.delay_ns.begin(), run.delay_ns.end(), 0.0);
  EXPECT_FALSE(delay_slope(none)) << "the role never ran";
  EXPECT_FALSE(delay_slope({}));
}

Criticality critical(Role role, double share, double slope) {
  return {role, share, Slope{slope, slope - 0.1, slope + 0.1, 0.95, 20}, std::nullopt};
}

TEST(WhatIfReport, RolesAreSortedByWhatTheyAreWorthAndAdviceNamesTheFirst) {
  WhatIf result;
  result.roles = {critical(Role::attention, 0.2, 1.0),
                  {Role::embed, 0.1, std::nullopt, std::nullopt},
                  critical(Role::experts_hit, 0.3, 0.1),
                  critical(Role::head, 0.4, 0.9)};
  sort_by_worth(result.roles);
  std::vector<Role> order;
  for (const auto& c : result.roles) order.push_back(c.role);
  EXPECT_EQ(order, (std::vector<Role>{Role::head, Role::attention, Role::experts_hit, Role::embed}));
  const std::string advice =
      "Advice: attack head first: without its time a round would take 36.0 % less (32.0 to 40.0); leave "
      "experts_hit alone: it is hidden.";
  EXPECT_EQ(what_if_advice(result), advice);
  EXPECT_NE(what_if_text(result, Layout::markdown).find(advice), std::string::npos);
  EXPECT_EQ(what_if_json(result)["advice"], advice);
  EXPECT_NE(what_if_advice({}).find("give more --runs"), std::string::npos);
}

/// On the CPU, where the ledger spins, and on a device that spins in its own stream.
class WhatIfOfAnEngine : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Devices, WhatIfOfAnEngine,
                         testing::Values(std::string("cpu"), std::string("deferred")),
                         [](const testing::TestParamInfo<std::string>& device) { return device.param; });

TEST_P(WhatIfOfAnEngine, ASerialRoleIsSerialAndItsOwnTimeGrows) {
  const test::TempDir dir;
  EngineOptions options;
  options.model = test::write_tiny_model(dir.file("tiny.gguf"));
  options.context = 256;
  options.threads = 1;
  const auto counters = std::make_shared<test::DeferredDevice::Counters>();
  if (GetParam() == "deferred")
    options.make_device = [counters] {
      return std::make_unique<test::DeferredDevice>(test::DeferredDevice::Options{.threads = 1}, counters);
    };
  WhatIfRequest request;
  request.profile.new_tokens = 33;
  request.runs = 2;
  request.delay_ns = 3'000'000;  // far above what a busy machine adds by itself
  request.roles = {Role::head, Role::recurrent};
  Engine engine(profile_engine_options(options, request.profile, ""));
  engine.load();
  const auto result = measure_what_if(engine, fit_prompt({"p", "The river", false}, engine, 33), request);
  ASSERT_TRUE(result);
  EXPECT_EQ(counters->records, options.make_device ? 3 : 0) << "no delay, the delay, and twice that";
  ASSERT_EQ(result->roles.size(), 1u) << "a role that does not run is not delayed";
  EXPECT_EQ(result->never_ran, std::vector{Role::recurrent});
  const Criticality& head = result->roles[0];
  EXPECT_EQ(head.role, Role::head);
  ASSERT_TRUE(head.round && head.own);
  EXPECT_NEAR(head.own->value, 1, 0.2) << "the spin is charged to the role that spun";
  EXPECT_GT(head.round->value, 0.7);
  EXPECT_GT(head.share, 0);
  EXPECT_LT(head.share, 1);
  const std::string text = what_if_text(*result, Layout::text);
  EXPECT_NE(text.find("criticality"), std::string::npos);
}

}  // namespace
}  // namespace weir::lab
