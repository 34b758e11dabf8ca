// Option sets as arms, on a tiny model: starts that are equal, accounts that add up, arms that cannot work.
#include "lab/ab/engine_arms.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <numeric>

#include "base/error.h"
#include "lab/ab/judge.h"
#include "support/temp_dir.h"
#include "support/tiny_model.h"

namespace weir::lab::ab {
namespace {

class AbEngineArms : public testing::Test {
 protected:
  EngineArm arm(int slots) {
    EngineArm a;
    a.options.model = model_;
    a.options.threads = 1;
    a.options.context = 64;
    a.options.memory = 1ull << 30;
    a.options.expert_slots = slots;
    return a;
  }
  EngineArms arms(EngineArm a, EngineArm b) {
    return EngineArms({std::move(a), std::move(b)}, prompts_, design_, room_, &cancel_);
  }
  static PlannedRun run(Side side, int prompt = 0, int opening = -1) {
    return {RunKind::pair, 0, 0, side, side, prompt, opening < 0 ? static_cast<int>(index(side)) : opening};
  }
  std::string refusal(EngineArm a, EngineArm b) {
    try {
      arms(std::move(a), std::move(b));
    } catch (const Error& e) {
      EXPECT_EQ(e.exit_code(), 2);
      return e.what();
    }
    return "accepted";
  }

  void SetUp() override { design_.predict = 8; }
  test::TempDir dir_;
  std::string model_ = test::write_tiny_model(dir_.file("tiny.gguf"));
  std::vector<Prompt> prompts_{{"p", "the quick brown fox"}, {"q", "another one"}};
  Design design_;
  uint64_t room_ = 1ull << 40;
  std::atomic<bool> cancel_{false};
};

TEST_F(AbEngineArms, AccountsAddUpToTheMetric) {
  for (const Metric metric : {Metric::decode, Metric::prefill, Metric::total}) {
    design_.metric = metric;
    auto runner = arms(arm(3), arm(8));
    const auto o = runner.observe(run(Side::a));
    ASSERT_TRUE(o);
    EXPECT_EQ(std::accumulate(o->role_ns.begin(), o->role_ns.end(), uint64_t{0}), o->metric_ns);
    EXPECT_EQ(o->role_ns.size(), runner.setting().roles.size());
    EXPECT_DOUBLE_EQ(o->value, static_cast<double>(o->metric_ns) * 1e-6);
    EXPECT_LE(o->metric_ns, o->wall_ns);
    EXPECT_EQ(o->metric_ns == o->wall_ns, metric == Metric::total);
    EXPECT_LT(o->unattributed_ns, o->wall_ns / 20);
    EXPECT_EQ(o->tokens, 8);
    EXPECT_GT(o->hits + o->misses, 0u);
    EXPECT_GT(o->peak_bytes, 1u << 20);
  }
}

TEST_F(AbEngineArms, WarmStartsAreFilledAndEqual) {
  auto runner = arms(arm(3), arm(3));
  EXPECT_TRUE(runner.setting().same_slots);
  const auto a = runner.observe(run(Side::a)), other_prompt = runner.observe(run(Side::a, 1)),
             again = runner.observe(run(Side::a)), b = runner.observe(run(Side::b));
  EXPECT_GT(a->start.filled, 0u);
  EXPECT_EQ(a->start.slots, 6u) << "3 in each of 2 layers";
  EXPECT_EQ(again->start.fingerprint, a->start.fingerprint);
  EXPECT_EQ(b->start.fingerprint, a->start.fingerprint);
  EXPECT_NE(other_prompt->start.fingerprint, a->start.fingerprint);
  EXPECT_EQ(b->tokens_hash, a->tokens_hash);
  EXPECT_EQ(again->misses, a->misses);
}

TEST_F(AbEngineArms, ColdStartsAreEmpty) {
  design_.cache = CachePolicy::cold;
  auto runner = arms(arm(8), arm(8));
  const auto first = runner.observe(run(Side::a)), second = runner.observe(run(Side::a));
  EXPECT_EQ(first->start.filled, 0u);
  EXPECT_EQ(second->start.filled, 0u);
  EXPECT_EQ(second->misses + second->hits, first->misses + first->hits);
}

TEST_F(AbEngineArms, ColdStartsFindNothingInThePageCache) {
  design_.cache = CachePolicy::cold;
  const int fd = open(model_.c_str(), O_RDONLY);
  fsync(fd);  // what is not on disk yet cannot be dropped
  close(fd);
  EngineArm buffered = arm(3);
  buffered.options.reader.mode = IoMode::buffered;
  auto runner = arms(buffered, buffered);
  runner.observe(run(Side::a));  // loads
  test::read_file(model_);       // as a run of another program leaves it
  const auto o = runner.observe(run(Side::a));
  if (!o->start.page_cache_bytes) GTEST_SKIP() << "this kernel cannot tell what is cached";
  EXPECT_LT(*o->start.page_cache_bytes, runner.setting().model_bytes / 10);
}

TEST_F(AbEngineArms, SlotsShowInHitsAndInWhatTheOptionsImply) {
  auto runner = arms(arm(2), arm(8));
  EXPECT_FALSE(runner.setting().same_slots);
  const auto a = runner.observe(run(Side::a)), b = runner.observe(run(Side::b));
  EXPECT_GT(a->misses, b->misses);
  EXPECT_EQ(b->misses, 0u) << "warm, and every expert it used has a slot";
  EXPECT_EQ(a->tokens_hash, b->tokens_hash);
}

TEST_F(AbEngineArms, DesignNamesModelAndPrompts) {
  auto runner = arms(arm(3), arm(3));
  EXPECT_EQ(design_.model, model_);
  EXPECT_NE(design_.fingerprint, 0u);
  ASSERT_EQ(design_.prompts.size(), 2u);
  EXPECT_GT(design_.prompts[0].tokens, 3);
  EXPECT_NE(design_.prompts[0].hash, design_.prompts[1].hash);
}

TEST_F(AbEngineArms, EachOpeningIsAloneAndBeginsFromAnEqualStart) {
  auto runner = arms(arm(3), arm(3));
  const auto first = runner.observe(run(Side::a, 0, 0)), again = runner.observe(run(Side::a, 0, 0)),
             b = runner.observe(run(Side::b, 0, 1)), reopened = runner.observe(run(Side::a, 0, 2));
  for (const auto& o : {again, b, reopened}) {
    EXPECT_EQ(o->tokens_hash, first->tokens_hash);
    EXPECT_EQ(o->start.fingerprint, first->start.fingerprint) << "loaded anew, but from an equal start";
    EXPECT_EQ(o->misses, first->misses);
  }
}

TEST_F(AbEngineArms, ArmsThatFitTogetherCanStayOpen) {
  auto both = arms(arm(3), arm(3));
  EXPECT_TRUE(both.can_stay_open());
  room_ = 2 * both.setting().arms[0].plan_bytes - 1;
  EXPECT_FALSE(arms(arm(3), arm(3)).can_stay_open());
  design_.open_once = true;
  const auto a = both.observe(run(Side::a)), b = both.observe(run(Side::b)),
             again = both.observe(run(Side::a));
  EXPECT_EQ(again->start.fingerprint, a->start.fingerprint);
  EXPECT_EQ(b->tokens_hash, a->tokens_hash);
}

TEST_F(AbEngineArms, FrozenPromptsAreCutToTheSmallerContext) {
  prompts_ = frozen_prompts();
  EngineArm narrow = arm(3);
  narrow.options.context = 40;
  auto runner = arms(arm(3), narrow);
  for (const auto& prompt : design_.prompts) EXPECT_LE(prompt.tokens, 40 - design_.predict);
  const auto a = runner.observe(run(Side::a, 2)), b = runner.observe(run(Side::b, 2));
  EXPECT_EQ(a->tokens_hash, b->tokens_hash) << "the same tokens in both";
}

TEST_F(AbEngineArms, AnArmThatCannotFitAloneIsNamed) {
  EngineArm small = arm(3);
  small.options.memory = 1 << 20;
  const std::string error = refusal(arm(3), small);
  EXPECT_EQ(error.rfind("arm B: ", 0), 0u) << error;
}

TEST_F(AbEngineArms, APromptOverTheContextIsNamed) {
  design_.predict = 60;
  const std::string error = refusal(arm(3), arm(3));
  EXPECT_EQ(error.rfind("arm A: p: ", 0), 0u) << error;
  EXPECT_NE(error.find("context of 64"), std::string::npos) << error;
}

TEST_F(AbEngineArms, AnInterruptEndsTheRun) {
  auto runner = arms(arm(3), arm(3));
  cancel_ = true;
  EXPECT_FALSE(runner.observe(run(Side::a)));
}

}  // namespace
}  // namespace weir::lab::ab
