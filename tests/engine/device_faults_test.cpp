// What goes wrong on a device: damaged weights, errors in the midst of a round, options that are another
// device's.
#include "engine/device_cases.h"
#include "support/temp_dir.h"
#include "support/tiny_model.h"

namespace weir {
namespace {

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
  o.reader.advice = ReadAdvice::off;
  o.policy = ExpertPolicy::lfu;  // given, though it is the default
  EXPECT_THAT(refusal(o), HasSubstr("--expert-policy: every expert stays in the memory of cuda:0"));
  o.policy.reset();
  o.isa = Isa::avx2;
  EXPECT_THAT(refusal(o),
              HasSubstr("--isa: an instruction set of the CPU, but the model is computed on cuda:0"));
}

}  // namespace
}  // namespace weir
