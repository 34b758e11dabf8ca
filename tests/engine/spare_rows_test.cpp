// Models whose head has more rows than the tokenizer has tokens (published ones are padded so), or fewer.
#include "engine/device_cases.h"
#include "support/temp_dir.h"
#include "support/tiny_model.h"

namespace weir {
namespace {

constexpr int spare = 2000;  // against 264 tokens: the largest logit is nearly always one of these

class SpareRows : public ::testing::Test {
 protected:
  EngineOptions with_rows(int spare_rows) {
    EngineOptions o;
    test::TinyModelOptions model;
    model.spare_rows = spare_rows;
    o.model = test::write_tiny_model(dir_.file("tiny.gguf"), model);
    o.context = 128;
    o.threads = 2;
    o.lanes = 2;
    return o;
  }
  /// Greedy, sampled (even where every logit is drawn from) and penalised.
  static std::vector<Request> requests() {
    Request greedy;
    greedy.prompt = {1, 2, 3, 4, 5};
    greedy.max_tokens = 40;
    greedy.ignore_eos = true;
    greedy.sampler.greedy = true;
    Request sampled = greedy, penalised = greedy, hashed = greedy;
    sampled.sampler = {.temperature = 5, .top_k = 0, .top_p = 1, .min_p = 0, .seed = 3};
    penalised.sampler.repeat_penalty = 1.5f;
    penalised.prompt.push_back(264 + spare - 1);  // a prompt may hold what cannot be chosen
    hashed.hash_logits = true;
    return {greedy, sampled, penalised, hashed};
  }
  test::TempDir dir_;
};

TEST_F(SpareRows, AreNeverChosenOnEitherDevice) {
  EngineOptions o = with_rows(spare);
  std::vector<Result> results[2];
  for (int side = 0; side < 2; ++side) {
    const Deferred deferred;
    if (side == 1) deferred.put_into(o);
    const auto engine = open(o);
    results[side] = run_all(*engine, requests());
    for (const Result& r : results[side]) {
      EXPECT_EQ(r.error, "");
      EXPECT_EQ(r.tokens.size(), 40u);
      for (const Token token : r.tokens) EXPECT_LT(token, engine->tokenizer().size());
    }
  }
  expect_equal(results[0], results[1]);
}

TEST_F(SpareRows, StayAmongTheLogitsThatAreShown) {
  const auto engine = open(with_rows(spare));
  Request r = requests().front();
  size_t largest = 0;
  r.on_logits = [&](int, std::span<const float> logits) {
    EXPECT_EQ(logits.size(), 264u + spare);
    largest = std::max<size_t>(largest, std::max_element(logits.begin(), logits.end()) - logits.begin());
  };
  engine->run(r);
  EXPECT_GE(largest, 264u) << "the test needs a row above the tokens that would have been chosen";
}

TEST_F(SpareRows, FewerRowsThanTokensAreRefused) {
  EXPECT_THAT(refusal(with_rows(-1)), HasSubstr("the tokenizer has 264 tokens"));
}

}  // namespace
}  // namespace weir
