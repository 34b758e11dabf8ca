// Weights that are NaN, on the CUDA device: keys, values, the router and experts reach the logits, in both
// arithmetics, and no id of an expert leaves its range (the emulator would stop there).
#include "cuda/conformance.h"
#include "engine/engine.h"
#include "support/damage.h"
#include "support/temp_dir.h"
#include "support/tiny_model.h"

namespace weir {
namespace {

TEST(CudaNotFinite, KeysValuesRouterAndExpertsFailTheRequest) {
  if (!built_with_cuda() || cuda_device_count() == 0) GTEST_SKIP() << "no GPU that this build can use";
  const test::TempDir dir;
  for (const int hidden : {64, 512}) {  // 512: the router's own kernel for a few rows
    test::TinyModelOptions model;
    model.hidden = hidden, model.head_dim = 64;
    for (const auto& [tensor, rows] : {std::pair{"attn_k", 0},
                                       {"attn_v", 0},
                                       {"attn_q_norm", 0},
                                       {"ffn_gate_inp", 0},
                                       {"ffn_up_exps", 32}}) {
      EngineOptions o;
      o.model = test::write_tiny_model(dir.file("tiny.gguf"), model);
      const std::string name = std::string("blk.0.") + tensor + ".weight";
      if (hidden == 512 && name != "blk.0.ffn_gate_inp.weight") continue;
      for (int e = rows > 0 ? 1 : 0; e < (rows > 0 ? 8 : 1); ++e) test::damage(o.model, name, e * rows);
      o.device = "cuda:0", o.context = 100, o.threads = 1;
      for (const Arithmetic arithmetic : {Arithmetic::portable, Arithmetic::fast}) {
        o.arithmetic = arithmetic;
        Engine engine(o);
        engine.load();
        for (const int prompt : {1, 20}) {
          Request r;
          for (int i = 0; i < prompt; ++i) r.prompt.push_back(i * 31 % 250);
          r.sampler.greedy = true, r.max_tokens = 3;
          const Result result = engine.run(r);
          EXPECT_EQ(result.finish, Finish::failed) << name << ", hidden " << hidden;
          EXPECT_TRUE(result.tokens.empty()) << name;
          EXPECT_NE(result.error.find("tensor " + name + (rows > 0 ? ", expert 1" : "")), std::string::npos)
              << result.error;
        }
      }
    }
  }
}

}  // namespace
}  // namespace weir
