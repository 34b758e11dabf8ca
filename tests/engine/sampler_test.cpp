// The sampler: order of the steps, ties, penalties, and that a draw depends on (seed, position) only.
#include "engine/sampler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <vector>

namespace weir {
namespace {

SamplerOptions plain() {
  SamplerOptions o;
  o.temperature = 1;
  o.top_k = 0;
  o.top_p = 1;
  o.min_p = 0;
  o.seed = 7;
  return o;
}

/// How often each token is drawn over many positions.
std::map<Token, int> draws(const std::vector<float>& logits, const SamplerOptions& o, int n = 20'000,
                           const std::vector<Token>& recent = {}) {
  Sampler sampler(static_cast<int>(logits.size()));
  std::map<Token, int> count;
  for (int i = 0; i < n; ++i) ++count[sampler.choose(logits, recent, o, i)];
  return count;
}

TEST(Sampler, GreedyTakesTheLowerIdOfATie) {
  EXPECT_EQ(Sampler::argmax(std::vector<float>{1, 5, 5, 2}), 1);
  SamplerOptions o;
  o.greedy = true;
  Sampler sampler(4);
  EXPECT_EQ(sampler.choose(std::vector<float>{1, 5, 5, 2}, {}, o, 0), 1);
}

TEST(Sampler, TemperatureZeroIsGreedy) {
  SamplerOptions o = plain();
  o.temperature = 0;
  EXPECT_EQ(draws({0, 3, 1}, o, 100).size(), 1u);
}

TEST(Sampler, DrawsFollowTheSoftmax) {
  const auto count = draws({std::log(0.5f), std::log(0.3f), std::log(0.2f)}, plain());
  EXPECT_NEAR(count.at(0) / 20'000.0, 0.5, 0.015);
  EXPECT_NEAR(count.at(1) / 20'000.0, 0.3, 0.015);
  EXPECT_NEAR(count.at(2) / 20'000.0, 0.2, 0.015);
}

TEST(Sampler, TopKKeepsTheLargestAndTheLowerIdAtATie) {
  SamplerOptions o = plain();
  o.top_k = 2;
  const auto count = draws({1, 2, 1, 1}, o);
  EXPECT_EQ(count.size(), 2u);
  EXPECT_TRUE(count.count(0) && count.count(1));
}

TEST(Sampler, TopPKeepsTheSmallestSetThatReachesP) {
  SamplerOptions o = plain();
  o.top_p = 0.79f;
  const std::vector<float> logits{std::log(0.2f), std::log(0.5f), std::log(0.3f)};
  const auto count = draws(logits, o);
  EXPECT_EQ(count.size(), 2u) << "0.5 alone does not reach 0.79, with 0.3 it does";
  EXPECT_FALSE(count.count(0));
}

TEST(Sampler, MinPDropsWhatIsFarBelowTheBest) {
  SamplerOptions o = plain();
  o.min_p = 0.5f;
  const auto count = draws({std::log(0.5f), std::log(0.3f), std::log(0.2f)}, o);
  EXPECT_EQ(count.size(), 2u);
}

TEST(Sampler, FiltersWorkOnUntemperedProbabilities) {
  // Temperature comes last: at a high one, min-p would keep everything if it came first.
  SamplerOptions o = plain();
  o.min_p = 0.5f;
  o.temperature = 100;
  EXPECT_EQ(draws({std::log(0.5f), std::log(0.3f), std::log(0.2f)}, o).size(), 2u);
}

TEST(Sampler, PenaltyDividesPositiveAndMultipliesNegativeLogits) {
  SamplerOptions o = plain();
  o.greedy = true;
  o.repeat_penalty = 2;
  Sampler sampler(3);
  EXPECT_EQ(sampler.choose(std::vector<float>{4, 3, -9}, std::vector<Token>{0}, o, 0), 1);
  EXPECT_EQ(sampler.choose(std::vector<float>{-4, -5, -9}, std::vector<Token>{0}, o, 0), 1);
}

TEST(Sampler, PenaltyLooksAtTheLastTokensOnlyAndCountsEachOnce) {
  SamplerOptions o = plain();
  o.greedy = true;
  o.repeat_penalty = 1.5f;
  o.repeat_last = 2;
  Sampler sampler(3);
  const std::vector<float> logits{4, 3, 1};
  EXPECT_EQ(sampler.choose(logits, std::vector<Token>{0, 2, 2}, o, 0), 0) << "token 0 is outside the window";
  EXPECT_EQ(sampler.choose(logits, std::vector<Token>{2, 0, 0}, o, 0), 1) << "4 / 1.5 < 3";
  o.repeat_penalty = 1.2f;
  EXPECT_EQ(sampler.choose(logits, std::vector<Token>{0, 0}, o, 0), 0) << "4 / 1.2 > 3: not penalised twice";
}

TEST(Sampler, ADrawDependsOnSeedAndPositionOnly) {
  const std::vector<float> logits(64, 0.0f);
  SamplerOptions o = plain();
  Sampler a(64), b(64);
  std::vector<Token> forward, backward;
  for (int i = 0; i < 50; ++i) forward.push_back(a.choose(logits, {}, o, i));
  for (int i = 49; i >= 0; --i) backward.insert(backward.begin(), b.choose(logits, {}, o, i));
  EXPECT_EQ(forward, backward);
  o.seed = 8;
  std::vector<Token> other;
  for (int i = 0; i < 50; ++i) other.push_back(a.choose(logits, {}, o, i));
  EXPECT_NE(forward, other);
}

TEST(Sampler, TopKByHeapEqualsTopKBySorting) {
  std::vector<float> logits;
  for (int i = 0; i < 500; ++i) logits.push_back(static_cast<float>((i * 7919) % 101));
  SamplerOptions narrow = plain(), wide = plain();
  narrow.top_k = 40;
  narrow.top_p = wide.top_p = 0.5f;
  wide.top_k = 0;
  narrow.temperature = wide.temperature = 0.7f;
  Sampler a(500), b(500);
  // The 40 best hold half of the mass: both keep the same candidates.
  for (int i = 0; i < 200; ++i)
    EXPECT_EQ(a.choose(logits, {}, narrow, i), b.choose(logits, {}, wide, i)) << i;
}

TEST(Sampler, FindsLogitsThatAreNotFinite) {
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(Sampler::first_not_finite(std::vector<float>{1, -inf, 3}), -1) << "-inf bans a token";
  EXPECT_EQ(Sampler::first_not_finite(std::vector<float>{1, nan, 3}), 1);
  EXPECT_EQ(Sampler::first_not_finite(std::vector<float>{1, 2, inf}), 2);
}

TEST(Sampler, BannedTokensAreNeverDrawn) {
  const float inf = std::numeric_limits<float>::infinity();
  EXPECT_FALSE(draws({0, -inf, 0}, plain()).count(1));
}

}  // namespace
}  // namespace weir
