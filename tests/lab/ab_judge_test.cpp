// Every reason to refuse, alone, on an experiment that is otherwise clean; and the verdicts that are left.
#include "lab/ab/judge.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "lab/ab/synthetic.h"

namespace weir::lab::ab {
namespace {

constexpr uint64_t schedule_seed = 4;

Experiment clean(double effect = 0, int pairs = 12) {
  return synthetic_experiment(pairs, schedule_seed, {effect, .005, {}, 11});
}

const Check& check(const Verdict& v, const std::string& name) {
  for (const auto& c : v.checks)
    if (c.name == name) return c;
  ADD_FAILURE() << "no check " << name;
  return v.checks.front();
}

/// Refused for this reason and no other.
void expect_refused(const Experiment& e, const std::string& reason, const std::string& words) {
  const Verdict v = judge(e);
  EXPECT_EQ(v.outcome, Outcome::refused);
  EXPECT_FALSE(v.estimate) << "no headline";
  for (const auto& c : v.checks)
    EXPECT_EQ(c.state == CheckState::failed, c.name == reason) << c.name << ": " << c.detail;
  EXPECT_NE(check(v, reason).detail.find(words), std::string::npos) << check(v, reason).detail;
}

/// `scale(o)` times a run's value.
void rescale(Experiment& e, const std::function<double(const Observation&)>& scale) {
  for (auto& o : e.observations) o.value *= scale(o);
}

TEST(AbJudge, VerdictsHaveTheirOwnExitCodes) {
  const Verdict faster = judge(clean(.02)), slower = judge(clean(-.02)), same = judge(clean());
  EXPECT_EQ(faster.outcome, Outcome::faster);
  EXPECT_EQ(slower.outcome, Outcome::slower);
  EXPECT_EQ(same.outcome, Outcome::unresolved);
  EXPECT_EQ(exit_code(Outcome::faster), 0);
  EXPECT_EQ(exit_code(Outcome::slower), 10);
  EXPECT_EQ(exit_code(Outcome::unresolved), 11);
  EXPECT_EQ(exit_code(Outcome::refused), 12);
  EXPECT_NEAR(faster.estimate->log_ratio, .02, .005);
  EXPECT_LT(faster.estimate->low, .02);
  EXPECT_GT(faster.estimate->high, .02);
  EXPECT_EQ(slower.estimate->losses, 12);
  EXPECT_GT(same.estimate->smallest, 0);
}

TEST(AbJudge, RefusesWhatAHypervisorDisturbed) {
  const auto stealing = [](double share, double scale) {
    Experiment e = clean(.02);
    e.setting.machine.processors = 2;
    for (auto& o : e.observations) {
      o.took_s *= scale;
      o.stolen_ns = static_cast<uint64_t>(2e9 * o.took_s * share);
    }
    return e;
  };
  expect_refused(stealing(.06, 10), "stolen time", "6.0 %");
  EXPECT_EQ(judge(stealing(.04, 10)).outcome, Outcome::faster);
  EXPECT_EQ(judge(stealing(.06, .1)).outcome, Outcome::faster) << "a tick of the kernel's clock is no share";
  EXPECT_EQ(check(judge(clean()), "stolen time").state, CheckState::skipped) << "who does not know, says so";
}

TEST(AbJudge, SameExperimentSameVerdict) {
  const Experiment e = clean(.01);
  const Verdict first = judge(e), second = judge(e);
  ASSERT_EQ(first.checks.size(), second.checks.size());
  for (size_t i = 0; i < first.checks.size(); ++i) EXPECT_EQ(first.checks[i].detail, second.checks[i].detail);
  EXPECT_EQ(first.estimate->log_ratio, second.estimate->log_ratio);
}

TEST(AbJudge, HigherFiguresAreBetterWhereDeclared) {
  Experiment e = clean(.02);
  e.design.metric = Metric::figure;
  e.design.higher_is_better = true;  // B's values are lower
  EXPECT_EQ(judge(e).outcome, Outcome::slower);
}

TEST(AbJudge, RefusesUnderSixPairs) { expect_refused(clean(.02, 4), "enough pairs", "4 complete"); }
TEST(AbJudge, SixPairsAreEnough) { EXPECT_EQ(judge(clean(.05, 6)).outcome, Outcome::faster); }

TEST(AbJudge, RefusesAnInterruptedExperiment) {
  Experiment e = clean(.02);
  e.observations.resize(e.observations.size() - 6);
  expect_refused(e, "pairs as planned", "12 were planned");
}

TEST(AbJudge, RefusesAnExperimentThatEndedInThePilot) {
  Experiment e = clean(.02);
  e.design.pairs = 0;
  std::erase_if(e.observations, [](const Observation& o) { return o.run.kind != RunKind::pilot; });
  const Verdict v = judge(e);
  EXPECT_EQ(v.outcome, Outcome::refused);
  EXPECT_NE(check(v, "pairs as planned").detail.find("pilot"), std::string::npos);
  EXPECT_EQ(check(v, "order of the seed").state, CheckState::passed);
}

TEST(AbJudge, OpeningsThatDifferAreNoDifferenceOfTheArms) {
  // Of 60 experiments with identical arms the nominal rate gives up to 7 false verdicts; judged by runs, as
  // if each arm's openings were one, nearly all.
  const SyntheticArms identical{0, .002, {.opening = .03}, 0};
  int opened_anew = 0, opened_once = 0;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    SyntheticArms arms = identical;
    arms.seed = seed;
    Design design = synthetic_design(12, seed, 2);
    const auto speaks = [&] {
      const Outcome outcome = judge(synthetic_experiment(design, arms)).outcome;
      return outcome == Outcome::faster || outcome == Outcome::slower ? 1 : 0;
    };
    opened_anew += speaks();
    design.open_once = true, design.runs = 1;
    opened_once += speaks();
  }
  EXPECT_LE(opened_anew, 7);
  EXPECT_GE(opened_once, 45);
}

TEST(AbJudge, OneOpeningOfEachIsSaidNotToBeCovered) {
  Design design = synthetic_design(12, schedule_seed);
  EXPECT_EQ(check(judge(synthetic_experiment(design, {.02, .005, {}, 11})), "openings").state,
            CheckState::passed);
  design.open_once = true;
  const Verdict v = judge(synthetic_experiment(design, {.02, .005, {}, 11}));
  EXPECT_EQ(v.outcome, Outcome::faster);
  EXPECT_EQ(check(v, "openings").state, CheckState::skipped);
  EXPECT_NE(check(v, "openings").detail.find("not covered"), std::string::npos);
}

TEST(AbJudge, RefusesANumberOfPairsChangedAfterLooking) {
  const Verdict v = judge(clean(.02), 16);
  EXPECT_EQ(v.outcome, Outcome::refused);
  EXPECT_NE(check(v, "pairs as planned").detail.find("16"), std::string::npos);
  EXPECT_EQ(judge(clean(.02), 12).outcome, Outcome::faster);
}

TEST(AbJudge, RefusesAnOrderThatIsNotTheSeeds) {
  Experiment e = clean(.02);
  e.design.seed = schedule_seed + 1;
  expect_refused(e, "order of the seed", "is not the one");
}

TEST(AbJudge, RefusesABlockedOrder) {
  const auto order = blocked_order(12);
  const Verdict v =
      judge(synthetic_experiment(order, synthetic_design(12, schedule_seed), {0, .005, {.drift = .003}, 11}));
  EXPECT_EQ(v.outcome, Outcome::refused);
  EXPECT_EQ(check(v, "order of the seed").state, CheckState::failed);
  EXPECT_EQ(check(v, "order").state, CheckState::failed) << "position and arm cannot be told apart";
  EXPECT_EQ(check(v, "null pairs").state, CheckState::failed) << "there are none";
}

TEST(AbJudge, RefusesUnequalTokens) {
  Experiment e = clean(.02);
  for (auto& o : e.observations)
    if (o.run.arm == Side::b) o.tokens_hash = 99;
  expect_refused(e, "equal tokens", "different work");
  e.design.allow_different_tokens = true;
  const Verdict v = judge(e);
  EXPECT_EQ(v.outcome, Outcome::faster);
  EXPECT_NE(check(v, "equal tokens").detail.find("DIFFER"), std::string::npos);
}

TEST(AbJudge, RefusesAnArmThatDoesNotRepeatItselfWhateverIsAllowed) {
  Experiment e = clean(.02);
  e.design.allow_different_tokens = true;
  e.observations.back().tokens_hash = 99;
  expect_refused(e, "equal tokens", "does not repeat itself");
}

TEST(AbJudge, WarmUpsAreNotJudged) {
  Experiment e = clean(.02);
  e.observations.front().tokens_hash = 99;
  e.observations.front().value = 1e6;
  e.observations.front().start.filled = 3;
  e.observations.front().unattributed_ns = e.observations.front().wall_ns;
  EXPECT_EQ(judge(e).outcome, Outcome::faster);
}

TEST(AbJudge, RefusesStartsThatDifferWithoutReason) {
  Experiment e = clean(.02);
  e.observations.back().start.fingerprint = 2;
  expect_refused(e, "equal starts", "did not always start");
  e = clean(.02);
  for (auto& o : e.observations)
    if (o.run.arm == Side::b) o.start.fingerprint = 2;
  expect_refused(e, "equal starts", "do not imply it");
  e.setting.same_slots = false;  // 16 slots against 32: implied
  EXPECT_EQ(judge(e).outcome, Outcome::faster);
}

TEST(AbJudge, RefusesAColdStartThatIsNotCold) {
  Experiment e = clean(.02);
  e.design.cache = CachePolicy::cold;
  expect_refused(e, "equal starts", "cold");
  for (auto& o : e.observations) o.start.filled = 0;
  EXPECT_EQ(judge(e).outcome, Outcome::faster);
}

TEST(AbJudge, RefusesPageCachesThatDifferWithoutReason) {
  Experiment e = clean(.02);
  e.setting.model_bytes = 1000;
  for (auto& o : e.observations) o.start.page_cache_bytes = o.run.arm == Side::b ? 560 : 500;
  expect_refused(e, "equal starts", "page cache");
  e.setting.same_pages = false;
  EXPECT_EQ(judge(e).outcome, Outcome::faster);
  e.setting.same_pages = true;
  for (auto& o : e.observations) o.start.page_cache_bytes = o.run.arm == Side::b ? 540 : 500;
  EXPECT_EQ(judge(e).outcome, Outcome::faster) << "4 % is within the tolerance";
}

TEST(AbJudge, RefusesCoverageUnder99Percent) {
  Experiment e = clean(.02);
  for (auto& o : e.observations)
    if (o.run.arm == Side::b) o.unattributed_ns = o.wall_ns / 99;
  expect_refused(e, "coverage", "under 99 %");
}

TEST(AbJudge, RefusesNullPairsThatDiffer) {
  Experiment e = clean(.05);
  rescale(e, [](const Observation& o) {
    return o.run.kind == RunKind::null_pair && o.run.label == Side::b ? 1.03 : 1;
  });
  expect_refused(e, "null pairs", "an arm against itself");
}

/// Sets the pairs' log ratios, by which arm came first.
void set_ratios(Experiment& e, const std::vector<double>& a_first, const std::vector<double>& b_first) {
  size_t next[2] = {};
  for (const auto& pair : complete_pairs(e, RunKind::pair)) {
    const double ratio = (pair.first == Side::a ? a_first : b_first).at(next[index(pair.first)]++);
    for (auto& o : e.observations)
      if (&o == pair.b.front()) o.value = pair.a.front()->value * std::exp(-ratio);
  }
}

TEST(AbJudge, RefusesWhereTheOrderFlipsTheVerdict) {
  // With A first nothing, with B first much: together it looks resolved.
  Experiment e = clean();
  set_ratios(e, {-.003, -.002, -.001, -.0015, .002, .001}, {.03, .031, .032, .033, .034, .035});
  expect_refused(e, "order", "which arm ran first");
}

TEST(AbJudge, RefusesWhereTakingTheOrderEffectOutChangesTheVerdict) {
  // The orders disagree and nothing is resolved. Without the effect of position, everything would be.
  Experiment e = clean();
  set_ratios(e, {-.012, -.010, -.009, -.007, -.011, -.010}, {.040, .041, .042, .043, .044, .045});
  expect_refused(e, "order", "which arm ran first");
}

TEST(AbJudge, AnOrderEffectWithNothingToFlipIsOnlyReported) {
  // The second opening of a pair is 3 % faster, whichever arm it is, and the arms are alike.
  Experiment e = clean();
  set_ratios(e, {-.034, -.030, -.026, -.035, -.025, -.030}, {.034, .030, .026, .035, .025, .030});
  const Verdict v = judge(e);
  EXPECT_EQ(v.outcome, Outcome::unresolved);
  EXPECT_LT(*check(v, "order").p, refusal_level);
  EXPECT_NE(check(v, "order").detail.find("nothing would be resolved either"), std::string::npos);
}

TEST(AbJudge, AnOrderEffectThatChangesNothingIsOnlyReported) {
  const Verdict v = judge(synthetic_experiment(12, schedule_seed, {.06, .005, {.second = .03}, 11}));
  EXPECT_EQ(v.outcome, Outcome::faster);
  EXPECT_NE(check(v, "order").detail.find("both orders say the same"), std::string::npos);
}

TEST(AbJudge, RefusesDifferencesThatDrift) {
  Experiment e = clean(.05);
  rescale(e, [](const Observation& o) {
    return o.run.kind == RunKind::pair && o.run.arm == Side::b ? 1 - .004 * o.run.pair : 1;
  });
  expect_refused(e, "drift", "from the first pair to the last");
}

TEST(AbJudge, RefusesAControlThatMoved) {
  Experiment e = clean(.02);
  for (auto& o : e.observations)
    if (o.run.arm == Side::b) o.role_ns[2] += o.role_ns[2] / 50;
  expect_refused(e, "negative control", "head");
  e.design.negative_control.clear();
  EXPECT_EQ(judge(e).outcome, Outcome::faster);
}

TEST(AbJudge, RefusesAControlThatNeverRan) {
  Experiment e = clean(.02);
  for (auto& o : e.observations) o.role_ns[2] = 0;
  expect_refused(e, "negative control", "controls nothing");
  e.design.negative_control = "nonsense";
  expect_refused(e, "negative control", "no role nonsense");
}

TEST(AbJudge, CommandsSkipWhatNeedsALedger) {
  Experiment e = clean(.02);
  e.design.commands = true;
  e.design.negative_control.clear();
  e.setting.roles.clear();
  for (auto& o : e.observations) o.role_ns.clear(), o.tokens_hash = static_cast<uint64_t>(o.value);
  const Verdict v = judge(e);
  EXPECT_EQ(v.outcome, Outcome::faster);
  for (const char* name : {"equal tokens", "equal starts", "coverage", "negative control"})
    EXPECT_EQ(check(v, name).state, CheckState::skipped) << name;
}

TEST(AbJudge, EqualFiguresAreNoDifference) {
  Experiment e = clean();
  for (auto& o : e.observations) o.value = 12.3;
  const Verdict v = judge(e);
  EXPECT_EQ(v.outcome, Outcome::unresolved);
  EXPECT_EQ(v.estimate->ties, 12);
}

TEST(AbJudge, AnEmptyExperimentIsRefused) {
  Experiment e = clean();
  e.observations.clear();
  EXPECT_EQ(judge(e).outcome, Outcome::refused);
}

}  // namespace
}  // namespace weir::lab::ab
