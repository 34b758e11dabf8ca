// Shapes at and beyond what the kernels are made for: each is computed with the CPU's tokens, or refused
// before anything is loaded. None ends in a check.
#include "cuda/conformance.h"
#include "engine/engine.h"
#include "support/temp_dir.h"
#include "support/tiny_model.h"

namespace weir {
namespace {

struct Shape {
  const char* name;
  test::TinyModelOptions model;
  const char* refusal = "";  ///< the GPU's; the CPU takes all
};

test::TinyModelOptions heads(int count, int kv, int width) {
  test::TinyModelOptions o;
  o.layers = 1, o.heads = count, o.kv_heads = kv, o.head_dim = width;
  return o;
}
test::TinyModelOptions experts(int count, int top_k) {
  test::TinyModelOptions o;
  o.layers = 1, o.hidden = 32, o.heads = 2, o.kv_heads = 1, o.experts = count, o.top_k = top_k;
  return o;
}
test::TinyModelOptions formats(Type gate, Type up) {
  test::TinyModelOptions o;
  o.layers = 2, o.gate_types = {Type::Q8_0, gate}, o.up_types = {Type::Q8_0, up};
  return o;
}

std::vector<Shape> shapes() {
  return {{"heads of 8", heads(4, 2, 8)},
          {"heads of 6", heads(16, 2, 6), "attention heads of 6 values"},
          {"heads of 256, 20 for one kv head", heads(20, 1, 256)},
          {"heads of 264", heads(4, 1, 264), "attention heads of 264 values"},
          {"one expert", experts(1, 1)},
          {"every expert", experts(7, 7)},
          {"top 17", experts(20, 17)},
          {"top 128 of 512", experts(512, 128)},
          {"top 129", experts(256, 129), "129 experts used for a token"},
          {"513 experts", experts(513, 2), "513 experts in a layer"},
          {"gate F16, up Q8_0", formats(Type::F16, Type::Q8_0),
           "layer 1 has experts' gate in F16 and up in Q8_0"},
          {"gate and up F16", formats(Type::F16, Type::F16)}};
}

class CudaShapes : public testing::Test {
 protected:
  void SetUp() override {
    if (!built_with_cuda() || cuda_device_count() == 0) GTEST_SKIP() << "no GPU that this build can use";
    take_next_size();
  }
  static std::vector<Token> tokens(const EngineOptions& o) {
    Engine engine(o);
    engine.load();
    Request r;
    for (int i = 0; i < 19; ++i) r.prompt.push_back(i * 31 % 250);
    r.sampler.greedy = true, r.ignore_eos = true, r.max_tokens = 2;
    const Result result = engine.run(r);
    EXPECT_EQ(result.error, "");
    return result.tokens;
  }
  test::TempDir dir_;
};

TEST_F(CudaShapes, RunOrAreRefusedBeforeLoading) {
  for (const Shape& shape : shapes()) {
    SCOPED_TRACE(shape.name);
    EngineOptions o;
    o.model = test::write_tiny_model(dir_.file("shape.gguf"), shape.model);
    o.context = 32, o.threads = 1;
    const std::vector<Token> expected = tokens(o);
    EXPECT_EQ(expected.size(), 2u);
    o.device = "cuda:0", o.arithmetic = Arithmetic::portable;
    if (std::string(shape.refusal).empty()) {
      EXPECT_EQ(tokens(o), expected);
      continue;
    }
    try {
      const Engine engine(o);
      ADD_FAILURE() << "not refused";
    } catch (const Error& e) {
      EXPECT_EQ(e.exit_code(), 2);
      EXPECT_NE(std::string(e.what()).find(shape.refusal), std::string::npos) << e.what();
    }
  }
}

class CudaWide : public CudaTest {};

/// With a norm, one row of more than some 24,000 values does not fit in a block's shared memory.
TEST_F(CudaWide, ARowWiderThanSharedMemoryHasTheCpusBits) {
  constexpr int64_t in = 25'600, out = 20;
  const RandomMatrix weight(Type::Q8_0, in, out, 1);
  const Floats x = random_floats(in, 2), norm = random_floats(in, 3);
  reserve({.rows = 1, .max_in = in, .hidden = in});
  expect_cpu_bits("a wide row", [&](Device& device) {
    Bench bench(device);
    float* y = bench.poisoned(out);
    const MatmulTarget target{bench.put(weight), y};
    device.matmul({bench.put(x), 1, {&target, 1}, bench.put(norm), 1e-6f});
    return bench.get(y, out);
  });
}

}  // namespace
}  // namespace weir
