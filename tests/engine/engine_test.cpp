// The engine's requests: how they end, what they refuse, that the account adds up.
#include "engine/engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <vector>

#include "support/paths.h"

namespace weir {
namespace {

using ::testing::HasSubstr;

EngineOptions options() {
  EngineOptions o;
  o.model = testing::pocket_model();
  o.context = 128;
  o.threads = 2;
  o.expert_slots = 12;
  return o;
}

std::unique_ptr<Engine> open(const EngineOptions& o) {
  auto engine = std::make_unique<Engine>(o);
  engine->load();
  return engine;
}

Request request(int n) {
  Request r;
  r.prompt = {100, 200, 300, 400, 500};
  r.max_tokens = n;
  r.sampler.greedy = true;
  r.ignore_eos = true;
  return r;
}

std::string refusal(Engine& engine, Request r) {
  try {
    engine.submit(std::move(r));
  } catch (const Error& e) {
    EXPECT_EQ(e.exit_code(), 2);
    return e.what();
  }
  return "accepted";
}

TEST(Engine, StopsAtTheAskedLength) {
  const auto engine = open(options());
  const Result r = engine->run(request(9));
  EXPECT_EQ(r.finish, Finish::length);
  EXPECT_EQ(r.tokens.size(), 9u);
  EXPECT_EQ(r.timings.prompt_n, 5);
  EXPECT_EQ(r.timings.predicted_n, 9);
  EXPECT_GT(r.timings.prompt_ms, 0);
  EXPECT_GT(r.timings.predicted_ms, 0);
}

TEST(Engine, StopsWhenTheContextIsFull) {
  EngineOptions o = options();
  o.context = 16;
  const auto engine = open(o);
  const Result r = engine->run(request(-1));
  EXPECT_EQ(r.finish, Finish::context);
  EXPECT_EQ(r.tokens.size(), 16u - 5u);
}

TEST(Engine, StopsAtTheEndOfTextAndLeavesItOut) {
  const auto engine = open(options());
  Request r = request(100);
  r.ignore_eos = false;
  r.prompt = engine->tokenizer().encode(
      "<|im_start|>user\nWhat does the command grep do?<|im_end|>\n<|im_start|>assistant\n", {});
  const Result result = engine->run(r);
  EXPECT_EQ(result.finish, Finish::end_of_text);
  for (const Token t : result.tokens) EXPECT_FALSE(engine->tokenizer().is_end(t));
  r.ignore_eos = true;
  const Result longer = engine->run(r);
  EXPECT_GT(longer.tokens.size(), result.tokens.size());
  for (const Token t : longer.tokens)
    EXPECT_FALSE(engine->tokenizer().is_end(t)) << "--ignore-eos bans the token";
}

TEST(Engine, EvaluatesOnlyWhereNothingIsToBeGenerated) {
  const auto engine = open(options());
  Request r = request(0);
  std::vector<int> seen;
  r.on_logits = [&](int position, std::span<const float> logits) {
    seen.push_back(position);
    EXPECT_EQ(logits.size(), 8192u);
  };
  r.logits_from = 2;
  const Result result = engine->run(r);
  EXPECT_TRUE(result.tokens.empty());
  EXPECT_EQ(seen, (std::vector<int>{2, 3, 4}));
}

TEST(Engine, ShowsLogitsOfEveryEvaluatedPositionOnce) {
  EngineOptions o = options();
  o.prefill_chunk = 3;
  const auto engine = open(o);
  Request r = request(4);
  std::vector<int> seen;
  r.on_logits = [&](int position, std::span<const float>) { seen.push_back(position); };
  engine->run(r);
  EXPECT_EQ(seen, (std::vector<int>{0, 1, 2, 3, 4, 5, 6, 7})) << "5 prompt positions and 3 decode steps";
}

TEST(Engine, ForcedTokensAreTaken) {
  const auto engine = open(options());
  Request r = request(3);
  r.forced = {11, 12, 13};
  EXPECT_EQ(engine->run(r).tokens, r.forced);
}

TEST(Engine, CancelEndsWithWhatWasGenerated) {
  const auto engine = open(options());
  std::atomic<bool> cancel{false};
  Request r = request(50);
  r.cancel = &cancel;
  int n = 0;
  r.on_token = [&](Token) { cancel = ++n == 3; };
  const Result result = engine->run(r);
  EXPECT_EQ(result.finish, Finish::cancelled);
  EXPECT_EQ(result.tokens.size(), 3u);
}

TEST(Engine, CancelClosesTheAccount) {
  EngineOptions o = options();
  o.ledger.enabled = true;
  const auto engine = open(o);
  std::atomic<bool> cancel{false};
  Request r = request(50);
  r.cancel = &cancel;
  r.on_token = [&](Token) { cancel = true; };
  EXPECT_EQ(engine->run(r).finish, Finish::cancelled);
  EXPECT_FALSE(engine->ledger()->running());
}

TEST(Engine, WaitingRequestsTakeFreeLanes) {
  EngineOptions o = options();
  o.lanes = 2;
  const auto engine = open(o);
  for (int i = 0; i < 5; ++i) engine->submit(request(3 + i));
  while (engine->step()) {
  }
  const auto results = engine->take_finished();
  ASSERT_EQ(results.size(), 5u);
  for (const auto& r : results) EXPECT_EQ(r.tokens.size(), 3u + static_cast<size_t>(r.id));
}

TEST(Engine, RefusesWhatItCannotServe) {
  const auto engine = open(options());
  Request empty = request(3);
  empty.prompt.clear();
  EXPECT_THAT(refusal(*engine, empty), HasSubstr("prompt is empty"));
  Request outside = request(3);
  outside.prompt = {1, 8192};
  EXPECT_THAT(refusal(*engine, outside), HasSubstr("8192"));
  Request lengthy = request(3);
  lengthy.prompt.assign(128, 5);
  EXPECT_THAT(refusal(*engine, lengthy), HasSubstr("128"));
  EXPECT_EQ(engine->run(request(2)).tokens.size(), 2u) << "a refusal leaves the engine usable";
}

TEST(Engine, RefusesAContextOverTheModels) {
  EngineOptions o = options();
  o.context = 4096;
  try {
    Engine engine(o);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.exit_code(), 2);
    EXPECT_THAT(e.what(), HasSubstr("2048"));
  }
}

TEST(Engine, RefusesABudgetBelowTheFloorWithTheNumbersThatWouldFit) {
  EngineOptions o = options();
  o.expert_slots.reset();
  o.memory = 4 << 20;
  try {
    Engine engine(o);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.exit_code(), 2);
    EXPECT_THAT(e.what(), HasSubstr("MiB"));
  }
}

TEST(Engine, TheLedgerAddsUpToWall) {
  EngineOptions o = options();
  o.ledger.enabled = true;
  o.lanes = 2;
  const auto engine = open(o);
  engine->submit(request(10));
  engine->submit(request(12));
  while (engine->step()) {
  }
  for (const Phase phase : {Phase::prefill, Phase::decode}) {
    const PhaseAccount& account = engine->ledger()->phase(phase);
    uint64_t sum = 0;
    for (const auto& role : account.roles) sum += role.per_round.sum_ns;
    EXPECT_EQ(sum, account.wall_ns);
    EXPECT_GT(account.rounds.count, 0u);
    EXPECT_LT(account.roles[static_cast<size_t>(Role::unattributed)].per_round.sum_ns, account.wall_ns / 100);
  }
  EXPECT_EQ(engine->ledger()->phase(Phase::decode).rounds.count, 11u);
  EXPECT_EQ(engine->ledger()->phase(Phase::prefill).rows, 10u);
  EXPECT_FALSE(engine->ledger()->running()) << "the account closes with the last token";
}

TEST(Engine, ResetExpertsGivesEveryRunTheSameStart) {
  const auto engine = open(options());
  const SlotsState fresh = engine->expert_slots();
  EXPECT_GT(fresh.slots, 0u);
  EXPECT_EQ(fresh.filled, 0u);
  const Result first = engine->run(request(6));
  const SlotsState after = engine->expert_slots();
  const uint64_t misses = engine->expert_counters().misses;
  EXPECT_GT(after.filled, 0u);
  engine->reset_experts();
  EXPECT_EQ(engine->expert_slots().fingerprint, fresh.fingerprint);
  const Result second = engine->run(request(6));
  EXPECT_EQ(second.tokens_hash, first.tokens_hash);
  EXPECT_EQ(engine->expert_slots().fingerprint, after.fingerprint);
  EXPECT_EQ(engine->expert_counters().misses, 2 * misses);
}

}  // namespace
}  // namespace weir
