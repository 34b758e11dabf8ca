// What a file may ask for beside the plain model, each against the double-precision reference: biases, scaled
// and partial rotations, fused gate and up. Weights are floats, so that what is left is the cache's rounding
// to f16.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "engine/engine.h"
#include "reference/reference_model.h"
#include "support/temp_dir.h"
#include "support/tiny_model.h"

namespace weir {
namespace {

using Rows = std::vector<std::vector<double>>;
using test::TinyModelOptions;

TinyModelOptions floats(const std::string& architecture = "qwen3moe") {
  TinyModelOptions o;
  o.architecture = architecture;
  o.head_dim = 32;
  o.context = 64;
  o.embedding = o.attention = o.output = o.dense = Type::F32;
  o.gate_types = o.up_types = o.down_types = {Type::F32};
  return o;
}

std::vector<Token> prompt() {
  std::vector<Token> tokens;
  for (int i = 0; i < 40; ++i) tokens.push_back((i * 97 + 13) % 250);
  return tokens;
}

Rows engine_logits(const std::string& path) {
  EngineOptions o;
  o.model = path, o.context = 64, o.threads = 1;
  Engine engine(o);
  engine.load();
  Rows rows;
  Request r;
  r.prompt = prompt();
  r.max_tokens = 0;
  r.on_logits = [&](int, std::span<const float> logits) { rows.emplace_back(logits.begin(), logits.end()); };
  EXPECT_EQ(engine.run(r).error, "");
  return rows;
}

/// Root mean square of the difference, in units of b's own deviation from 0.
double distance(const Rows& a, const Rows& b, size_t positions) {
  double squares = 0, size = 0;
  for (size_t p = 0; p < positions; ++p)
    for (size_t i = 0; i < a[p].size(); ++i)
      squares += (a[p][i] - b[p][i]) * (a[p][i] - b[p][i]), size += b[p][i] * b[p][i];
  return std::sqrt(squares / size);
}

/// The engine is the reference's, and neither is the plain model's: `plain` has the same weights without what
/// is tested, or is null.
void check(const TinyModelOptions& options, const TinyModelOptions* plain) {
  const test::TempDir dir;
  const std::string path = test::write_tiny_model(dir.file("m.gguf"), options);
  const reference::Evaluation expected = reference::Model(path).evaluate(prompt());
  const Rows got = engine_logits(path);
  ASSERT_EQ(got.size(), expected.logits.size());
  // A tie of the router that rounding decides changes all that follows.
  size_t usable = 0;
  while (usable < got.size() && expected.router_margin[usable] > 0.01) ++usable;
  ASSERT_GE(usable, 16u);
  EXPECT_LT(distance(got, expected.logits, usable), 2e-3) << usable << " positions";
  if (!plain) return;
  const Rows without = engine_logits(test::write_tiny_model(dir.file("plain.gguf"), *plain));
  EXPECT_GT(distance(without, expected.logits, usable), 2e-2) << "what is tested must matter";
}
void check(const TinyModelOptions& options) {
  TinyModelOptions plain = options;
  plain.biases = plain.rope_factors = false;
  plain.n_rot = plain.rope_original_context = 0;
  plain.rope_scaling.clear(), plain.rope_keys.clear();
  check(options, &plain);
}

class Reference : public testing::TestWithParam<const char*> {
 protected:
  TinyModelOptions options() const { return floats(GetParam()); }
};
INSTANTIATE_TEST_SUITE_P(, Reference, testing::Values("qwen3moe", "qwen3"),
                         [](const auto& test) { return std::string(test.param); });

TEST_P(Reference, PlainModel) { check(options(), nullptr); }

TEST_P(Reference, Biases) {
  TinyModelOptions o = options();
  o.biases = true;
  check(o);
}

TEST_P(Reference, LinearScaling) {
  TinyModelOptions o = options();
  o.rope_scaling = "linear", o.rope_keys = {{"scaling.factor", 4}};
  check(o);
  o.rope_scaling = "", o.rope_keys = {{"scale_linear", 2.5}};
  check(o);
}

TEST_P(Reference, Yarn) {
  TinyModelOptions o = options();
  o.rope_scaling = "yarn", o.rope_keys = {{"scaling.factor", 8}}, o.rope_original_context = 8192;
  check(o);
}

TEST_P(Reference, YarnWithAllItsKeys) {
  TinyModelOptions o = options();
  o.rope_scaling = "yarn", o.rope_original_context = 4096;
  o.rope_keys = {{"scaling.factor", 8},
                 {"scaling.yarn_ext_factor", 0.75f},
                 {"scaling.attn_factor", 1.25f},
                 {"scaling.yarn_attn_factor", 0.875f},
                 {"scaling.yarn_beta_fast", 20},
                 {"scaling.yarn_beta_slow", 2},
                 {"scaling.yarn_log_multiplier", 0.5f}};
  check(o);
}

TEST_P(Reference, FrequencyFactors) {
  TinyModelOptions o = options();
  o.rope_factors = true;
  check(o);
}

TEST_P(Reference, RotationOfAPartOfEachHead) {
  TinyModelOptions o = options();
  o.n_rot = 12;
  check(o);
}

TEST_P(Reference, AllAtOnce) {
  TinyModelOptions o = options();
  o.biases = o.rope_factors = true, o.n_rot = 24;
  o.rope_scaling = "yarn", o.rope_keys = {{"scaling.factor", 4}}, o.rope_original_context = 2048;
  check(o);
}

TEST(ReferenceExperts, FusedGateAndUp) {
  TinyModelOptions o = floats();
  o.fused_gate_up = true;
  check(o, nullptr);
}

TEST(ReferenceFactors, OnesThatMeanNothingAreRefused) {
  gguf::Writer writer = test::tiny_model({});
  writer.add_tensor("rope_freqs.weight", Type::F32, {8}, std::vector<uint8_t>(32));
  const test::TempDir dir;
  writer.write(dir.file("m.gguf"));
  EngineOptions o;
  o.model = dir.file("m.gguf"), o.context = 64, o.threads = 1;
  Engine engine(o);
  try {
    engine.load();
    ADD_FAILURE() << "loaded";
  } catch (const Error& error) {
    EXPECT_EQ(error.what(),
              dir.file("m.gguf") + ": tensor rope_freqs.weight holds 0: expected numbers above 0");
  }
}

}  // namespace
}  // namespace weir
