// The engine on a device whose memory the host cannot touch, that works later and routes by itself: the same
// tokens and logits as on the CPU device, rounds recorded and replayed, memory as the device's plan says.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <vector>

#include "engine/engine.h"
#include "lab/verify.h"
#include "support/deferred_device.h"
#include "support/paths.h"
#include "support/temp_dir.h"
#include "support/tiny_model.h"

namespace weir {
namespace {

using test::DeferredDevice;
using ::testing::HasSubstr;

struct Deferred {
  DeferredDevice::Options options;
  std::shared_ptr<DeferredDevice::Counters> counters = std::make_shared<DeferredDevice::Counters>();
  void put_into(EngineOptions& o) const {
    o.make_device = [options = options, counters = counters] {
      return std::make_unique<DeferredDevice>(options, counters);
    };
  }
};

EngineOptions options() {
  EngineOptions o;
  o.model = testing::pocket_model();
  o.context = 300;
  o.threads = 2;
  return o;
}

Request request(int n, int prompt_tokens = 5) {
  Request r;
  for (int i = 0; i < prompt_tokens; ++i) r.prompt.push_back((i * 977 + 100) % 8000);
  r.max_tokens = n;
  r.sampler.greedy = true;
  r.ignore_eos = true;
  return r;
}

std::unique_ptr<Engine> open(const EngineOptions& o) {
  auto engine = std::make_unique<Engine>(o);
  engine->load();
  return engine;
}

/// All requests at once.
std::vector<Result> run_all(Engine& engine, const std::vector<Request>& requests) {
  for (const Request& r : requests) engine.submit(r);
  while (engine.step()) {
  }
  auto results = engine.take_finished();
  std::sort(results.begin(), results.end(), [](const Result& a, const Result& b) { return a.id < b.id; });
  return results;
}

void expect_equal(const std::vector<Result>& a, const std::vector<Result>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].tokens, b[i].tokens) << i;
    EXPECT_EQ(a[i].logits_hash, b[i].logits_hash) << i;
    EXPECT_EQ(a[i].finish, b[i].finish) << i;
  }
}

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

TEST(EngineOnADevice, ExpertsAreCountedInReplayedRoundsToo) {
  EngineOptions o = options();
  o.ledger.enabled = true;
  const Deferred deferred;
  deferred.put_into(o);
  const auto engine = open(o);
  engine->run(request(11));
  const auto& c = engine->config();
  const auto expected = static_cast<uint64_t>(c.layers) * static_cast<uint64_t>(c.top_k) * (5 + 10);
  EXPECT_GT(deferred.counters->replays, 0);
  EXPECT_EQ(engine->expert_counters().hits, expected);
  EXPECT_EQ(engine->expert_counters().misses, 0u);
  const Ledger& ledger = *engine->ledger();
  EXPECT_EQ(ledger.phase(Phase::prefill).experts.hits + ledger.phase(Phase::decode).experts.hits, expected);
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

TEST(EngineOnADeviceSlow, TheWholeMatrixIsEqualToItsReferences) {
  EngineOptions o = options();
  o.context = 128;
  const Deferred deferred;
  deferred.put_into(o);
  const auto cells = lab::verify_matrix(o, Engine(o));
  std::vector<std::string> names;
  for (const auto& cell : cells) names.push_back(cell.name);
  EXPECT_THAT(names, ::testing::IsSupersetOf({"graphs off", "lanes 4", "ledger 1", "prefill chunk 7", "cpu",
                                              "portable", "portable, lanes 4", "choice on the GPU",
                                              "choice on the GPU, lanes 4"}));
  EXPECT_THAT(names, ::testing::Not(::testing::Contains(::testing::HasSubstr("slots")))) << "nothing streams";
  const std::vector<lab::VerifyPrompt> prompts = {{"a", request(1, 9).prompt}, {"b", request(1, 30).prompt}};
  std::vector<lab::VerifyOutcome> outcomes;
  for (size_t i = 0; i < cells.size(); ++i) {
    outcomes.push_back(lab::run_cell(cells[i], prompts, 5));
    const size_t reference = lab::reference_of(cells, i);
    EXPECT_EQ(cells[reference].name, cells[i].reference.empty() ? "base" : "cpu");
    for (const auto& line : lab::differences(outcomes[reference], outcomes[i])) ADD_FAILURE() << line;
  }
  EXPECT_TRUE(lab::differences(outcomes.front(), outcomes.back()).empty()) << "here both compute on the CPU";
}

/// What an engine with these options is refused for; "opened" where it is not.
std::string refusal(const EngineOptions& o) {
  try {
    const Engine engine(o);
  } catch (const Error& e) {
    EXPECT_EQ(e.exit_code(), 2);
    return e.what();
  }
  return "opened";
}

const lab::VerifyCell& cell_named(const std::vector<lab::VerifyCell>& cells, const std::string& name) {
  const auto found = std::find_if(cells.begin(), cells.end(), [&](const auto& c) { return c.name == name; });
  if (found == cells.end()) throw std::runtime_error("no cell " + name);
  return *found;
}

TEST(EngineOnADevice, VerifyComparesTheDevicesOwnChoiceByTokensAlone) {
  EngineOptions o = options();
  o.context = 64;
  const Deferred deferred;
  deferred.put_into(o);
  const auto cells = lab::verify_matrix(o, Engine(o));
  const std::vector<lab::VerifyPrompt> prompts = {{"a", request(1, 9).prompt}, {"b", request(1, 30).prompt}};
  constexpr int n = 5;
  const lab::VerifyOutcome base = lab::run_cell(cells[0], prompts, n);
  EXPECT_FALSE(base.tokens_only);
  for (const std::string name : {"choice on the GPU", "choice on the GPU, lanes 4"}) {
    const lab::VerifyCell& cell = cell_named(cells, name);
    EXPECT_EQ(cell.quick, name == "choice on the GPU");
    EXPECT_EQ(cell.together, !cell.quick);
    EXPECT_EQ(cell.reference, "");
    deferred.counters->downloaded_bytes = 0;
    const lab::VerifyOutcome outcome = lab::run_cell(cell, prompts, n);
    EXPECT_GT(deferred.counters->downloaded_bytes, 0u);
    EXPECT_LE(deferred.counters->downloaded_bytes, prompts.size() * n * sizeof(Choice)) << "logits came";
    EXPECT_TRUE(outcome.tokens_only);
    EXPECT_TRUE(outcome.logits_hash.empty());
    EXPECT_EQ(outcome.tokens, base.tokens);
    EXPECT_TRUE(lab::differences(base, outcome).empty()) << name;
    EXPECT_TRUE(lab::locate_difference(cells[0], cell, prompts, n).first.operation.empty());
  }
}

TEST(EngineOnADevice, VerifysCpuCellTakesNothingThatOnlyAGpuHas) {
  EngineOptions o = options();
  const Deferred deferred;
  deferred.put_into(o);
  o.graphs = false;
  o.vram = deferred.options.memory.free;
  EXPECT_EQ(refusal(cell_named(lab::verify_matrix(o, Engine(o)), "cpu").options), "opened");
}

TEST(EngineOnADevice, VerifyFindsADeviceThatChoosesWrongly) {
  EngineOptions o = options();
  o.context = 64;
  Deferred deferred;
  deferred.options.wrong_choice = true;
  deferred.put_into(o);
  const auto cells = lab::verify_matrix(o, Engine(o));
  const std::vector<lab::VerifyPrompt> prompts = {{"a", request(1, 9).prompt}};
  const lab::VerifyCell& choice = cell_named(cells, "choice on the GPU");
  const lab::VerifyOutcome base = lab::run_cell(cells[0], prompts, 4);
  for (const char* name : {"graphs off", "ledger 1"})  // the host chooses from their logits
    EXPECT_TRUE(lab::differences(base, lab::run_cell(cell_named(cells, name), prompts, 4)).empty()) << name;
  const auto lines = lab::differences(base, lab::run_cell(choice, prompts, 4));
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_THAT(lines[0], HasSubstr("choice on the GPU, prompt a: new token 0: "));
  const lab::Parting parting = lab::locate_difference(cells[0], choice, prompts, 4);
  EXPECT_EQ(parting.first.operation, "head or sample") << "not the embedding that follows from it";
  EXPECT_EQ(parting.first.position, 9);
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

TEST(EngineOnADevice, PrefillRoundsAreWiderThanTheCpus) {
  EngineOptions o = options();
  o.context = 2048;
  EXPECT_EQ(Engine(o).options().prefill_chunk, 512);
  const Deferred deferred;
  deferred.put_into(o);
  EXPECT_EQ(Engine(o).options().prefill_chunk, 2048);
}

TEST(EngineOnADevice, ADamagedWeightIsNamedThroughTheDevice) {
  const test::TempDir dir;
  test::TinyModelOptions shape;
  const std::string path = test::write_tiny_model(dir.file("tiny.gguf"), shape);
  EngineOptions o;
  o.model = path;
  o.context = 64;
  const auto model = gguf::Model::open(path);
  const auto& tensor = model.tensor("output_norm.weight");
  FILE* file = fopen(path.c_str(), "r+b");
  ASSERT_NE(file, nullptr);
  const float bad = std::numeric_limits<float>::quiet_NaN();
  fseek(file, static_cast<long>(tensor.offset), SEEK_SET);
  fwrite(&bad, sizeof bad, 1, file);
  fclose(file);
  const Deferred deferred;
  deferred.put_into(o);
  const auto engine = open(o);
  Request r = request(4);
  r.prompt = {1, 2, 3};
  for (int i = 0; i < 2; ++i) {
    const Result result = engine->run(r);
    EXPECT_EQ(result.finish, Finish::failed);
    EXPECT_THAT(result.error, HasSubstr("tensor output_norm.weight holds a NaN or an infinity"));
  }
}

/// Runs `requests` on a device with a fault, then, on the same engine, again.
void expect_a_round_to_fail_alone(EngineOptions o, const DeferredDevice::Options& faulty,
                                  const std::string& says, const std::vector<Request>& requests,
                                  const std::vector<Result>& expected) {
  const Deferred deferred{faulty};
  deferred.put_into(o);
  const auto engine = open(o);
  for (const Request& r : requests) engine->submit(r);
  int thrown = 0;
  for (bool more = true; more;) try {
      more = engine->step();
    } catch (const Error& e) {
      ++thrown;
      EXPECT_EQ(e.what(), says);
    }
  EXPECT_EQ(thrown, 1);
  auto results = engine->take_finished();
  ASSERT_EQ(results.size(), requests.size());
  std::sort(results.begin(), results.end(), [](const Result& a, const Result& b) { return a.id < b.id; });
  int failed = 0;
  for (const Result& r : results) {
    const bool whole = r.finish != Finish::failed;
    failed += !whole;
    EXPECT_EQ(r.error, whole ? "" : says);
    EXPECT_EQ(r.error_kind, Error::Kind::failure);
    if (whole) {
      EXPECT_EQ(r.tokens, expected[static_cast<size_t>(&r - results.data())].tokens);
    }
  }
  EXPECT_TRUE(failed == 1 || failed == 2) << failed << ": those that were open, not the one that waited";
  expect_equal(run_all(*engine, requests), expected);
}

TEST(EngineDevice, AnErrorInARoundFailsTheOpenRequestsAndNothingElse) {
  EngineOptions o = options();
  o.lanes = 2;
  const std::vector<Request> requests{request(12), request(9, 40), request(7, 3)};
  const Deferred sound;
  sound.put_into(o);
  const auto engine = open(o);
  const int operations = sound.counters->operations, waits = sound.counters->waits;  // of loading
  const auto expected = run_all(*engine, requests);
  const int more = sound.counters->operations - operations;
  for (const bool ledger : {false, true}) {
    o.ledger.enabled = ledger;
    for (const int n : {1, more / 4, more / 2}) {  // in a prompt, and while a round is recorded
      DeferredDevice::Options faulty;
      faulty.fail_operation = operations + n;
      expect_a_round_to_fail_alone(o, faulty, "deferred: an operation failed", requests, expected);
    }
    for (const int n : {1, 2, 5}) {
      DeferredDevice::Options faulty;
      faulty.fail_wait = waits + n;
      expect_a_round_to_fail_alone(o, faulty, "deferred: the device is lost", requests, expected);
    }
  }
}

TEST(EngineDevice, OptionsThatDoNotBelongToTheDeviceAreRefused) {
  EngineOptions o = options();
  o.device = "gpu";
  EXPECT_THAT(refusal(o), HasSubstr("--device 'gpu': expected cpu, or cuda:N"));
  o.device = "cuda:-1";
  EXPECT_THAT(refusal(o), HasSubstr("--device 'cuda:-1'"));
  o.device = "cuda:99";
  EXPECT_THAT(refusal(o), HasSubstr("--device cuda:99: "));
  o.device = "cpu";
  o.arithmetic = Arithmetic::fast;
  EXPECT_THAT(refusal(o), HasSubstr("--arithmetic fast"));
  o.arithmetic.reset();
  o.vram = 1 << 30;
  EXPECT_THAT(refusal(o), HasSubstr("--vram"));
  o.vram.reset();
  o.graphs = false;
  EXPECT_THAT(refusal(o), HasSubstr("--no-graphs: the CPU records no rounds; leave it out"));
  o.graphs = true;
  o.device = "cuda:0";
  o.reader.mode = IoMode::buffered;
  EXPECT_THAT(refusal(o), HasSubstr("--io and --read-advice: every expert stays in the memory of cuda:0"));
  o.reader.mode = IoMode::automatic;
  o.reader.advice = ReadAdvice::bounded;
  EXPECT_THAT(refusal(o), HasSubstr("--io and --read-advice"));
}

}  // namespace
}  // namespace weir
