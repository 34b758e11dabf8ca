// The rotary embedding's frequencies: YaRN's against published numbers, each key's effect, and what is
// refused.
#include "model/rope.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "model/family.h"
#include "support/temp_dir.h"
#include "support/tiny_model.h"

namespace weir {
namespace {

using test::TinyModelOptions;

double plain(int pair, int n_rot, double base) { return std::pow(base, -2.0 * pair / n_rot); }

/// The scaling of a tiny model whose rope keys are these, and the file's own path.
RopeScaling scaling_of(const TinyModelOptions& options) {
  const auto model = gguf::Model::parse(test::tiny_model(options).bytes(), "m.gguf");
  return Family::create(model)->config().rope_scaling;
}
RopeScaling scaling_of(const std::string& type, const std::vector<std::pair<std::string, float>>& keys,
                       int original = 0) {
  TinyModelOptions o;
  o.rope_scaling = type, o.rope_keys = keys, o.rope_original_context = original;
  return scaling_of(o);
}
std::string refusal(const std::string& type, const std::vector<std::pair<std::string, float>>& keys) {
  try {
    scaling_of(type, keys);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), Error::Kind::input);
    return error.what();
  }
  return "none";
}

TEST(Rope, UnscaledFrequenciesArePowersOfTheBase) {
  const RopeFrequencies f = rope_frequencies(scaling_of({}), 8, 100);
  ASSERT_EQ(f.pairs.size(), 4u);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(f.pairs[static_cast<size_t>(i)], plain(i, 8, 100));
  EXPECT_EQ(f.magnitude, 1);
}

TEST(Rope, LinearDividesEveryFrequency) {
  const RopeFrequencies f = rope_frequencies(scaling_of("linear", {{"scaling.factor", 4}}), 8, 100);
  for (int i = 0; i < 4; ++i) EXPECT_DOUBLE_EQ(f.pairs[static_cast<size_t>(i)], plain(i, 8, 100) / 4);
  EXPECT_EQ(f.magnitude, 1);
}

TEST(Rope, AFactorWithoutATypeIsLinearAndNoneMeansNone) {
  EXPECT_EQ(scaling_of("", {{"scaling.factor", 4}}).factor, 4);
  EXPECT_EQ(scaling_of("none", {{"scaling.factor", 4}}).factor, 1);
  EXPECT_EQ(scaling_of("linear", {{"scaling.factor", 0}}).factor, 1) << "0 is a factor that is not said";
}

TEST(Rope, TheOlderKeyIsTheFactorWhereTheNewOneIsAbsent) {
  EXPECT_EQ(scaling_of("", {{"scale_linear", 8}}).factor, 8);
  EXPECT_EQ(scaling_of("", {{"scale_linear", 8}, {"scaling.factor", 2}}).factor, 2);
}

/// gpt-oss: 64 dimensions, base 150,000, factor 32 over 4,096 positions. Its pair of 32 turns is 8.09, that
/// of one turn 17.40: pairs to 8 keep their frequency, from 18 on they are interpolated wholly.
TEST(Rope, YarnHasThePublishedRampAndMagnitude) {
  const RopeScaling s = scaling_of("yarn", {{"scaling.factor", 32}}, 4096);
  const RopeFrequencies f = rope_frequencies(s, 64, 150'000);
  const auto kept = [&](int i) {
    const double own = plain(i, 64, 150'000), slow = own / 32;
    return (f.pairs[static_cast<size_t>(i)] - slow) / (own - slow);
  };
  for (int i : {0, 1, 7, 8}) EXPECT_NEAR(kept(i), 1, 1e-12) << i;
  for (int i = 9; i < 18; ++i) EXPECT_NEAR(kept(i), (18 - i) / 10.0, 1e-12) << i;
  for (int i : {18, 19, 31}) EXPECT_NEAR(kept(i), 0, 1e-12) << i;
  EXPECT_NEAR(f.magnitude, 1.34657, 1e-5);
}

TEST(Rope, YarnsKeysMoveTheRampAndTheMagnitude) {
  const auto with = [](std::pair<std::string, float> key) {
    return rope_frequencies(scaling_of("yarn", {{"scaling.factor", 32}, key}, 4096), 64, 150'000);
  };
  const RopeFrequencies base = with({"scaling.yarn_ext_factor", -1});
  // the pair of 2 turns is 15.5
  EXPECT_LT(base.pairs[15], with({"scaling.yarn_beta_fast", 2}).pairs[15]);
  EXPECT_DOUBLE_EQ(with({"scaling.yarn_beta_fast", 2}).pairs[15], plain(15, 64, 150'000));
  EXPECT_DOUBLE_EQ(with({"scaling.yarn_beta_slow", 2}).pairs[16], plain(16, 64, 150'000) / 32);
  EXPECT_LT(with({"scaling.yarn_beta_slow", 2}).pairs[15], base.pairs[15]);
  EXPECT_NEAR(with({"scaling.yarn_ext_factor", 0.5}).pairs[0], (1 + 1 / 32.0) / 2, 1e-12);
  for (const char* key : {"scaling.attn_factor", "scaling.yarn_attn_factor"})
    EXPECT_NEAR(with({key, 0.5}).magnitude, base.magnitude / 2, 1e-12) << key;
  EXPECT_NEAR(with({"scaling.yarn_log_multiplier", 1}).magnitude, 1, 1e-12);
  EXPECT_NEAR(with({"scaling.yarn_log_multiplier", 0.5}).magnitude,
              (1 + 0.1 * std::log(32)) / (1 + 0.05 * std::log(32)), 1e-12);
}

TEST(Rope, YarnWithoutItsShareIsLinear) {
  const RopeScaling s = scaling_of("yarn", {{"scaling.factor", 32}, {"scaling.yarn_ext_factor", 0}}, 4096);
  const RopeFrequencies f = rope_frequencies(s, 64, 150'000);
  EXPECT_DOUBLE_EQ(f.pairs[0], 1 / 32.0);
  EXPECT_EQ(f.magnitude, 1);
}

TEST(Rope, TheModelsContextStandsForAnOriginalOneThatIsNotThere) {
  TinyModelOptions o;
  o.rope_scaling = "yarn", o.context = 777;
  EXPECT_EQ(scaling_of(o).original_context, 777);
}

TEST(Rope, FactorsDivideTheFrequenciesBeforeTheyAreScaled) {
  const float factors[] = {1, 2, 1e30f, 4};
  RopeScaling linear;
  linear.factor = 2;
  const RopeFrequencies f = rope_frequencies(linear, 8, 100, factors);
  for (size_t i = 0; i < 4; ++i)
    EXPECT_DOUBLE_EQ(f.pairs[i], plain(static_cast<int>(i), 8, 100) / static_cast<double>(factors[i]) / 2);
}

TEST(Rope, WhatWeirDoesNotKnowIsRefusedByName) {
  EXPECT_EQ(refusal("longrope", {}),
            "m.gguf: qwen3moe.rope.scaling.type is \"longrope\": expected \"none\", \"linear\" or \"yarn\"");
  EXPECT_EQ(refusal("linear", {{"scaling.factor", -2}}),
            "m.gguf: qwen3moe.rope.scaling.factor is -2: expected a number of at least 0");
  EXPECT_EQ(refusal("yarn", {{"scaling.factor", NAN}}),
            "m.gguf: qwen3moe.rope.scaling.factor is nan: expected a number of at least 0");
  for (const char* key : {"yarn_beta_fast", "yarn_beta_slow", "attn_factor", "yarn_attn_factor"})
    EXPECT_EQ(refusal("yarn", {{std::string("scaling.") + key, 0}}),
              std::string("m.gguf: qwen3moe.rope.scaling.") + key + " is 0: expected a number above 0");
  EXPECT_EQ(refusal("yarn", {{"freq_base", 1}}),
            "m.gguf: qwen3moe.rope.freq_base is 1: expected a number above 1 for YaRN");
}

TEST(Rope, BiasesAndFactorsAreCheckedWithTheOtherTensors) {
  TinyModelOptions o;
  o.biases = o.rope_factors = true;
  const auto model = gguf::Model::parse(test::tiny_model(o).bytes(), "m.gguf");
  const auto family = Family::create(model);
  int found = 0;
  for (const auto* tensor : family->resident())
    found += tensor->name == "blk.1.attn_v.bias" || tensor->name == "rope_freqs.weight";
  EXPECT_EQ(found, 2);
  gguf::Writer writer = test::tiny_model({});
  writer.add_tensor("blk.0.attn_q.bias", Type::F32, {8}, std::vector<uint8_t>(32));
  try {
    Family::create(gguf::Model::parse(writer.bytes(), "m.gguf"));
    ADD_FAILURE() << "accepted";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "m.gguf: tensor blk.0.attn_q.bias has shape {8}: expected {64}");
  }
}

}  // namespace
}  // namespace weir
