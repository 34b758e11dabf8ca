// A short version of tools/ab_proof.py: whole experiments, from the schedule to the verdict, on commands
// whose figures are drawn from known distributions, so that no load of the machine can move them.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "lab/ab/command_arms.h"
#include "lab/ab/judge.h"
#include "lab/ab/observations.h"
#include "lab/ab/synthetic.h"
#include "support/temp_dir.h"

namespace weir::lab::ab {
namespace {

constexpr int figures = 500;

/// A file with a figure a line, 3 % apart from start to start as openings are, `effect` better in the log.
std::string write_figures(const std::string& path, double effect, uint64_t seed) {
  std::vector<PlannedRun> starts(figures);
  for (int i = 0; i < figures; ++i) starts[static_cast<size_t>(i)].opening = i;
  std::string text;
  for (const double log_time : synthetic_log_times(starts, {0, .005, {.opening = .03}, seed}))
    text += fmt::format("{:.6f}\n", 100 * std::exp(effect - log_time));
  test::write_file(path, text);
  return path;
}

class AbProof : public testing::Test {
 protected:
  /// Each start prints its arm's next figure.
  std::string command(const std::string& arm, double effect, uint64_t seed) {
    const std::string file = write_figures(dir_.file(arm), effect, seed), counter = dir_.file(arm + ".next");
    test::write_file(counter, "0\n");
    return fmt::format("read n < {0}; n=$((n + 1)); echo $n > {0}; exec sed -n ${{n}}p {1}", counter, file);
  }
  Outcome experiment(const std::string& a, const std::string& b, int pairs, uint64_t seed) {
    Experiment e;
    e.design.commands = e.design.higher_is_better = true;
    e.design.metric = Metric::figure;
    e.design.arms = {a, b};
    e.design.seed = seed;
    e.design.prompts = {{"none", 0, 0}};
    CommandArms runner({e.design.arms, "(.+)", {""}, nullptr});
    const std::string out = dir_.file(fmt::format("{}.json", seed));
    EXPECT_TRUE(conduct(e, runner, {out, {.pairs = pairs}}));
    const Outcome outcome = judge(e).outcome;
    EXPECT_EQ(judge(read_observations(out)).outcome, outcome) << "judged again";
    return outcome;
  }
  test::TempDir dir_;
};

TEST_F(AbProof, IdenticalCommandsGetFewFalseVerdicts) {
  const std::string a = command("a", 0, 1), b = command("b", 0, 2);
  int false_verdicts = 0;
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    const Outcome outcome = experiment(a, b, 8, seed);
    false_verdicts += outcome == Outcome::faster || outcome == Outcome::slower ? 1 : 0;
  }
  EXPECT_LE(false_verdicts, 2) << "99.8 % of such sixes";
}

TEST_F(AbProof, ATrueDifferenceOfFivePercentIsFoundOrRefused) {
  const std::string a = command("a", 0, 3), b = command("b", std::log(1.05), 4);
  int found = 0;
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    const Outcome outcome = experiment(a, b, 12, seed);
    EXPECT_NE(outcome, Outcome::slower) << seed;
    found += outcome == Outcome::faster || outcome == Outcome::refused ? 1 : 0;
  }
  EXPECT_GE(found, 2);
}

}  // namespace
}  // namespace weir::lab::ab
