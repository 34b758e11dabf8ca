// What is said of a profile: totals, the largest block, its growth, the levers and their arithmetic.
#include "lab/profile/analysis.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "lab/profile/hit_curve.h"
#include "lab/profile/levers.h"
#include "lab/profile/report.h"
#include "lab/synthetic_profile.h"
#include "ledger/report.h"

namespace weir::lab {
namespace {

constexpr double base_ns = 1'001'000;  // of a made-up round with 250 us of attention

const Lever* find(const std::vector<Lever>& all, const std::string& name, const std::string& setting = "") {
  for (const Lever& lever : all)
    if (lever.name == name && lever.setting.find(setting) != std::string::npos) return &lever;
  return nullptr;
}

TEST(ProfileAnalysis, TotalsAddUpOverPromptsAndRoles) {
  const Profile p = made_up_profile();
  const PhaseAccount total = total_decode(p.runs);
  EXPECT_EQ(total.tokens, 128u);
  EXPECT_EQ(total.wall_ns, p.runs[0].decode.wall_ns + p.runs[1].decode.wall_ns);
  uint64_t sum = 0;
  for (int r = 0; r < role_count; ++r) sum += role_ns(total, static_cast<Role>(r));
  EXPECT_EQ(sum, total.wall_ns);
  EXPECT_EQ(total.experts.misses, 128u * 8);
  EXPECT_DOUBLE_EQ(phase_figures(total).hit_rate, 0.75);
}

TEST(ProfileAnalysis, TheLargestBlockIsANamedRole) {
  Profile p = made_up_profile();
  EXPECT_EQ(largest_role(total_decode(p.runs)), Role::experts_hit);
  PhaseAccount lost = total_decode(p.runs);
  lost.roles[static_cast<size_t>(Role::unattributed)].per_round.sum_ns = uint64_t{1} << 60;
  EXPECT_EQ(largest_role(lost), Role::experts_hit) << "what has no name is no block";
  EXPECT_EQ(largest_role(PhaseAccount{}), std::nullopt);
}

TEST(ProfileAnalysis, AFlatRoleIsFlat) {
  const Growth growth = growth_of(Role::attention, made_up_profile().runs);
  ASSERT_TRUE(growth.prompts);
  EXPECT_EQ(growth.kind(), Trend::Kind::flat);
  EXPECT_EQ(growth.quarters.kind, Trend::Kind::flat);
  EXPECT_EQ(growth.shortest, "short");
  EXPECT_EQ(growth.longest, "long");
}

TEST(ProfileAnalysis, ARoleThatGrowsWithTheContextIsSeenAcrossPromptsAndItsSlopeIsRight) {
  Profile p = made_up_profile();
  const auto attention = [](int position) { return 100'000.0 + 200.0 * position; };
  p.runs = {made_up_run("long", 1900, 64, attention, 2), made_up_run("short", 60, 64, attention, 1)};
  const Growth growth = growth_of(Role::attention, p.runs);
  ASSERT_TRUE(growth.prompts);
  EXPECT_EQ(growth.kind(), Trend::Kind::grows);
  EXPECT_EQ(growth.shortest, "short") << "by tokens, not by order";
  EXPECT_NEAR(growth.prompts->ns_per_1000_positions(), 200'000, 8'000);
  EXPECT_EQ(growth_of(Role::experts_hit, p.runs).kind(), Trend::Kind::flat) << "its neighbour does not";
}

TEST(ProfileAnalysis, OnePromptIsJudgedByItsQuarters) {
  Profile p = made_up_profile();
  p.runs = {made_up_run("only", 60, 128, [](int position) { return 1'000.0 * position; })};
  const Growth growth = growth_of(Role::attention, p.runs);
  EXPECT_FALSE(growth.prompts);
  EXPECT_EQ(growth.kind(), Trend::Kind::grows);
  EXPECT_NEAR(growth.quarters.from_position, 60 + 15.5, 1e-9);
  EXPECT_NEAR(growth.quarters.to_position, 60 + 96 + 15.5, 1e-9);
  p.runs = {made_up_run("only", 60, 20, [](int) { return 1e5; })};
  EXPECT_EQ(growth_of(Role::attention, p.runs).kind(), Trend::Kind::unknown) << "quarters of 5 rounds";
}

TEST(ProfileAnalysis, ASmallChangeIsFlatHoweverSureAndAShrinkingRoleShrinks) {
  std::vector<double> from(40, 100), slightly(40, 104), less(40, 80);
  for (size_t i = 0; i < 40; ++i) from[i] += 0.01 * static_cast<double>(i % 3);
  EXPECT_EQ(compare_stretches(from, slightly, 0, 1).kind, Trend::Kind::flat);
  EXPECT_EQ(compare_stretches(from, less, 0, 1).kind, Trend::Kind::shrinks);
  std::vector<double> wild;
  for (int i = 0; i < 12; ++i) wild.push_back(i % 2 ? 50 : 200);
  EXPECT_EQ(compare_stretches(from, wild, 0, 1).kind, Trend::Kind::flat) << "the intervals touch";
}

TEST(ProfileLevers, SlotsFollowTheReplayedMisses) {
  const auto all = levers(made_up_profile());
  const double wait = 300'000;
  const Lever* fits = find(all, "slots", "--expert-slots 10");
  ASSERT_NE(fits, nullptr) << "10 MiB are left, a level takes 4";
  EXPECT_NEAR(*fits->gain, base_ns / (base_ns - wait * (1 - 200.0 / 250)), 0.005);
  const Lever* twice = find(all, "memory", "--memory 122.0MiB");
  ASSERT_NE(twice, nullptr);
  EXPECT_NEAR(*twice->gain, base_ns / (base_ns - wait * (1 - 100.0 / 250)), 0.005);
  const Lever* resident = find(all, "memory", "--memory 186.0MiB");
  ASSERT_NE(resident, nullptr);
  EXPECT_NEAR(*resident->gain, base_ns / (base_ns - wait), 0.005);
  EXPECT_NE(resident->how.find("replayed"), std::string::npos);
}

TEST(ProfileLevers, AMissCostsItsSubmittingAndItsColdWeightsToo) {
  Profile p = made_up_profile();
  double submit = 0, compute = 0, rounds = 0;
  for (ProfileRun& run : p.runs)
    for (size_t i = 0; i < run.rounds.size(); ++i) {
      RoundReport& round = run.rounds[i];
      round.experts.hits = 24, round.experts.misses = 4 + 8 * (i % 2);  // 8 a round, as the phase says
      const uint64_t schedule = 20'000 + 5'000 * round.experts.misses;
      give(run.decode, round, Role::schedule, schedule);
      // 24 hits take 400 us, so 8 take 133: the rest of 300 is what being cold costs.
      give(run.decode, round, Role::experts_miss, 300'000);
      run.decode.wall_ns += schedule + 300'000;
      submit += 5'000.0 * static_cast<double>(round.experts.misses);
      compute += 300'000 - 400'000.0 * 8 / 24;
      rounds += 1;
    }
  const auto all = levers(p);
  const Lever* resident = find(all, "memory", "--memory 186.0MiB");
  ASSERT_NE(resident, nullptr);
  const double base = base_ns + 20'000 + 40'000 + 300'000;
  // Without a miss no layer submits anything: the 20 us go too.
  EXPECT_NEAR(*resident->gain, base / (base - 300'000 - 20'000 - submit / rounds - compute / rounds), 0.01);
  EXPECT_NE(resident->how.find("0.300 ms a token of waiting, 0.060 of submitting and 0.16"),
            std::string::npos)
      << resident->how;
}

/// Rounds of a model with 8 layers, 4 experts a row: a layer's first hit costs 10 us, each one 2 us; a miss
/// 30 us cold, of a layer's submitting 20 us are the call and 3 us a read; each miss is waited for 40 us.
Profile streaming_profile(int rounds, uint64_t seed) {
  Profile p = made_up_profile();
  p.settings.expert_layers = 8;
  ProfileRun run;
  run.prompt = "made up";
  uint64_t draw = 0;
  for (int i = 0; i < rounds; ++i) {
    RoundReport round;
    round.phase = Phase::decode;
    for (int layer = 0; layer < 8; ++layer) {
      uint64_t misses = 0;
      for (int k = 0; k < 4; ++k) misses += random_unit(seed, draw++) < 0.5 ? 1 : 0;
      const uint64_t hits = 4 - misses;
      round.experts.hits += hits, round.experts.misses += misses;
      give(run.decode, round, Role::experts_hit, hits > 0 ? 10'000 + 2'000 * hits : 0);
      give(run.decode, round, Role::experts_miss, 30'000 * misses);
      give(run.decode, round, Role::schedule, misses > 0 ? 20'000 + 3'000 * misses : 0);
      give(run.decode, round, Role::expert_wait, 40'000 * misses);
      give(run.decode, round, Role::attention, 15'000);
    }
    for (const uint64_t ns : round.role_ns) round.end_ns += ns;
    run.decode.rounds.add(round.end_ns);
    run.decode.wall_ns += round.end_ns;
    run.decode.tokens += 1;
    run.decode.experts.hits += round.experts.hits, run.decode.experts.misses += round.experts.misses;
    run.rounds.push_back(round);
  }
  p.runs = {run};
  return p;
}

TEST(ProfileLevers, TheFirstMissOfALayerAndTheFirstHitAreCountedOnce) {
  const Profile p = streaming_profile(400, 5);
  const auto all = levers(p);
  const Lever* resident = find(all, "memory", "--memory 186.0MiB");
  ASSERT_NE(resident, nullptr);
  const double now = static_cast<double>(p.runs[0].decode.wall_ns) / 400;
  const double truth = now / (8 * (10'000 + 4 * 2'000 + 15'000));
  EXPECT_NEAR(*resident->gain, truth, 0.1 * truth);
  EXPECT_LT(resident->gain_low, truth);
  EXPECT_GT(resident->gain_high, *resident->gain) << "rounds differ, so compute may be disturbed";
}

TEST(ProfileLevers, PredictionsCarryAnInterval) {
  Profile p = made_up_profile();
  const auto all = levers(p);
  for (const Lever& lever : all) {
    if (!lever.gain) continue;
    EXPECT_LE(lever.gain_low, *lever.gain) << lever.name;
    EXPECT_GE(lever.gain_high, *lever.gain) << lever.name;
    EXPECT_LT(lever.gain_low, lever.gain_high) << lever.name;
    EXPECT_GE(lever.gain_low, 1) << lever.name;
  }
  // Half of the misses left: the waits shrink with the root at least.
  const double base = base_ns;
  EXPECT_NEAR(find(all, "memory", "--memory 122.0MiB")->gain_low,
              base / (base - 300'000 * (1 - std::sqrt(100.0 / 250))), 0.005);
  EXPECT_NEAR(find(all, "read size")->gain_low, base / (base - 150'000), 0.005);
  EXPECT_EQ(find(all, "threads")->gain_low, 1) << "an upper bound";
}

TEST(ProfileLevers, TheyEndInOneSentenceOfAdvice) {
  Profile p = made_up_profile();
  EXPECT_THAT(
      lever_advice(p, levers(p)),
      testing::MatchesRegex("Advice: try -t 4 first, for at most 0 to [0-9]+ % more speed; experts_hit is "
                            "the largest block, [0-9.]+ % of decode, and this attacks it\\."));
  for (const Layout layout : {Layout::text, Layout::markdown})
    EXPECT_NE(profile_text(p, layout).find("Advice: try -t 4 first"), std::string::npos);
  EXPECT_EQ(profile_json(p)["advice"], lever_advice(p, levers(p)));
  p.settings.threads = p.settings.processors = 2;
  EXPECT_THAT(lever_advice(p, levers(p)), testing::StartsWith("Advice: try --memory 186.0MiB first, for "));
  EXPECT_THAT(lever_advice(p, {}), testing::StartsWith("Advice: leave the settings as they are"));
  EXPECT_THAT(lever_advice({}, {}), testing::StartsWith("Advice: give more tokens"));
}

TEST(ProfileLevers, ReadsHalvedKeepWhatComputeHides) {
  const auto all = levers(made_up_profile());
  const Lever* reads = find(all, "read size");
  ASSERT_NE(reads, nullptr);
  // Busy 450, exposed 300: 150 are hidden, and of 225 that stays hidden.
  EXPECT_NEAR(*reads->gain, base_ns / (base_ns - (300'000 - 75'000)), 0.005);
  EXPECT_NE(reads->how.find("64.0 KiB"), std::string::npos) << reads->how;
}

TEST(ProfileLevers, ThreadsFollowAmdahlWhereProcessorsAreLeftAndBalanceWhereNot) {
  Profile p = made_up_profile();
  const auto threads_lever = [&] { return *find(levers(p), "threads"); };
  // 880 us of two workers a round are 440 us of wall time, halved by four workers.
  EXPECT_NEAR(*threads_lever().gain, base_ns / (base_ns - 220'000), 0.005);
  EXPECT_EQ(threads_lever().setting, "-t 4");
  EXPECT_TRUE(threads_lever().at_most);
  p.settings.processors = 2;
  EXPECT_NEAR(*threads_lever().gain, base_ns / (base_ns - 40'000), 0.005);
}

TEST(ProfileLevers, WhatAttacksTheLargestBlockComesFirstAndWhatIsNotBuiltHasNoNumber) {
  Profile p = made_up_profile();
  auto all = levers(p);
  EXPECT_EQ(all.front().name, "threads") << "experts_hit is the largest block, and it is compute";
  for (const char* name : {"drafting", "device"}) {
    ASSERT_NE(find(all, name), nullptr);
    EXPECT_EQ(find(all, name)->gain, std::nullopt);
  }
  EXPECT_NE(find(all, "drafting")->how.find("not available yet"), std::string::npos);
  EXPECT_NE(find(all, "device")->how.find("not measured here"), std::string::npos);
  p.settings.on_gpu = true;
  EXPECT_EQ(find(levers(p), "device"), nullptr) << "it is on one";
  p.settings.on_gpu = false;
  for (ProfileRun& run : p.runs)  // now waiting is the largest
    run.decode.roles[static_cast<size_t>(Role::expert_wait)].per_round.sum_ns *= 3,
        run.decode.wall_ns += 2 * role_ns(run.decode, Role::expert_wait) / 3;
  all = levers(p);
  EXPECT_TRUE(all.front().attacks_largest);
  EXPECT_EQ(all.front().name, "memory");
}

TEST(ProfileLevers, AResidentOrDenseModelGetsNoPredictionForSlots) {
  Profile p = made_up_profile();
  p.settings.slots = 32;
  ASSERT_NE(find(levers(p), "slots"), nullptr);
  EXPECT_EQ(find(levers(p), "slots")->gain, std::nullopt);
  EXPECT_EQ(find(levers(p), "memory"), nullptr);
  p.settings.experts = p.settings.slots = 0;
  EXPECT_EQ(find(levers(p), "slots"), nullptr);
  EXPECT_TRUE(levers(Profile{}).empty());
}

TEST(ProfileHitCurve, CountsWhatThePolicyWouldDo) {
  RouteTrace trace;
  trace.header = {1, 1, 1, {4}, {100}};
  // One row a round: 0 1 0 2 0 1, the first two in prefill.
  const uint16_t ids[] = {0, 1, 0, 2, 0, 1};
  for (uint32_t i = 0; i < 6; ++i)
    trace.records.push_back({i < 2 ? Phase::prefill : Phase::decode, i, 0, 1, {ids[i]}});
  const Demand demand = make_demand(trace);
  const SlotTraffic one = slot_traffic(demand, 1, ExpertPolicy::lru);
  EXPECT_EQ(one.all_hits, 0u);
  EXPECT_EQ(one.all_misses, 6u);
  const SlotTraffic two = slot_traffic(demand, 2, ExpertPolicy::lru);
  EXPECT_EQ(two.all_hits, 2u) << "0 stays, 1 and 2 take turns";
  EXPECT_EQ(two.hits, 2u);
  EXPECT_EQ(two.misses, 2u) << "prefill is not in decode's figures";
  const SlotTraffic all = slot_traffic(demand, 9, ExpertPolicy::lru);
  EXPECT_EQ(all.all_misses, 3u) << "each expert's first use";
}

TEST(ProfileHitCurve, ChoicesRunFromTheFloorToResidency) {
  const auto choices = slot_choices(4, 32, {7, 64, 0});
  EXPECT_EQ(choices.front(), 4);
  EXPECT_EQ(choices.back(), 32);
  EXPECT_NE(std::find(choices.begin(), choices.end(), 7), choices.end());
  EXPECT_TRUE(std::is_sorted(choices.begin(), choices.end()));
  EXPECT_EQ(std::adjacent_find(choices.begin(), choices.end()), choices.end());
}

TEST(ProfileReport, TextAndMarkdownNameTheBlockTheLeversAndACutPrompt) {
  Profile p = made_up_profile();
  p.runs[1].text_tokens = 3000;
  for (const Layout layout : {Layout::text, Layout::markdown}) {
    const std::string report = profile_text(p, layout);
    for (const char* words :
         {"cut to its first 1900 of 3000", "experts_hit (routed experts that were in their slots)",
          "it is flat", "drafting", "not available yet", "8 (in use)", "75.0 %", "unattributed", "total"})
      EXPECT_NE(report.find(words), std::string::npos) << words << " is not in:\n" << report;
    EXPECT_EQ(report.find("DIFFER"), std::string::npos);
  }
  p.counted.misses += 1;
  EXPECT_NE(profile_text(p, Layout::text).find("DIFFER"), std::string::npos)
      << "a replay that does not count as the engine did is no base for a prediction";
}

TEST(ProfileReport, JsonHoldsTheSameFigures) {
  const auto json = profile_json(made_up_profile());
  EXPECT_EQ(json["schema"], "weir-profile-1");
  EXPECT_EQ(json["prompts"].size(), 2u);
  EXPECT_EQ(json["largest"]["role"], "experts_hit");
  EXPECT_EQ(json["largest"]["growth"], "flat");
  EXPECT_NEAR(json["decode"]["ms_per_token"].get<double>(), base_ns / 1e6, 0.01);
  double share = 0;
  for (const auto& role : json["decode"]["roles"]) share += role["share"].get<double>();
  EXPECT_NEAR(share, 1, 1e-9);
  EXPECT_EQ(json["levers"][0]["lever"], "threads");
}

TEST(ProfileTable, AlignsTextAndWrapsAtWords) {
  const Table table{{"role", "ms"}, {{"attention", "1.5"}, {"x", "12.25"}}};
  EXPECT_EQ(print_table(table, Layout::text), "  role          ms\n  attention    1.5\n  x          12.25\n");
  EXPECT_EQ(print_table(table, Layout::markdown),
            "| role | ms |\n|---|---:|\n| attention | 1.5 |\n| x | 12.25 |\n");
  EXPECT_EQ(wrap("one two three four", 9, "  "), "one two\n  three\n  four\n");
}

}  // namespace
}  // namespace weir::lab
