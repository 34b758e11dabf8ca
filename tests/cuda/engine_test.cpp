// Whole engines on the CUDA device: the CPU's tokens and logits in the portable arithmetic, whatever is
// recorded, measured, batched or cut; the fast arithmetic equals itself.
#include <fmt/core.h>

#include <algorithm>
#include <map>

#include "cuda/conformance.h"
#include "device/cuda/cuda_device.h"
#include "engine/engine.h"
#include "support/temp_dir.h"
#include "support/tiny_model.h"

namespace weir {
namespace {

struct Setting {
  std::string name;
  EngineOptions options;
  bool together = true;  ///< all requests in lanes of one engine
  bool hash = true;      ///< false: where a request is greedy its logits stay on the GPU, which chooses
};

/// Greedy ones and a sampled one, which ends first.
std::vector<Request> requests(bool hash = true) {
  std::vector<Request> all;
  for (int n : {1, 5, 19, 70}) {
    Request r;
    for (int i = 0; i < n; ++i) r.prompt.push_back((i * 97 + n * 31 + 17) % 250);
    r.sampler.greedy = n != 5;
    r.max_tokens = r.sampler.greedy ? 6 : 4, r.ignore_eos = true, r.hash_logits = hash;
    r.sampler.seed = 3;
    all.push_back(r);
  }
  return all;
}

class CudaEngine : public testing::Test {
 protected:
  void SetUp() override {
    if (!built_with_cuda() || cuda_device_count() == 0) GTEST_SKIP() << "no GPU that this build can use";
    take_next_size();
  }

  EngineOptions options(const test::TinyModelOptions& model, const std::string& device = "cuda:0") {
    const std::string path = dir_.file(model.architecture + std::to_string(model.hidden) + ".gguf");
    EngineOptions o;
    o.model = test::write_tiny_model(path, model);
    o.device = device;
    o.arithmetic = Arithmetic::portable;
    o.context = 200, o.threads = 1, o.lanes = 4;
    return o;
  }
  static std::vector<Result> run(const Setting& setting) {
    Engine engine(setting.options);
    engine.load();
    std::vector<Result> results;
    if (!setting.together) {
      for (const Request& r : requests(setting.hash)) results.push_back(engine.run(r));
      return results;
    }
    for (const Request& r : requests(setting.hash)) engine.submit(r);
    while (engine.step()) {
      take_next_order();
    }
    results = engine.take_finished();
    std::sort(results.begin(), results.end(), [](const Result& a, const Result& b) { return a.id < b.id; });
    return results;
  }
  static void expect_equal(const std::vector<Result>& got, const std::vector<Result>& expected,
                           const std::string& what) {
    ASSERT_EQ(got.size(), expected.size()) << what;
    for (size_t i = 0; i < got.size(); ++i) {
      EXPECT_TRUE(got[i].error.empty()) << what << ": " << got[i].error;
      EXPECT_EQ(got[i].tokens, expected[i].tokens) << what << ", request " << i;
      EXPECT_EQ(got[i].logits_hash, expected[i].logits_hash) << what << ", request " << i;
    }
  }
  /// The settings that must not change a bit: one that has a bit of each, or all.
  static std::vector<Setting> few_settings(const EngineOptions& base) {
    std::vector<Setting> few{{"together", base}, {"alone in chunks, without graphs", base, false}};
    few[1].options.graphs = false, few[1].options.prefill_chunk = 7;
    few.push_back({"with the ledger and a delay", base});
    EngineOptions& o = few.back().options;
    o.ledger.enabled = true, o.ledger.inject_role = Role::attention, o.ledger.inject_ns = 1000;
    return few;
  }
  static std::vector<Setting> all_settings(const EngineOptions& base) {
    std::vector<Setting> all{{"together", base}, {"alone", base, false}};
    const auto add = [&](const std::string& name, auto&& change) {
      all.push_back({name, base});
      change(all.back().options);
    };
    add("without graphs", [](EngineOptions& o) { o.graphs = false; });
    add("with the ledger", [](EngineOptions& o) { o.ledger.enabled = true; });
    add("with the ledger, without graphs",
        [](EngineOptions& o) { o.ledger.enabled = true, o.graphs = false; });
    add("with a delay", [](EngineOptions& o) {
      o.ledger.enabled = true, o.ledger.inject_role = Role::attention, o.ledger.inject_ns = 1000;
    });
    add("in chunks of 7", [](EngineOptions& o) { o.prefill_chunk = 7; });
    add("in chunks of 32", [](EngineOptions& o) { o.prefill_chunk = 32; });
    all.push_back({"one lane", base, false});
    all.back().options.lanes = 1;
    return all;
  }
  void expect_cpu_results(const test::TinyModelOptions& model, const std::vector<Setting>& settings) {
    EngineOptions cpu = options(model, "cpu");
    cpu.isa = Isa::scalar;
    const std::vector<Result> expected = run({"cpu", cpu, false});
    for (const Setting& s : settings)
      expect_equal(run(s), expected,
                   model.architecture + " of " + std::to_string(model.hidden) + ", " + s.name);
  }
  void expect_fast_equals_itself(const test::TinyModelOptions& model,
                                 std::vector<Setting> (*settings)(const EngineOptions&)) {
    EngineOptions base = options(model);
    base.arithmetic = Arithmetic::fast;
    const std::vector<Setting> all = settings(base);
    const std::vector<Result> expected = run(all[0]);
    for (size_t i = 1; i < all.size(); ++i)
      expect_equal(run(all[i]), expected, model.architecture + ", " + all[i].name);
  }
  test::TempDir dir_;
};
class CudaEngineSlow : public CudaEngine {};

std::vector<test::TinyModelOptions> models() {
  std::vector<test::TinyModelOptions> all{{}, test::tiny_kquant_options(), test::tiny_dense_options()};
  all[0].head_dim = 64;
  return all;
}

TEST_F(CudaEngine, PortableHasTheCpusTokensAndLogits) {
  for (const auto& model : models()) expect_cpu_results(model, few_settings(options(model)));
#if defined(WEIR_CUDA_EMULATION)
  EXPECT_GT(emulation::counts().graph_launches, 10u);
#endif
}

/// The fused path (norm, rotation and store inside attention) behind biases and with scaled rotations.
TEST_F(CudaEngine, BiasesAndScaledRotationsHaveTheCpusTokensAndLogits) {
  test::TinyModelOptions model;
  model.head_dim = 64, model.n_rot = 48;
  model.biases = model.rope_factors = true;
  model.rope_scaling = "yarn", model.rope_keys = {{"scaling.factor", 4}}, model.rope_original_context = 2048;
  expect_cpu_results(model, few_settings(options(model)));
  take_size(132);
  expect_fast_equals_itself(model, few_settings);
}

TEST_F(CudaEngineSlow, PortableHasTheCpusTokensAndLogitsInEverySetting) {
  for (const auto& model : models()) expect_cpu_results(model, all_settings(options(model)));
}

TEST_F(CudaEngine, FastEqualsItself) { expect_fast_equals_itself({}, few_settings); }

/// Heads of a width that the fast kernels take, on a GPU so wide that they cut one row in chunks: with
/// experts between the layers the cache is read ahead of the wait, without them in the first layer alone.
TEST_F(CudaEngineSlow, FastInChunksEqualsItself) {
  take_size(132);
  for (test::TinyModelOptions model : models()) {
    model.head_dim = 64;
    expect_fast_equals_itself(model, few_settings);
  }
}

TEST_F(CudaEngineSlow, FastEqualsItselfInEverySetting) { expect_fast_equals_itself({}, all_settings); }

/// What weir run does: no hash, so greedy lanes take the GPU's choice, beside a sampled one whose logits come
/// to the host; once that one is done, rounds of choices alone are recorded.
TEST_F(CudaEngine, TheGpusOwnChoicesAreTheTokensOfTheHosts) {
  const EngineOptions base = options(test::TinyModelOptions{});
  const std::vector<Result> expected = run({"with logits", base});
  for (const bool graphs : {true, false}) {
    for (const bool together : {true, false}) {
      Setting setting{"", base, together, false};
      setting.options.graphs = graphs;
      const std::vector<Result> got = run(setting);
      ASSERT_EQ(got.size(), expected.size());
      for (size_t i = 0; i < got.size(); ++i) {
        EXPECT_EQ(got[i].error, "");
        EXPECT_EQ(got[i].tokens.size(), i == 1 ? 4u : 6u);
        EXPECT_EQ(got[i].tokens, expected[i].tokens)
            << "request " << i << (graphs ? "" : ", graphs off") << (together ? "" : ", alone");
      }
    }
  }
}

TEST_F(CudaEngine, TheLedgerAddsNoLaunchAndNoNode) {
  struct Counts {
    uint64_t launches = 0;
    size_t nodes = 0;
    bool operator==(const Counts&) const = default;
  };
  test::TinyModelOptions model;
  model.head_dim = 64;
  const auto count = [&](bool ledger, Arithmetic arithmetic, std::initializer_list<size_t> together) {
    take_size(132);
    EngineOptions o = options(model);
    o.ledger.enabled = ledger;
    cuda::CudaDevice* device = nullptr;
    o.make_device = [&] {
      auto made = std::make_unique<cuda::CudaDevice>(CudaOptions{.arithmetic = arithmetic});
      device = made.get();
      return made;
    };
    Engine engine(o);
    engine.load();
#if defined(WEIR_CUDA_EMULATION)
    const uint64_t reads = emulation::counts().clock_reads;
#endif
    for (const size_t i : together) engine.submit(requests(false)[i]);
    while (engine.step()) {
    }
#if defined(WEIR_CUDA_EMULATION)
    EXPECT_EQ(emulation::counts().clock_reads > reads, ledger) << "who reads the clock";
#endif
    return Counts{device->launches(), device->recorded_nodes()};
  };
  for (const Arithmetic arithmetic : {Arithmetic::portable, Arithmetic::fast})
    for (const auto& together : {std::initializer_list<size_t>{2}, {0, 2, 3}}) {
      const Counts off = count(false, arithmetic, together), on = count(true, arithmetic, together);
      EXPECT_GT(off.nodes, 10u);
      EXPECT_EQ(off, on) << off.launches << " and " << on.launches << " launches, " << off.nodes << " and "
                         << on.nodes << " nodes";
    }
}

TEST_F(CudaEngine, TheLedgerCountsBytesOfItsOwnTimeAlone) {
  EngineOptions o = options(test::TinyModelOptions{});
  o.ledger.enabled = true;
  Engine engine(o);
  engine.load();
  const auto expert_bytes = [&] {
    engine.run(requests()[2]);
    return engine.ledger()->phase(Phase::prefill).roles[static_cast<size_t>(Role::experts_hit)].bytes;
  };
  const uint64_t bytes = expert_bytes();
  EXPECT_GT(bytes, 0u);
  engine.pause_ledger(true);
  for (const Request& r : requests()) engine.run(r);
  engine.pause_ledger(false);
  EXPECT_EQ(expert_bytes(), bytes) << "visits of the time without the ledger";
}

/// 256 wide, the router counts the experts as it groups rows; 512 wide, the experts' own kernel does.
TEST_F(CudaEngine, TheLedgerCountsAnExpertOnceForAllRowsThatChoseIt) {
  for (int hidden : {256, 512}) {
    test::TinyModelOptions model = test::tiny_kquant_options();
    model.layers = 1, model.experts = 4, model.hidden = hidden;
    model.gate_types = model.up_types = model.down_types = {Type::Q4_K};
    EngineOptions o = options(model);
    o.ledger.enabled = true;
    Engine engine(o);
    engine.load();
    const uint64_t expert = 3 * type_info(Type::Q4_K).bytes(256) * static_cast<uint64_t>(hidden);
    for (int rows : {1, 3, 16}) {
      Request r;
      for (int i = 0; i < rows; ++i) r.prompt.push_back(i * 97 % 250);
      r.sampler.greedy = true, r.max_tokens = 1, r.ignore_eos = true;
      engine.run(r);
      const uint64_t read =
          engine.ledger()->phase(Phase::prefill).roles[static_cast<size_t>(Role::experts_hit)].bytes;
      EXPECT_EQ(read % expert, 0u) << rows << " rows, " << hidden;
      EXPECT_GE(read / expert, 2u) << rows << " rows, " << hidden;
      EXPECT_LE(read / expert, rows == 1 ? 2u : 4u) << rows << " rows of 2 experts each, of 4; " << hidden;
    }
  }
}

/// The kernels count them: through recordings, in batches of every width, with the ledger and without it.
TEST_F(CudaEngine, HitsAreTheDistinctExpertsThatTheCpuCounts) {
  for (const auto& model : {test::TinyModelOptions{}, test::tiny_kquant_options()})
    for (const bool ledger : {false, true}) {
      uint64_t uses[2] = {}, filed[2] = {};
      for (const bool gpu : {false, true}) {
        EngineOptions o = options(model, gpu ? "cuda:0" : "cpu");
        o.ledger.enabled = ledger;
        Engine engine(o);
        engine.load();
        for (const Request& r : requests()) engine.submit(r);
        while (engine.step()) {
        }
        const ExpertCounters c = engine.expert_counters();
        uses[gpu] = c.hits + c.misses;
        for (int p = 0; ledger && p < phase_count; ++p) {
          const ExpertCounters& e = engine.ledger()->phase(static_cast<Phase>(p)).experts;
          filed[gpu] += e.hits + e.misses;
        }
      }
      EXPECT_GT(uses[0], 0u);
      EXPECT_EQ(uses[1], uses[0]) << model.hidden;
      EXPECT_EQ(filed[1], filed[0]) << model.hidden;
      if (ledger) {
        EXPECT_EQ(filed[1], uses[1]);
      }
    }
}

TEST_F(CudaEngine, ADelayForARoleThatNeverRunsIsNotCountedAsInjected) {
  EngineOptions o = options(test::TinyModelOptions{});
  o.ledger.enabled = true, o.ledger.inject_ns = 1000;
  for (const auto& [role, counts] : {std::pair{Role::recurrent, false}, std::pair{Role::router, true}}) {
    o.ledger.inject_role = role;
    Engine engine(o);
    engine.load();
    Request request = requests()[2];
    request.max_tokens = 30;
    engine.run(std::move(request));
    EXPECT_EQ(engine.ledger()->phase(Phase::decode).injected_rounds > 0, counts) << role_name(role);
  }
}

TEST_F(CudaEngineSlow, ALaunchThatFailsFailsTheOpenRequestsAndNothingAfterThem) {
  EngineOptions o = options(test::TinyModelOptions{});
  const std::vector<Result> expected = run({"nothing fails", o});
  uint64_t fail = 0, loading = 0;
  cuda::CudaDevice* device = nullptr;
  o.make_device = [&] {
    auto made = std::make_unique<cuda::CudaDevice>(
        CudaOptions{.arithmetic = Arithmetic::portable, .fail_launch = fail});
    device = made.get();
    return made;
  };
  {
    Engine engine(o);
    engine.load();
    loading = device->launches();
  }
  for (const bool ledger : {false, true})
    for (const uint64_t n : {1, 3, 20, 40, 60}) {  // in the prompts, and while a round is recorded
      o.ledger.enabled = ledger;
      fail = loading + n;
      Engine engine(o);
      engine.load();
      std::string message;
      for (const Request& r : requests()) engine.submit(r);
      try {
        while (engine.step()) {
        }
      } catch (const Error& e) {
        message = e.what();
      }
      EXPECT_NE(message.find("cudaLaunchKernelEx failed for"), std::string::npos) << n << ": " << message;
      size_t failed = 0;
      for (const Result& r : engine.take_finished())
        failed += r.finish == Finish::failed && r.error == message;
      EXPECT_EQ(failed, requests().size()) << n;
      std::vector<Result> after;
      for (const Request& r : requests()) after.push_back(engine.run(r));
      expect_equal(after, expected, "after launch " + std::to_string(n));
    }
}

TEST_F(CudaEngine, ADeviceWithoutMemoryIsAnErrorThatNamesIt) {
  EngineOptions o = options(test::TinyModelOptions{});
  for (int n : {1, 3, 5, 8}) {
    o.make_device = [n] {
      return make_cuda_device({.arithmetic = Arithmetic::portable, .fail_allocation = n});
    };
    try {
      Engine engine(o);
      engine.load();
      ADD_FAILURE() << "allocation " << n << " did not fail";
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find("cannot allocate"), std::string::npos) << e.what();
    }
  }
#if defined(WEIR_CUDA_EMULATION)
  EXPECT_EQ(emulation::counts().allocations, 0u) << "memory that was left";
#endif
}

}  // namespace
}  // namespace weir
