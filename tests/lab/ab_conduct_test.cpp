// A schedule carried out: every run stored before the next begins, and what an interrupt or an error leaves.
#include "lab/ab/conduct.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <filesystem>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>

#include "base/error.h"
#include "lab/ab/judge.h"
#include "lab/ab/observations.h"
#include "lab/ab/schedule.h"
#include "lab/ab/synthetic.h"
#include "support/temp_dir.h"

namespace weir::lab::ab {
namespace {

/// Answers from a finished experiment.
class Canned : public Runner {
 public:
  explicit Canned(const Experiment& source) : source_(source) {}
  std::function<bool(size_t)> before;  ///< false: interrupted
  std::optional<Observation> observe(const PlannedRun& run) override {
    if (before && !before(next_)) return std::nullopt;
    Observation o = source_.observations.at(next_++);
    EXPECT_EQ(o.run, run);
    o.run = {}, o.started_s = -1;  // the conductor's to fill
    return o;
  }

 private:
  const Experiment& source_;
  size_t next_ = 0;
};

class AbConduct : public testing::Test {
 protected:
  AbConduct() { experiment_.design = source_.design, experiment_.setting = source_.setting; }
  ConductOptions options() const { return {out_, {.pairs = 6, .runs = 1}}; }
  size_t stored() const { return read_observations(out_).observations.size(); }
  test::TempDir dir_;
  std::string out_ = dir_.file("ab.json");
  Experiment source_ = synthetic_experiment(6, 3, {.04, .005, {}, 2});
  Experiment experiment_;
  Canned runner_{source_};
};

TEST_F(AbConduct, EveryRunIsStoredBeforeTheNext) {
  runner_.before = [&](size_t next) {
    EXPECT_EQ(stored(), next);
    return true;
  };
  std::vector<size_t> progress;
  ConductOptions watched = options();
  watched.on_progress = [&](const char* stage, size_t done, size_t total) {
    progress.push_back(done);
    EXPECT_EQ(total, done < 2 ? 2 : source_.observations.size()) << stage;
    EXPECT_EQ(std::string(stage), done < 2 ? "pilot" : "comparing");
  };
  EXPECT_TRUE(conduct(experiment_, runner_, watched));
  EXPECT_EQ(progress.size(), source_.observations.size());
  const Experiment back = read_observations(out_);
  ASSERT_EQ(back.observations.size(), source_.observations.size());
  double before = 0;
  for (size_t i = 0; i < back.observations.size(); ++i) {
    EXPECT_EQ(back.observations[i].run, source_.observations[i].run);
    EXPECT_EQ(back.observations[i].value, source_.observations[i].value);
    EXPECT_GE(back.observations[i].started_s, before);
    before = back.observations[i].started_s;
  }
  EXPECT_EQ(judge(back).outcome, judge(source_).outcome);
}

TEST_F(AbConduct, AnInterruptLeavesTheRunsButNoVerdict) {
  runner_.before = [](size_t next) { return next < 11; };
  EXPECT_FALSE(conduct(experiment_, runner_, options()));
  EXPECT_EQ(stored(), 11u);
  EXPECT_EQ(judge(read_observations(out_)).outcome, Outcome::refused);
}

TEST_F(AbConduct, AnErrorLeavesTheRuns) {
  runner_.before = [](size_t next) -> bool {
    if (next == 5) throw failure("arm A: broken");
    return true;
  };
  EXPECT_THROW(conduct(experiment_, runner_, options()), Error);
  EXPECT_EQ(stored(), 5u);
}

TEST_F(AbConduct, ABadPathShowsBeforeTheFirstRun) {
  runner_.before = [](size_t) -> bool {
    ADD_FAILURE() << "ran";
    return false;
  };
  EXPECT_THROW(conduct(experiment_, runner_, {dir_.file("none/ab.json"), {}}), Error);
}

/// Openings and runs that take their time and differ.
class Paced : public Runner {
 public:
  double opening_spread = 0;
  bool stays_open = false;
  int opening_ms = 0, openings = 0;
  std::optional<Observation> observe(const PlannedRun& run) override {
    if (run.opening != opening_) {
      opening_ = run.opening, ++openings;
      std::this_thread::sleep_for(std::chrono::milliseconds(opening_ms));
    }
    Observation o = template_;
    o.metric_ns = o.wall_ns = static_cast<uint64_t>(5e7 * std::exp(opening_spread * (run.opening % 3)));
    o.value = static_cast<double>(o.metric_ns) * 1e-6;
    o.role_ns = {o.metric_ns, 0, 0, 0};
    return o;
  }
  bool can_stay_open() const override { return stays_open; }

 private:
  Observation template_ = synthetic_experiment(6, 3, {}).observations.front();
  int opening_ = -1;
};

const Check& check(const Verdict& v, const std::string& name) {
  for (const auto& c : v.checks)
    if (c.name == name) return c;
  throw std::out_of_range(name);
}

TEST_F(AbConduct, ThePilotTellsTheNumbers) {
  Paced alike, apart;
  apart.opening_spread = .03;
  for (Paced* runner : {&alike, &apart}) {
    std::filesystem::remove(out_);
    Experiment e;
    e.design = source_.design, e.setting = source_.setting;
    std::optional<Numbers> numbers;
    ConductOptions o{out_, {}};
    o.on_numbers = [&](const Numbers& n) { numbers = n; };
    ASSERT_TRUE(conduct(e, *runner, o));
    ASSERT_TRUE(numbers);
    EXPECT_EQ(e.design.pilot_openings, 8);
    EXPECT_EQ(e.design.pilot_runs, 2);
    if (runner == &alike)
      EXPECT_EQ(e.design.pairs, least_chosen_pairs);
    else
      EXPECT_GT(e.design.pairs, least_chosen_pairs);
    EXPECT_EQ(runner->openings, 8 + 2 * (e.design.pairs + null_pairs(e.design.pairs)));
    EXPECT_NE(e.design.numbers.find("pilot of 8 openings"), std::string::npos) << e.design.numbers;
    EXPECT_EQ(check(judge(read_observations(out_)), "order of the seed").state, CheckState::passed);
  }
}

TEST_F(AbConduct, WhereNoTimeIsLeftEachArmIsOpenedOnce) {
  Paced slow;
  slow.opening_ms = 20, slow.stays_open = true;
  ConductOptions o{out_, {.limit_s = .2}};
  ASSERT_TRUE(conduct(experiment_, slow, o));
  EXPECT_TRUE(experiment_.design.open_once);
  EXPECT_EQ(experiment_.design.pilot_openings, 2) << "the pilot ends early";
  EXPECT_NE(experiment_.design.numbers.find("opened once"), std::string::npos) << experiment_.design.numbers;
  EXPECT_EQ(check(judge(experiment_), "openings").state, CheckState::skipped);
}

TEST_F(AbConduct, AnInterruptInThePilotLeavesAReadableFile) {
  runner_.before = [](size_t next) { return next < 1; };
  EXPECT_FALSE(conduct(experiment_, runner_, options()));
  EXPECT_EQ(stored(), 1u);
  EXPECT_EQ(judge(read_observations(out_)).outcome, Outcome::refused);
}

}  // namespace
}  // namespace weir::lab::ab
