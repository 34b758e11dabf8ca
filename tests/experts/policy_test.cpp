// plan_fetch: its invariants over random calls, hand-made evictions, and what it makes of skewed traffic.
#include "experts/policy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "base/error.h"
#include "base/random.h"

namespace weir {
namespace {

using Ids = std::vector<int32_t>;

FetchPlan plan(LayerSlots& slots, const Ids& needed, ExpertPolicy policy, int32_t rows = 1) {
  return plan_fetch(slots, needed, Ids(needed.size(), rows), policy);
}

std::set<int32_t> resident(const LayerSlots& slots) {
  std::set<int32_t> out;
  for (const int32_t e : slots.expert_of_slot)
    if (e >= 0) out.insert(e);
  return out;
}

void expect_consistent(const LayerSlots& slots) {
  for (size_t s = 0; s < slots.expert_of_slot.size(); ++s) {
    const int32_t e = slots.expert_of_slot[s];
    if (e >= 0) {
      ASSERT_EQ(slots.slot_of_expert[static_cast<size_t>(e)], static_cast<int32_t>(s));
    }
  }
  for (size_t e = 0; e < slots.slot_of_expert.size(); ++e) {
    const int32_t s = slots.slot_of_expert[e];
    if (s >= 0) {
      ASSERT_EQ(slots.expert_of_slot[static_cast<size_t>(s)], static_cast<int32_t>(e));
    }
  }
}

/// Follows the plan fetch by fetch from the state before it, as the cache will.
void expect_valid(const LayerSlots& before, const LayerSlots& after, const FetchPlan& plan,
                  const Ids& needed) {
  Ids held = before.expert_of_slot;
  std::set<int32_t> served;
  for (size_t w = 0; w < plan.waves.size(); ++w) {
    const Wave& wave = plan.waves[w];
    std::set<int32_t> used_slots;
    ASSERT_TRUE(w == 0 || wave.hits.empty()) << "hits belong to the first wave";
    ASSERT_TRUE(w == 0 || !wave.misses.empty()) << "an empty wave";
    for (const Fetch& hit : wave.hits) {
      ASSERT_EQ(held[static_cast<size_t>(hit.slot)], hit.expert);
      ASSERT_TRUE(used_slots.insert(hit.slot).second);
      ASSERT_TRUE(served.insert(hit.expert).second);
    }
    for (const Fetch& miss : wave.misses) {
      ASSERT_EQ(held[static_cast<size_t>(miss.slot)], miss.evicted);
      ASSERT_TRUE(used_slots.insert(miss.slot).second) << "slot used twice in a wave";
      ASSERT_TRUE(served.insert(miss.expert).second) << "expert served twice";
      ASSERT_EQ(before.slot_of_expert[static_cast<size_t>(miss.expert)], -1) << "a present expert was read";
      held[static_cast<size_t>(miss.slot)] = miss.expert;
    }
    const auto by_expert = [](const Fetch& a, const Fetch& b) { return a.expert < b.expert; };
    ASSERT_TRUE(std::is_sorted(wave.hits.begin(), wave.hits.end(), by_expert));
    ASSERT_TRUE(std::is_sorted(wave.misses.begin(), wave.misses.end(), by_expert));
  }
  ASSERT_EQ(served, std::set<int32_t>(needed.begin(), needed.end()));
  ASSERT_EQ(held, after.expert_of_slot);
  ASSERT_EQ(static_cast<size_t>(plan.hits + plan.misses), needed.size());
}

Ids random_subset(int experts, int count, uint64_t seed, uint64_t& counter) {
  Ids all(static_cast<size_t>(experts));
  for (int e = 0; e < experts; ++e) all[static_cast<size_t>(e)] = e;
  for (size_t i = 0; i < static_cast<size_t>(count); ++i)
    std::swap(all[i], all[i + random_u64(seed, counter++) % (all.size() - i)]);
  all.resize(static_cast<size_t>(count));
  std::sort(all.begin(), all.end());
  return all;
}

TEST(Policy, EveryPlanServesEachNeededExpertOnceWhateverTheSlots) {
  constexpr int experts = 13;
  for (const ExpertPolicy policy : {ExpertPolicy::lfu, ExpertPolicy::lru}) {
    for (int slots = 1; slots <= experts; ++slots) {
      LayerSlots state(experts, slots);
      uint64_t counter = 0;
      for (int step = 0; step < 120; ++step) {
        const int count = static_cast<int>(random_u64(9, counter++) % (experts + 1));
        const Ids needed = random_subset(experts, count, 9, counter);
        const LayerSlots before = state;
        const FetchPlan p = plan(state, needed, policy, 1 + step % 5);
        ASSERT_NO_FATAL_FAILURE(expect_valid(before, state, p, needed)) << "slots " << slots;
        ASSERT_NO_FATAL_FAILURE(expect_consistent(state));
        if (step % 17 == 0) forget_slot(state, static_cast<int32_t>(step % slots));
      }
    }
  }
}

TEST(Policy, SameArgumentsGiveTheSamePlan) {
  LayerSlots a(16, 5), b(16, 5);
  uint64_t counter = 0;
  for (int step = 0; step < 200; ++step) {
    const Ids needed = random_subset(16, 1 + step % 9, 4, counter);
    const FetchPlan pa = plan(a, needed, ExpertPolicy::lfu), pb = plan(b, needed, ExpertPolicy::lfu);
    ASSERT_EQ(pa.waves.size(), pb.waves.size());
    ASSERT_EQ(a.expert_of_slot, b.expert_of_slot);
  }
}

TEST(Policy, OneWaveWhereTheSlotsSuffice) {
  LayerSlots state(8, 4);
  EXPECT_EQ(plan(state, {0, 1, 2, 3}, ExpertPolicy::lfu).waves.size(), 1u);
  const FetchPlan p = plan(state, {0, 1, 4, 5}, ExpertPolicy::lfu);
  EXPECT_EQ(p.waves.size(), 1u);
  EXPECT_EQ(p.hits, 2);
  EXPECT_EQ(p.misses, 2);
}

TEST(Policy, NothingNeededMakesNoWave) {
  LayerSlots state(8, 4);
  EXPECT_TRUE(plan(state, {}, ExpertPolicy::lru).waves.empty());
}

TEST(Policy, LfuPutsOutTheLeastUsedAndRemembersEvictedCounts) {
  LayerSlots state(8, 2);
  for (int i = 0; i < 3; ++i) plan(state, {0}, ExpertPolicy::lfu);
  plan(state, {1}, ExpertPolicy::lfu);
  plan(state, {2}, ExpertPolicy::lfu);  // 1 (once) goes, not 0 (thrice)
  EXPECT_EQ(resident(state), (std::set<int32_t>{0, 2}));
  plan(state, {1}, ExpertPolicy::lfu);  // its second use: 2 goes
  plan(state, {2}, ExpertPolicy::lfu);
  EXPECT_EQ(state.frequency[1], 2u);
  EXPECT_EQ(resident(state), (std::set<int32_t>{0, 2}));
}

TEST(Policy, LfuBreaksTiesByRecency) {
  LayerSlots state(8, 3);
  plan(state, {5}, ExpertPolicy::lfu);
  plan(state, {3}, ExpertPolicy::lfu);
  plan(state, {4}, ExpertPolicy::lfu);
  plan(state, {0}, ExpertPolicy::lfu);
  EXPECT_EQ(resident(state), (std::set<int32_t>{0, 3, 4}));
}

TEST(Policy, LruPutsOutTheLongestUnusedHoweverOftenItWasUsed) {
  LayerSlots state(8, 2);
  for (int i = 0; i < 5; ++i) plan(state, {0}, ExpertPolicy::lru);
  plan(state, {1}, ExpertPolicy::lru);
  plan(state, {2}, ExpertPolicy::lru);
  EXPECT_EQ(resident(state), (std::set<int32_t>{1, 2}));
}

TEST(Policy, EmptySlotsAreTakenBeforeAnythingIsPutOut) {
  LayerSlots state(8, 3);
  plan(state, {0, 1, 2}, ExpertPolicy::lfu);
  forget_slot(state, state.slot_of_expert[1]);
  EXPECT_EQ(state.slot_of_expert[1], -1);
  const FetchPlan p = plan(state, {7}, ExpertPolicy::lfu);
  EXPECT_EQ(p.waves[0].misses[0].evicted, -1);
  EXPECT_EQ(resident(state), (std::set<int32_t>{0, 2, 7}));
}

TEST(Policy, AgeingLetsANewFavouriteReplaceAnOldOne) {
  LayerSlots state(4, 1);
  for (int i = 0; i < 5000; ++i) plan(state, {0}, ExpertPolicy::lfu);
  int steps = 0;
  while (state.frequency[1] <= state.frequency[0]) plan(state, {1}, ExpertPolicy::lfu), ++steps;
  EXPECT_LT(steps, 128);  // one window of a layer with 4 experts
  EXPECT_GT(steps, 8);
}

TEST(Policy, APromptOfAnyLengthCountsAsAtMostOneWindow) {
  LayerSlots state(8, 4);
  for (int chunk = 0; chunk < 100; ++chunk)
    plan_fetch(state, Ids{0, 1, 2, 3}, Ids{512, 256, 64, 1}, ExpertPolicy::lfu);
  uint64_t sum = 0;
  for (const uint32_t f : state.frequency) sum += f;
  EXPECT_LT(sum, 32u * 8);
  EXPECT_GT(state.frequency[0], state.frequency[1]);  // and what it says about the experts is kept
  EXPECT_GT(state.frequency[1], state.frequency[2]);
}

TEST(Policy, AWideBatchLeavesTheMostUsedExpertsInTheirSlots) {
  constexpr int experts = 64, slots = 16;
  LayerSlots state(experts, slots);
  Ids favourites;
  for (int e = 0; e < 8; ++e) favourites.push_back(e * 7);
  for (int i = 0; i < 50; ++i) plan(state, favourites, ExpertPolicy::lfu);
  Ids all, uses;
  for (int e = 0; e < experts; ++e) all.push_back(e), uses.push_back(3);
  const FetchPlan p = plan_fetch(state, all, uses, ExpertPolicy::lfu);
  EXPECT_EQ(p.hits, 8);
  EXPECT_EQ(p.misses, experts - 8);
  EXPECT_EQ(p.waves.size(), 1u + 6);  // 8 free slots first, then 48 through half of the slots
  for (const int32_t e : favourites) EXPECT_EQ(resident(state).count(e), 1u) << e;
}

TEST(Policy, DemandIsTheDistinctIdsInOrderWithTheRowsThatUseThem) {
  ExpertDemand demand;
  count_demand(demand, Ids{1, 4, 0, 4, 4, 6}, 7);
  EXPECT_EQ(demand.needed, (Ids{0, 1, 4, 6}));
  EXPECT_EQ(demand.uses, (Ids{1, 1, 3, 1}));
  EXPECT_EQ(demand.count, (Ids{1, 1, 0, 0, 3, 0, 1}));
  count_demand(demand, Ids{2}, 3);  // nothing of the call before
  EXPECT_EQ(demand.needed, Ids{2});
  EXPECT_EQ(demand.count, (Ids{0, 0, 1}));
}

TEST(Policy, UnknownPolicyIsNamedWithTheChoices) {
  EXPECT_EQ(parse_expert_policy("lru"), ExpertPolicy::lru);
  EXPECT_STREQ(policy_name(parse_expert_policy("lfu")), "lfu");
  try {
    parse_expert_policy("fifo");
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), Error::Kind::input);
    EXPECT_STREQ(e.what(), "--expert-policy 'fifo': the policies are lfu and lru");
  }
}

/// Tokens that draw 4 of 32 experts from a Zipf law, a third of them repeated from the token before.
std::vector<Ids> skewed_trace(int tokens) {
  constexpr int experts = 32, top_k = 4;
  std::vector<double> weight;
  for (int e = 0; e < experts; ++e) weight.push_back(1.0 / std::pow(1 + (e * 11) % experts, 0.8));
  std::vector<Ids> trace;
  uint64_t counter = 0;
  for (int t = 0; t < tokens; ++t) {
    std::set<int32_t> row;
    if (t > 0)
      for (const int32_t e : trace.back())
        if (random_unit(1, counter++) < 0.25) row.insert(e);
    while (row.size() < top_k) {
      double total = 0;
      for (const double w : weight) total += w;
      double at = random_unit(1, counter++) * total;
      int32_t e = 0;
      while (e + 1 < experts && (at -= weight[static_cast<size_t>(e)]) > 0) ++e;
      row.insert(e);
    }
    trace.emplace_back(row.begin(), row.end());
  }
  return trace;
}

double hit_rate(const std::vector<Ids>& trace, int slots, ExpertPolicy policy) {
  LayerSlots state(32, slots);
  double hits = 0, all = 0;
  for (const Ids& row : trace) {
    const FetchPlan p = plan(state, row, policy);
    hits += p.hits;
    all += p.hits + p.misses;
  }
  return hits / all;
}

TEST(Policy, HitRatesOnSkewedTrafficRiseWithSlotsAndLfuBeatsLru) {
  const std::vector<Ids> trace = skewed_trace(6000);
  double last_lfu = 0, last_lru = 0;
  for (const int slots : {4, 8, 12, 16, 24, 32}) {
    const double lfu = hit_rate(trace, slots, ExpertPolicy::lfu);
    const double lru = hit_rate(trace, slots, ExpertPolicy::lru);
    RecordProperty("lfu_" + std::to_string(slots), std::to_string(lfu));
    RecordProperty("lru_" + std::to_string(slots), std::to_string(lru));
    EXPECT_GT(lfu, last_lfu) << slots;
    EXPECT_GT(lru, last_lru) << slots;
    if (slots > 4 && slots < 32) {
      EXPECT_GT(lfu, lru) << slots;
    }
    last_lfu = lfu, last_lru = lru;
  }
  EXPECT_GT(last_lfu, 0.998);  // all resident: only the first touch misses
}

}  // namespace
}  // namespace weir
