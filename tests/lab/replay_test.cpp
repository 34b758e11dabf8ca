// The replay against hand-made routings, against every possible choice of victims, and its own laws.
#include "lab/replay.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <functional>
#include <map>
#include <set>

#include "base/error.h"
#include "lab/replay_trace.h"
#include "lab/routing_profile.h"

namespace weir::lab {
namespace {

using test::random_trace;
using test::trace_of;
using test::TraceShape;
using ::testing::HasSubstr;

/// The most hits in counted calls over every choice of what stays, found by trying all.
uint64_t best_by_trying_all(const LayerDemand& demand, int slots, PhaseChoice choice) {
  std::map<uint32_t, uint64_t> best{{0, 0}};  // experts in slots -> hits
  for (const DemandCall& call : demand.calls) {
    uint32_t wanted = 0;
    for (const int32_t e : demand.needed_by(call)) wanted |= 1u << e;
    const bool fits = std::popcount(wanted) <= slots;
    std::map<uint32_t, uint64_t> after;
    for (const auto& [held, hits] : best) {
      const uint64_t now =
          hits + (counts(choice, call.phase) ? static_cast<uint64_t>(std::popcount(held & wanted)) : 0);
      const uint32_t all = held | wanted;
      for (uint32_t stays = all;; stays = (stays - 1) & all) {
        const bool allowed = std::popcount(stays) <= slots && (!fits || (stays & wanted) == wanted);
        if (allowed) after[stays] = std::max(after[stays], now);
        if (stays == 0) break;
      }
    }
    best = std::move(after);
  }
  uint64_t most = 0;
  for (const auto& [held, hits] : best) most = std::max(most, hits);
  return most;
}

TEST(Replay, BeladyIsTheBestOfAllChoicesOnTinyTraces) {
  int wide = 0;
  for (uint64_t seed = 1; seed <= 150; ++seed) {
    TraceShape shape;
    shape.layers = 1, shape.experts = 4 + static_cast<int>(seed % 2),
    shape.top_k = 1 + static_cast<int>(seed % 2);
    shape.rounds = 9, shape.most_rows = 1 + static_cast<int>(seed % 3), shape.phases = true,
    shape.seed = seed;
    const Demand demand = make_demand(random_trace(shape));
    const LayerDemand& layer = demand.layers.front();
    for (int slots = shape.top_k; slots <= shape.experts; ++slots) {
      for (const auto& call : layer.calls) wide += layer.needed_by(call).size() > static_cast<size_t>(slots);
      for (const PhaseChoice choice : {PhaseChoice(), PhaseChoice(Phase::decode)})
        ASSERT_EQ(optimum_layer(layer, slots, choice).hits, best_by_trying_all(layer, slots, choice))
            << "seed " << seed << " slots " << slots << " " << phase_choice_name(choice);
    }
  }
  EXPECT_GT(wide, 50) << "calls that need more than the slots must be among them";
}

TEST(Replay, NoPolicyBeatsBeladyInAnyPhaseAndBeladyRisesWithSlots) {
  for (uint64_t seed = 1; seed <= 12; ++seed) {
    TraceShape shape;
    shape.experts = 16, shape.top_k = 3, shape.rounds = 250, shape.seed = seed;
    shape.most_rows = 1 + static_cast<int>(seed % 4) * 5, shape.phases = true;
    const Demand demand = make_demand(random_trace(shape));
    for (const PhaseChoice choice :
         {PhaseChoice(), PhaseChoice(Phase::prefill), PhaseChoice(Phase::decode)}) {
      uint64_t last = 0;
      for (int slots = 3; slots <= 16; ++slots) {
        const Traffic bound = replay_total(demand, slots, {}, choice);
        for (const ExpertPolicy policy : {ExpertPolicy::lfu, ExpertPolicy::lru}) {
          const Traffic t = replay_total(demand, slots, {policy}, choice);
          ASSERT_LE(t.hits, bound.hits) << policy_name(policy) << " slots " << slots << " seed " << seed;
          ASSERT_EQ(t.hits + t.misses, bound.hits + bound.misses);
        }
        ASSERT_GE(bound.hits, last) << slots;
        last = bound.hits;
      }
    }
  }
}

TEST(Replay, ACycleThatLruAlwaysMissesIsHalfHitByBelady) {
  const Demand demand = make_demand(trace_of(3, {{0}, {1}, {2}, {0}, {1}, {2}, {0}}));
  EXPECT_EQ(replay_total(demand, 2, {ExpertPolicy::lru}, {}).hits, 0u);
  EXPECT_EQ(replay_total(demand, 2, {}, {}).hits, 2u);  // 0, 1, then one of the cycle kept: hits at 0 and 2
}

TEST(Replay, WithASlotForEveryExpertOnlyFirstUsesMiss) {
  TraceShape shape;
  shape.most_rows = 3;
  const Demand demand = make_demand(random_trace(shape));
  uint64_t distinct = 0, bytes = 0;
  for (const LayerDemand& layer : demand.layers) {
    const std::set<int32_t> used(layer.needed.begin(), layer.needed.end());
    distinct += used.size();
    bytes += used.size() * layer.expert_bytes;
  }
  for (const Contender& c : {Contender{ExpertPolicy::lfu}, Contender{ExpertPolicy::lru}, Contender{}}) {
    const Traffic t = replay_total(demand, 100, c, {});
    EXPECT_EQ(t.misses, distinct) << c.name();
    EXPECT_EQ(t.bytes, bytes) << c.name();
  }
}

TEST(Replay, PhasesAddUpToAll) {
  TraceShape shape;
  shape.phases = true, shape.most_rows = 4;
  const Demand demand = make_demand(random_trace(shape));
  uint64_t hits = 0, tokens = 0;
  for (const Phase phase : {Phase::prefill, Phase::decode, Phase::verify}) {
    hits += replay_total(demand, 3, {ExpertPolicy::lfu}, phase).hits;
    tokens += tokens_in(demand, phase);
  }
  EXPECT_EQ(hits, replay_total(demand, 3, {ExpertPolicy::lfu}, {}).hits);
  EXPECT_EQ(tokens, tokens_in(demand, {}));
  EXPECT_EQ(rounds_in(demand, {}), 200u);
}

TEST(Replay, RowsCountBySlotsThenPolicyThenBound) {
  const RouteTrace trace = random_trace({});
  ReplayOptions options;
  options.slots = {8, 2, 8};
  const auto rows = replay(make_demand(trace), options);
  ASSERT_EQ(rows.size(), 6u);
  EXPECT_EQ(rows[0].slots, 2);
  EXPECT_EQ(rows[0].memory_bytes, 2u * (1000 + 1100));
  EXPECT_STREQ(rows[0].contender.name(), "lfu");
  EXPECT_STREQ(rows[1].contender.name(), "lru");
  EXPECT_STREQ(rows[2].contender.name(), "belady");
  EXPECT_EQ(rows[3].slots, 8);
  EXPECT_EQ(rows[0].layers[0].hits + rows[0].layers[1].hits, rows[0].total.hits);
}

TEST(Replay, WaitIsWhatReadingTakesBeyondComputingTheHits) {
  WaitModel wait;
  EXPECT_EQ(wait.exposed_ns(1000, 1, Phase::decode), 0);  // no rate, no prediction
  wait.bytes_per_second = 1e9;
  wait.latency_ns = 50;
  wait.hidden_ns_per_hit[static_cast<size_t>(Phase::decode)] = 300;
  EXPECT_DOUBLE_EQ(wait.read_ns(1000), 1050);
  EXPECT_DOUBLE_EQ(wait.read_ns(0), 0);
  EXPECT_DOUBLE_EQ(wait.exposed_ns(1000, 2, Phase::decode), 450);
  EXPECT_DOUBLE_EQ(wait.exposed_ns(1000, 4, Phase::decode), 0);
  EXPECT_DOUBLE_EQ(wait.exposed_ns(1000, 4, Phase::prefill), 1050);
  // Calls: two misses, a hit and a miss, two hits, of experts of 1000 bytes.
  const Demand demand = make_demand(trace_of(4, {{0, 1}, {1, 2}, {1, 2}}));
  const Traffic t = replay_total(demand, 4, {ExpertPolicy::lru}, {}, wait);
  EXPECT_DOUBLE_EQ(t.read_ns, 2050 + 1050);
  EXPECT_DOUBLE_EQ(t.exposed_ns, 2050 + 750);
}

TEST(Replay, ReuseIsCountedInTokensOfTheLayer) {
  const RouteTrace trace = trace_of(4, {{0, 1}, {0, 2}, {0, 1}, {0, 2}},
                                    {Phase::prefill, Phase::prefill, Phase::decode, Phase::decode});
  const RoutingProfile all = routing_profile(trace, {});
  EXPECT_EQ(all.distances.first, 3u);
  EXPECT_EQ(all.distances.count, (std::vector<uint64_t>{0, 3, 2}));
  EXPECT_EQ(all.distances.quantile(0.5), 1u);
  EXPECT_EQ(all.distances.quantile(0.9), 2u);
  EXPECT_DOUBLE_EQ(all.distances.share_between(2, 3), 0.4);
  const LayerRouting& layer = all.layers.front();
  EXPECT_EQ(layer.uses, 8u);
  EXPECT_EQ(layer.used, 3);
  EXPECT_DOUBLE_EQ(layer.top_1, 0.5);
  EXPECT_DOUBLE_EQ(layer.top_8, 1.0);
  EXPECT_DOUBLE_EQ(layer.least, 0.0);
  EXPECT_DOUBLE_EQ(layer.next_token, 3.0 / 8);
  const RoutingProfile decode = routing_profile(trace, Phase::decode);  // what came before is remembered
  EXPECT_EQ(decode.distances.first, 0u);
  EXPECT_EQ(decode.distances.count, (std::vector<uint64_t>{0, 2, 2}));
}

TEST(Replay, NoReuseHasNoQuantile) {
  const RoutingProfile profile = routing_profile(trace_of(4, {{0, 1}}), {});
  EXPECT_EQ(profile.distances.quantile(0.5), 0u);
  EXPECT_EQ(profile.distances.first, 2u);
}

TEST(Replay, MemoryTurnsIntoTheMostSlotsThatFit) {
  RouteTraceHeader header{1, 3, 2, {8, 0, 4}, {1000, 0, 500}};
  EXPECT_EQ(slots_memory(header, 4), 6000u);
  EXPECT_EQ(slots_memory(header, 8), 10'000u);  // the third layer has 4 experts only
  EXPECT_EQ(slots_in_memory(header, 5999), 3);
  EXPECT_EQ(slots_in_memory(header, 6000), 4);
  EXPECT_EQ(slots_in_memory(header, 7000), 5);
  EXPECT_EQ(slots_in_memory(header, 1'000'000), 8);
  EXPECT_EQ(slots_in_memory(header, 1499), 0);
  EXPECT_EQ(default_slots(header), (std::vector<int>{2, 4, 6, 8}));
  header.experts = {32, 0, 32};
  header.top_k = 4;
  EXPECT_EQ(default_slots(header), (std::vector<int>{4, 8, 12, 16, 24, 32}));
}

std::string refusal(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), Error::Kind::input);
    return e.what();
  }
  return "accepted";
}

TEST(Replay, PhaseDefaultsToDecodeAndNamesWhatIsThere) {
  const Demand decode = make_demand(random_trace({}));
  EXPECT_EQ(choose_phase(decode, "t", ""), PhaseChoice(Phase::decode));
  EXPECT_EQ(choose_phase(decode, "t", "all"), PhaseChoice());
  EXPECT_THAT(refusal([&] { choose_phase(decode, "t", "prefill"); }),
              HasSubstr("t has no such round; it has decode (200"));
  EXPECT_THAT(refusal([&] { choose_phase(decode, "t", "both"); }),
              HasSubstr("prefill, decode, verify or all"));
  const Demand prefill = make_demand(trace_of(4, {{0, 1}}, {Phase::prefill}));
  EXPECT_EQ(choose_phase(prefill, "t", ""), PhaseChoice());
}

TEST(Replay, ATraceWithoutCallsIsRefused) {
  EXPECT_THAT(refusal([] { require_calls({}, "empty.routes"); }),
              HasSubstr("empty.routes: the trace holds no routing"));
}

}  // namespace
}  // namespace weir::lab
