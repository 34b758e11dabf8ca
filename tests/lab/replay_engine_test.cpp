// The replay's promise: its hit counts are the engine's, whatever slots and policy the trace was recorded
// with.
#include <gtest/gtest.h>

#include "engine/engine.h"
#include "lab/read_cost.h"
#include "lab/replay.h"
#include "support/paths.h"
#include "support/temp_dir.h"

namespace weir::lab {
namespace {

struct Setting {
  int slots;
  ExpertPolicy policy;
  int chunk, lanes;
};

EngineOptions options_of(const Setting& s) {
  EngineOptions o;
  o.model = testing::pocket_model();
  o.context = 128;
  o.threads = 1;
  o.memory = 256ull << 20;
  o.expert_slots = s.slots;
  o.policy = s.policy;
  o.prefill_chunk = s.chunk;
  o.lanes = s.lanes;
  return o;
}

/// Five requests of different lengths; returns the expert traffic of all.
ExpertCounters work(const EngineOptions& options) {
  Engine engine(options);
  engine.load();
  for (int p = 0; p < 5; ++p) {
    Request r;
    for (int i = 0; i < 4 + 13 * p; ++i) r.prompt.push_back((i * 977 + p * 131 + 17) % 8000);
    r.max_tokens = 14 - p;
    r.ignore_eos = true;
    r.sampler.greedy = true;
    engine.submit(std::move(r));
  }
  while (engine.step()) {
  }
  for (const Result& r : engine.take_finished()) EXPECT_EQ(r.error, "");
  engine.close_trace();
  return engine.expert_counters();
}

TEST(ReplayOfTheEngineSlow, HasItsHitsForAnySlotsPolicyChunkAndLanes) {
  test::TempDir dir;
  const std::pair<int, int> batches[] = {{1, 1}, {7, 1}, {64, 3}};  // chunk, lanes
  for (const auto& [chunk, lanes] : batches) {
    const std::string path = dir.file("routes");
    EngineOptions recording = options_of({20, ExpertPolicy::lru, chunk, lanes});
    recording.route_trace = path;
    work(recording);
    const Demand demand = make_demand(RouteTrace::read(path));
    EXPECT_EQ(tokens_in(demand, Phase::prefill), 4u + 17 + 30 + 43 + 56);
    EXPECT_EQ(tokens_in(demand, Phase::decode), 13u + 12 + 11 + 10 + 9);
    for (const int slots : {4, 12, 32}) {
      for (const ExpertPolicy policy : {ExpertPolicy::lfu, ExpertPolicy::lru}) {
        const ExpertCounters real = work(options_of({slots, policy, chunk, lanes}));
        const Traffic replayed = replay_total(demand, slots, {policy}, {});
        const auto where = ::testing::Message() << slots << " slots, " << policy_name(policy) << ", chunk "
                                                << chunk << ", lanes " << lanes;
        EXPECT_EQ(replayed.hits, real.hits) << where;
        EXPECT_EQ(replayed.misses, real.misses) << where;
        EXPECT_GE(real.bytes_read, replayed.bytes) << where;          // alignment comes on top,
        EXPECT_LE(real.bytes_read, replayed.bytes * 3 / 2) << where;  // not much of it
        EXPECT_LE(real.hits, replay_total(demand, slots, {}, {}).hits) << where;
      }
    }
  }
}

TEST(ReplayOfTheEngine, ReadsOfTheModelCanBeMeasured) {
  const gguf::Model model = gguf::Model::open(testing::pocket_model());
  RouteTraceHeader header;
  header.fingerprint = model.fingerprint();
  header.top_k = 4;
  const ReadCost cost = measure_read_cost(testing::pocket_model(), header, "t", {});
  EXPECT_GT(cost.bytes_per_second, 1e5);
  EXPECT_LT(cost.bytes_per_second, 1e12);
  EXPECT_GE(cost.latency_ns, 0);
  EXPECT_NE(cost.how.find("48 reads of 1 and 48 of 4"), std::string::npos) << cost.how;
  header.fingerprint ^= 1;
  try {
    measure_read_cost(testing::pocket_model(), header, "other.routes", {});
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), Error::Kind::input);
    EXPECT_NE(std::string(e.what()).find("other.routes: recorded with another model"), std::string::npos);
  }
}

}  // namespace
}  // namespace weir::lab
