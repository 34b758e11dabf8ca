// The sampler: order of the steps, ties, penalties, that a draw depends on (seed, position) only, and that
// rows read by blocks give the choices of a plain sort.
#include "engine/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <vector>

#include "base/arithmetic.h"
#include "base/random.h"

namespace weir {
namespace {

constexpr float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();

Token choose(Sampler& sampler, const std::vector<float>& logits, const std::vector<Token>& recent,
             const SamplerOptions& o, int position) {
  EXPECT_EQ(sampler.read(logits), -1);
  return sampler.choose(recent, o, position);
}

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
  EXPECT_EQ(sampler.read(logits), -1);
  for (int i = 0; i < n; ++i) ++count[sampler.choose(recent, o, i)];
  return count;
}

TEST(Sampler, GreedyTakesTheLowerIdOfATie) {
  SamplerOptions o;
  o.greedy = true;
  Sampler sampler(4);
  EXPECT_EQ(choose(sampler, {1, 5, 5, 2}, {}, o, 0), 1);
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
  EXPECT_EQ(choose(sampler, std::vector<float>{4, 3, -9}, std::vector<Token>{0}, o, 0), 1);
  EXPECT_EQ(choose(sampler, std::vector<float>{-4, -5, -9}, std::vector<Token>{0}, o, 0), 1);
}

TEST(Sampler, PenaltyLooksAtTheLastTokensOnlyAndCountsEachOnce) {
  SamplerOptions o = plain();
  o.greedy = true;
  o.repeat_penalty = 1.5f;
  o.repeat_last = 2;
  Sampler sampler(3);
  const std::vector<float> logits{4, 3, 1};
  EXPECT_EQ(choose(sampler, logits, std::vector<Token>{0, 2, 2}, o, 0), 0) << "token 0 is outside the window";
  EXPECT_EQ(choose(sampler, logits, std::vector<Token>{2, 0, 0}, o, 0), 1) << "4 / 1.5 < 3";
  o.repeat_penalty = 1.2f;
  EXPECT_EQ(choose(sampler, logits, std::vector<Token>{0, 0}, o, 0), 0) << "4 / 1.2 > 3: not penalised twice";
}

TEST(Sampler, ADrawDependsOnSeedAndPositionOnly) {
  const std::vector<float> logits(64, 0.0f);
  SamplerOptions o = plain();
  Sampler a(64), b(64);
  std::vector<Token> forward, backward;
  for (int i = 0; i < 50; ++i) forward.push_back(choose(a, logits, {}, o, i));
  for (int i = 49; i >= 0; --i) backward.insert(backward.begin(), choose(b, logits, {}, o, i));
  EXPECT_EQ(forward, backward);
  o.seed = 8;
  std::vector<Token> other;
  for (int i = 0; i < 50; ++i) other.push_back(choose(a, logits, {}, o, i));
  EXPECT_NE(forward, other);
}

TEST(Sampler, TopKKeepsWhatTopPWouldKeepOfAll) {
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
    EXPECT_EQ(choose(a, logits, {}, narrow, i), choose(b, logits, {}, wide, i)) << i;
}

TEST(Sampler, FindsLogitsThatAreNotFinite) {
  Sampler sampler(1000), blocks_of_128(70'000);
  EXPECT_EQ(sampler.read(std::vector<float>{1, -inf, 3}), -1) << "-inf bans a token";
  EXPECT_EQ(sampler.read(std::vector<float>{1, nan, 3}), 1);
  EXPECT_EQ(sampler.read(std::vector<float>{1, 2, inf}), 2);
  for (const size_t n : {63u, 64u, 65u, 127u, 128u, 129u, 1000u})
    for (size_t at = 0; at < n; ++at)
      for (const float bad : {inf, nan, -nan}) {
        std::vector<float> logits(n, std::numeric_limits<float>::max());
        for (size_t i = at; i < n; i += 7) logits[i] = bad;
        ASSERT_EQ(sampler.read(logits), static_cast<int64_t>(at)) << n << " " << bad;
        ASSERT_EQ(blocks_of_128.read(logits), static_cast<int64_t>(at)) << n << " " << bad;
      }
}

TEST(Sampler, BannedTokensAreNeverDrawn) { EXPECT_FALSE(draws({0, -inf, 0}, plain()).count(1)); }

/// All candidates sorted, cut to the k best, and drawn from by their softmax.
Token plain_choice(std::vector<float> logits, const std::vector<Token>& recent, const SamplerOptions& o,
                   int position) {
  const size_t window = std::min(recent.size(), static_cast<size_t>(o.repeat_last));
  std::vector<bool> penalised(logits.size());
  for (size_t i = recent.size() - window; i < recent.size(); ++i)
    penalised[static_cast<size_t>(recent[i])] = true;
  for (size_t i = 0; i < logits.size(); ++i)
    if (penalised[i])
      logits[i] = logits[i] <= 0 ? logits[i] * o.repeat_penalty : logits[i] / o.repeat_penalty;
  std::vector<Token> order(logits.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<Token>(i);
  const auto logit = [&](Token t) { return logits[static_cast<size_t>(t)]; };
  std::stable_sort(order.begin(), order.end(), [&](Token a, Token b) { return logit(a) > logit(b); });
  if (o.greedy) return order[0];
  if (o.top_k > 0) order.resize(std::min(order.size(), static_cast<size_t>(o.top_k)));
  float sum = 0, reached = 0;
  for (const Token t : order) sum += exp_f32((logit(t) - logit(order[0])) / o.temperature);
  const auto target =
      static_cast<float>(random_unit(o.seed, static_cast<uint64_t>(position)) * static_cast<double>(sum));
  for (const Token t : order) {
    reached += exp_f32((logit(t) - logit(order[0])) / o.temperature);
    if (target < reached) return t;
  }
  return order.back();
}

struct RandomCases {
  uint64_t seed = 11, counter = 0;
  size_t below(size_t n) { return random_u64(seed, counter++) % n; }
  template <typename T>
  T of(const std::vector<T>& choices) {
    return choices[below(choices.size())];
  }
  /// Of few values (down to one), or of many; now and then a stretch of them is banned.
  std::vector<float> logits(size_t n) {
    const std::vector<float> few{-0.0f, 0.0f, -inf, 1, -1, 2, -2, 1e-45f, std::numeric_limits<float>::max()};
    const size_t distinct = below(few.size() + 3), from = below(few.size());
    std::vector<float> v(n);
    for (float& x : v)
      x = distinct > few.size() ? static_cast<float>(20 * random_unit(seed, counter++) - 15)
                                : few[(from + below(distinct + 1)) % few.size()];
    for (size_t i = below(2 * n); i < n && below(100) != 0; ++i) v[i] = -inf;
    return v;
  }
};

TEST(SamplerSlow, RowsReadByBlocksGiveTheChoicesOfAPlainSort) {
  RandomCases random;
  for (int c = 0; c < 3000; ++c) {
    // Now and then as many as have longer blocks.
    const size_t n =
        c % 200 == 7 ? random.of<size_t>({65'535, 65'536, 70'001})
                     : random.of<size_t>({1, 2, 5, 63, 64, 65, 127, 128, 129, 255, 256, 257, 400, 900, 3000});
    std::vector<float> logits = random.logits(n);
    std::vector<Token> recent(random.below(2) * random.below(80));
    for (Token& t : recent) t = static_cast<Token>(random.below(n));
    SamplerOptions o = plain();
    o.top_k = random.of<int>({0, 1, 2, 7, 40, 130, static_cast<int>(n) - 1, static_cast<int>(n), 1000});
    o.temperature = random.of<float>({0.2f, 1, 1e6f, 1e38f});
    o.repeat_penalty = random.of<float>({1, 1.1f, 3, 0.5f});
    o.repeat_last = random.of<int>({0, 3, 64});
    o.seed = static_cast<uint64_t>(c);
    Sampler sampler(static_cast<int>(n));
    ASSERT_EQ(sampler.read(logits), -1);
    for (size_t lowered = random.below(2) * 6; lowered > 0; --lowered)
      *std::max_element(logits.begin(), logits.end()) = -inf;
    for (int position = 0; position < 6; ++position) {
      o.greedy = position == 0;
      ASSERT_EQ(sampler.choose(recent, o, position), plain_choice(logits, recent, o, position))
          << "case " << c << " n " << n << " k " << o.top_k << " penalty " << o.repeat_penalty;
    }
  }
}

TEST(Sampler, IdsAboveItsTokensAreCheckedAndNeverChosen) {
  for (const int tokens : {1, 5, 127, 128, 129, 300}) {
    const auto count = static_cast<size_t>(tokens);
    std::vector<float> logits(count + 300, 9.0f);
    std::fill_n(logits.begin(), count, 1.0f);
    Sampler sampler(tokens);
    SamplerOptions o = plain();
    o.repeat_penalty = 2;
    ASSERT_EQ(sampler.read(logits), -1);
    for (int i = 0; i < 200; ++i) {
      o.greedy = i % 2 == 0;
      ASSERT_LT(sampler.choose(std::vector<Token>{tokens, tokens + 7}, o, i), tokens);
    }
    logits[count + 5] = nan;
    ASSERT_EQ(sampler.read(logits), tokens + 5);
  }
}

TEST(Sampler, ALoweredLogitMakesNoRoomForALaterOneOfATie) {
  std::vector<float> logits(6000, 0.0f);
  logits[0] = logits[1000] = logits[5001] = logits[5002] = 5;
  logits[5000] = 9;
  SamplerOptions o = plain();
  o.top_k = 2;
  Sampler sampler(6000);
  ASSERT_EQ(sampler.read(logits), -1);
  logits[5000] = -inf;
  std::map<Token, int> count;
  for (int i = 0; i < 100; ++i) ++count[sampler.choose({}, o, i)];
  EXPECT_EQ(count.size(), 2u);
  EXPECT_TRUE(count.count(0) && count.count(1000));
}

}  // namespace
}  // namespace weir
