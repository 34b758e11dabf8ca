// A schedule carried out: every run stored before the next begins, and what an interrupt or an error leaves.
#include "lab/ab/conduct.h"

#include <gtest/gtest.h>

#include <functional>

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
  EXPECT_TRUE(conduct(experiment_, runner_, {out_, [&](size_t done, size_t total) {
                                               progress.push_back(done);
                                               EXPECT_EQ(total, source_.observations.size());
                                             }}));
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
  EXPECT_FALSE(conduct(experiment_, runner_, {out_}));
  EXPECT_EQ(stored(), 11u);
  EXPECT_EQ(judge(read_observations(out_)).outcome, Outcome::refused);
}

TEST_F(AbConduct, AnErrorLeavesTheRuns) {
  runner_.before = [](size_t next) -> bool {
    if (next == 5) throw failure("arm A: broken");
    return true;
  };
  EXPECT_THROW(conduct(experiment_, runner_, {out_}), Error);
  EXPECT_EQ(stored(), 5u);
}

TEST_F(AbConduct, ABadPathShowsBeforeTheFirstRun) {
  runner_.before = [](size_t) -> bool {
    ADD_FAILURE() << "ran";
    return false;
  };
  EXPECT_THROW(conduct(experiment_, runner_, {dir_.file("none/ab.json")}), Error);
}

}  // namespace
}  // namespace weir::lab::ab
