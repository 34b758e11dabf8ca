// The engine on a device whose memory the host cannot touch, that works later and routes by itself: the same
// tokens and logits as on the CPU device, rounds recorded and replayed, memory as the device's plan says.
#include <nlohmann/json.hpp>
#include <vector>

#include "engine/device_cases.h"
#include "lab/verify.h"
#include "support/temp_dir.h"
#include "support/tiny_model.h"

namespace weir {
namespace {

TEST(EngineOnADevice, EveryKindOfRequestEqualsTheCpus) {
  Request sampled = request(9, 30), hashed = request(12, 70), penalised = request(7), forced = request(3),
          natural = request(30, 3), shown = request(4, 20);
  sampled.sampler = {};
  sampled.sampler.seed = 5;
  hashed.hash_logits = true;
  penalised.sampler.repeat_penalty = 1.3f;
  forced.forced = {11, 12, 13};
  natural.ignore_eos = false;
  std::vector<float> seen[2];
  std::vector<Result> results[2];
  for (int side = 0; side < 2; ++side) {
    EngineOptions o = options();
    o.lanes = 3;
    o.prefill_chunk = 16;
    const Deferred deferred;
    if (side == 1) deferred.put_into(o);
    const auto engine = open(o);
    shown.on_logits = [&, side](int, std::span<const float> logits) {
      seen[side].insert(seen[side].end(), logits.begin(), logits.end());
    };
    results[side] =
        run_all(*engine, {sampled, hashed, penalised, forced, natural, shown, request(20), request(0, 40)});
  }
  expect_equal(results[0], results[1]);
  EXPECT_EQ(seen[0], seen[1]);
}

TEST(EngineOnADevice, TinyModelsOfEveryShapeEqualTheCpus) {
  const test::TempDir dir;
  test::TinyModelOptions fused;
  fused.fused_gate_up = true;
  int number = 0;
  for (const auto& shape :
       {test::TinyModelOptions{}, fused, test::tiny_dense_options(), test::tiny_kquant_options()}) {
    EngineOptions o;
    o.model = test::write_tiny_model(dir.file("tiny" + std::to_string(number++) + ".gguf"), shape);
    o.context = 64;
    Request r = request(12, 1);
    r.prompt = {1, 2, 3, 4, 5, 6, 7};
    r.hash_logits = true;
    const auto on_cpu = run_all(*open(o), {r});
    const Deferred deferred;
    deferred.put_into(o);
    expect_equal(on_cpu, run_all(*open(o), {r}));
  }
}

TEST(EngineOnADevice, DecodeRoundsAreRecordedOnceAndReplayed) {
  EngineOptions o = options();
  const Deferred deferred;
  deferred.put_into(o);
  const auto engine = open(o);
  const auto counters = deferred.counters;
  const Result long_one = engine->run(request(280));
  EXPECT_EQ(long_one.tokens.size(), 280u);
  EXPECT_EQ(counters->records, 2) << "positions up to 256, and to the context";
  EXPECT_EQ(counters->replays, 279 - 2);
  EXPECT_EQ(counters->keys[0].longest, 256);
  EXPECT_EQ(counters->keys[1].longest, 300);
  Request hashed = request(10);
  hashed.hash_logits = true;
  engine->run(hashed);
  EXPECT_EQ(counters->records, 3) << "logits come to the host in another recording";
  hashed.ignore_eos = false;
  engine->run(hashed);
  EXPECT_EQ(counters->records, 4);
  engine->run(request(10));
  EXPECT_EQ(counters->records, 4);

  o.make_device = nullptr;
  EXPECT_EQ(open(o)->run(request(280)).tokens, long_one.tokens);
}

TEST(EngineOnADevice, NoLogitsComeToTheHostWhereTheChoiceIsEnough) {
  EngineOptions o = options();
  const Deferred deferred;
  deferred.put_into(o);
  const auto engine = open(o);
  const uint64_t before = deferred.counters->downloaded_bytes;
  Request forced = request(20);
  for (int i = 0; i < 20; ++i) forced.forced.push_back(100 + i);
  engine->run(request(20));
  engine->run(forced);
  EXPECT_LE(deferred.counters->downloaded_bytes - before, 40 * sizeof(Choice));
  Request hashed = request(1);
  hashed.hash_logits = true;
  engine->run(hashed);
  EXPECT_GE(deferred.counters->downloaded_bytes - before, 8192 * sizeof(float));
}

TEST(EngineOnADevice, TheLedgerAddsUpAndKnowsTheDevicesRoles) {
  EngineOptions o = options();
  o.ledger.enabled = true;
  o.lanes = 2;
  const Deferred deferred;
  deferred.put_into(o);
  const auto engine = open(o);
  run_all(*engine, {request(10), request(12, 40)});
  for (const Phase phase : {Phase::prefill, Phase::decode}) {
    const PhaseAccount& account = engine->ledger()->phase(phase);
    uint64_t sum = 0;
    for (const auto& role : account.roles) sum += role.per_round.sum_ns;
    EXPECT_EQ(sum, account.wall_ns);
    for (const Role role :
         {Role::upload, Role::embed, Role::attention, Role::router, Role::experts_hit, Role::head})
      EXPECT_GT(account.roles[static_cast<size_t>(role)].per_round.sum_ns, 0u) << role_name(role);
  }
}

TEST(EngineOnADevice, ARouteTraceIsTheSame) {
  const test::TempDir dir;
  std::vector<RouteRecord> records[2];
  for (int side = 0; side < 2; ++side) {
    EngineOptions o = options();
    o.route_trace = dir.file("trace" + std::to_string(side));
    const Deferred deferred;
    if (side == 1) deferred.put_into(o);
    const auto engine = open(o);
    engine->run(request(6, 12));
    engine->close_trace();
    records[side] = RouteTrace::read(o.route_trace).records;
    EXPECT_EQ(deferred.counters->records, 0);
  }
  ASSERT_EQ(records[0].size(), records[1].size());
  for (size_t i = 0; i < records[0].size(); ++i) EXPECT_EQ(records[0][i].ids, records[1][i].ids) << i;
}

TEST(EngineOnADevice, AProbeSeesTheSameStream) {
  EngineOptions o = options();
  EngineOptions there = o;
  const Deferred deferred;
  deferred.put_into(there);
  const std::vector<lab::VerifyPrompt> prompts = {{"p", request(1, 9).prompt}};
  lab::PlantedFault fault(8, 1, Operation::attention);
  there.probe = &fault;
  const auto parting = lab::locate_difference({"here", o}, {"there", there}, prompts, 3);
  EXPECT_EQ(parting.first.position, 8);
  EXPECT_EQ(parting.first.layer, 1);
  EXPECT_EQ(parting.first.operation, "attention");
}

TEST(EngineOnADevice, CancelBetweenRoundsEndsTheRequest) {
  EngineOptions o = options();
  const Deferred deferred;
  deferred.put_into(o);
  const auto engine = open(o);
  std::atomic<bool> cancel{false};
  Request r = request(50);
  r.cancel = &cancel;
  int n = 0;
  r.on_token = [&](Token) { cancel = ++n == 3; };
  const Result result = engine->run(r);
  EXPECT_EQ(result.finish, Finish::cancelled);
  EXPECT_EQ(result.tokens.size(), 3u);
  EXPECT_EQ(engine->run(request(4)).tokens.size(), 4u);
}

TEST(EngineOnADevice, ThePlanIsWhatTheDeviceAllocates) {
  EngineOptions o = options();
  const Deferred deferred;
  deferred.put_into(o);
  const auto engine = open(o);
  ASSERT_TRUE(engine->plan().device);
  const DevicePlan& plan = *engine->plan().device;
  EXPECT_EQ(deferred.counters->peak_device_bytes + deferred.counters->scratch_bytes,
            plan.total_bytes - plan.overhead_bytes);
  EXPECT_EQ(plan.weight_bytes + plan.expert_bytes + plan.kv_bytes + plan.table_bytes + plan.scratch_bytes +
                plan.overhead_bytes + plan.headroom_bytes,
            plan.budget_bytes);
  EXPECT_EQ(plan.budget_bytes, deferred.options.memory.free - (uint64_t{512} << 20));
  EXPECT_TRUE(engine->plan().all_resident);
  EXPECT_EQ(engine->plan().slot_total_bytes, 0u) << "the host holds no experts";
  EXPECT_EQ(engine->plan().request.weight_bytes, 0u);
}

/// The exact bytes, in parentheses, behind `before` in a message.
uint64_t bytes_after(const std::string& text, const std::string& before) {
  const size_t at = text.find(before), open = text.find('(', at);
  return at == std::string::npos || open == std::string::npos ? 0 : std::stoull(text.substr(open + 1));
}

TEST(EngineOnADevice, WhatDoesNotFitIsRefusedWithNumbersThatDo) {
  EngineOptions o = options();
  const Deferred deferred;
  deferred.put_into(o);
  o.vram = 1 << 20;
  const std::string none = refusal(o);
  EXPECT_THAT(none, HasSubstr("deferred:0: a context of 300 needs"));
  EXPECT_THAT(none, HasSubstr("the budget (--vram) is 1.00 MiB (1048576 bytes)"));
  EXPECT_THAT(none, HasSubstr("no context fits in this budget"));
  EXPECT_THAT(none, HasSubstr("streaming to a GPU is not available"));
  const uint64_t smallest = bytes_after(none, "the smallest --vram for this context is ");
  o.vram = smallest - 1;
  const std::string nearly = refusal(o);
  const size_t at = nearly.find("the largest context in this budget is ");
  ASSERT_NE(at, std::string::npos) << nearly;
  const int largest =
      std::stoi(nearly.substr(at + std::string("the largest context in this budget is ").size()));
  EXPECT_EQ(largest, 299);
  o.context = largest;
  EXPECT_EQ(refusal(o), "opened");
  o.context = 300;
  o.vram = smallest;
  EXPECT_EQ(refusal(o), "opened");
  EXPECT_EQ(open(o)->run(request(3)).tokens.size(), 3u);
}

TEST(EngineOnADevice, RefusesBudgetsOverTheDeviceAndSlotsThatWouldStream) {
  EngineOptions o = options();
  const Deferred deferred;
  deferred.put_into(o);
  o.vram = deferred.options.memory.total + 1;
  EXPECT_THAT(refusal(o), HasSubstr("deferred:0 has 8.00 GiB (8589934592 bytes)"));
  o.vram.reset();
  o.expert_slots = 12;
  EXPECT_THAT(refusal(o),
              HasSubstr("streaming to a GPU is not available: all 32 experts of a layer must fit"));
  o.expert_slots = 32;
  EXPECT_EQ(refusal(o), "opened");
}

TEST(EngineOnADevice, ABudgetOverWhatIsFreeTakesNoMoreThanThat) {
  EngineOptions o = options();
  o.context = 2048;
  Deferred deferred;
  deferred.put_into(o);
  const Engine wide(o);
  const DevicePlan plan = *wide.plan().device;
  o.vram = deferred.options.memory.total;
  deferred.options.memory.free = plan.minimum_budget;
  deferred.put_into(o);
  const Engine narrow(o);
  EXPECT_LE(narrow.plan().device->total_bytes, plan.minimum_budget);
  EXPECT_LT(narrow.options().prefill_chunk, wide.options().prefill_chunk);
  deferred.options.memory.free -= 1;
  deferred.put_into(o);
  EXPECT_THAT(refusal(o), HasSubstr("the largest context in what is free is 2047"));
}

TEST(EngineOnADevice, WhatTheDeviceCannotComputeIsRefusedBeforeLoading) {
  EngineOptions o = options();
  Deferred deferred;
  deferred.options.refusal = "heads of 3 values: use another device";
  deferred.put_into(o);
  EXPECT_THAT(refusal(o), HasSubstr("pocket-moe-q4.gguf: heads of 3 values: use another device"));
  EXPECT_EQ(deferred.counters->device_bytes, 0u);
}

TEST(EngineOnADevice, PrefillRoundsAreWiderThanTheCpus) {
  EngineOptions o = options();
  o.context = 2048;
  EXPECT_EQ(Engine(o).options().prefill_chunk, 512);
  const Deferred deferred;
  deferred.put_into(o);
  EXPECT_EQ(Engine(o).options().prefill_chunk, 2048);
}

}  // namespace
}  // namespace weir
