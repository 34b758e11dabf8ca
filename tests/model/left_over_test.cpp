// Nothing of a file is ignored in silence: every tensor is used and every key of the architecture is read,
// known to be without effect, or the reason for a refusal or a warning that names it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "model/family.h"
#include "support/tiny_model.h"

namespace weir {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

gguf::Model parse(const gguf::Writer& writer) { return gguf::Model::parse(writer.bytes(), "tiny.gguf"); }

/// The message of the refusal; "" where the file is taken.
std::string refusal(const gguf::Writer& writer) {
  try {
    Family::create(parse(writer));
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), Error::Kind::input) << error.what();
    return error.what();
  }
  return "";
}

std::string refusal_with_tensor(const std::string& name) {
  gguf::Writer writer = test::tiny_model();
  writer.add_tensor(name, Type::F32, {2}, std::vector<uint8_t>(8));
  return refusal(writer);
}

template <typename T>
std::string refusal_with_key(const std::string& name, const T& value) {
  gguf::Writer writer = test::tiny_model();
  writer.set("qwen3moe." + name, value);
  return refusal(writer);
}

TEST(ModelLeftOver, TinyModelsAreUsedWhole) {
  EXPECT_EQ(refusal(test::tiny_model()), "");
  EXPECT_EQ(refusal(test::tiny_model(test::tiny_dense_options())), "");
  test::TinyModelOptions options;
  options.fused_gate_up = options.tied_head = true;
  EXPECT_EQ(refusal(test::tiny_model(options)), "");
}

TEST(ModelLeftOver, TensorsNobodyUsesAreRefusedByName) {
  for (const std::string name :
       {"blk.0.exp_probs_b.bias", "blk.1.ffn_gate_shexp.weight", "blk.0.attn_sinks.weight", "output.bias",
        "blk.0", "blk.x.attn_norm.weight", "blk.0.attn_output.bias", "cls.weight"})
    EXPECT_EQ(refusal_with_tensor(name), "tiny.gguf: tensor " + name + " is not used by qwen3moe");
}

TEST(ModelLeftOver, AFileThatIsNoModelIsRefusedAsWhatItIs) {
  for (const std::string type : {"adapter", "mmproj", "imatrix"}) {
    gguf::Writer writer = test::tiny_model();
    writer.set("general.type", type);
    EXPECT_EQ(refusal(writer), "tiny.gguf: general.type is '" + type + "': expected model");
  }
  gguf::Writer writer = test::tiny_model();
  writer.set("general.type", std::string("model"));
  EXPECT_EQ(refusal(writer), "");
}

TEST(ModelLeftOver, SplitExpertsBesideFusedOnesAreRefused) {
  test::TinyModelOptions options;
  options.fused_gate_up = true;
  gguf::Writer writer = test::tiny_model(options);
  writer.add_tensor("blk.0.ffn_gate_exps.weight", Type::F32, {2}, std::vector<uint8_t>(8));
  EXPECT_THAT(refusal(writer), HasSubstr("blk.0.ffn_gate_exps.weight is not used"));
}

TEST(ModelLeftOver, LayersAboveTheCountAreRefused) {
  EXPECT_EQ(refusal_with_tensor("blk.2.attn_norm.weight"),
            "tiny.gguf: tensor blk.2.attn_norm.weight is of layer 2, but qwen3moe.block_count is 2: expected "
            "layers "
            "0 to 1");
}

TEST(ModelLeftOver, AllReasonsAreListed) {
  gguf::Writer writer = test::tiny_model();
  writer.set("qwen3moe.attention.causal", false);
  writer.set("qwen3moe.frobnication", uint32_t{1});
  writer.add_tensor("output.bias", Type::F32, {2}, std::vector<uint8_t>(8));
  const auto verdict = Family::examine(parse(writer));
  EXPECT_THAT(verdict.objections,
              ElementsAre("qwen3moe.attention.causal is false, which is not supported: expected true",
                          "tensor output.bias is not used by qwen3moe"));
  EXPECT_THAT(verdict.warnings, ElementsAre("qwen3moe.frobnication is unknown and has no effect"));
  EXPECT_THAT(refusal(writer), HasSubstr("expected true (and 1 more: see weir info)"));
}

TEST(ModelLeftOver, KeysThatChangeTheComputationAreRefusedByNameAndValue) {
  const auto refused = [](const std::string& name, const auto& value, const std::string& what) {
    EXPECT_THAT(refusal_with_key(name, value), HasSubstr("tiny.gguf: qwen3moe." + name + " is " + what));
  };
  refused("attention.causal", false, "false, which is not supported: expected true");
  refused("attention.sliding_window", uint32_t{128}, "128, which is not supported: expected 0");
  refused("expert_weights_scale", 2.5f, "2.5, which is not supported: expected 1, or 0 for none");
  refused("expert_weights_norm", false, "false");
  refused("expert_gating_func", uint32_t{2}, "2, which is not supported: expected 1, softmax");
  refused("rope.scaling.alpha", 1000.0f, "1000");
  refused("norm_top_k_prob", false, "false, which is not supported: expected true");
  refused("attention.scale", 0.5f, "0.5, which is not supported: expected 1 / sqrt(16), 0.25");
  refused("final_logit_softcapping", 30.0f, "30");
  refused("attn_logit_softcapping", 50.0f, "50");
  refused("logit_scale", 0.0625f, "0.0625");
  refused("expert_shared_count", uint32_t{1}, "1");
  refused("expert_shared_feed_forward_length", uint32_t{64}, "64");
  refused("leading_dense_block_count", uint32_t{1}, "1");
  refused("expert_group_count", uint32_t{8}, "8");
  refused("rope.dimension_sections", std::vector<int32_t>{8, 4, 4, 0}, "[8, 4, 4, 0]");
  refused("nextn_predict_layers", uint32_t{1}, "1");
  refused("pooling_type", uint32_t{3}, "3");
  refused("attention.clamp_kqv", 8.0f, "8");
  refused("attention.max_alibi_bias", 8.0f, "8");
  refused("use_parallel_residual", true, "true, which is not supported: expected false");
  refused("swiglu_clamp_exp", std::vector<float>{0, 7}, "[0, 7]");
  refused("hidden_activation", "gelu", "'gelu', which is not supported: expected silu");
  refused("embedding_length_out", uint32_t{32}, "32, which is not supported: expected embedding_length, 64");
}

TEST(ModelLeftOver, NeutralValuesPassInSilence) {
  gguf::Writer writer = test::tiny_model();
  const auto set = [&](const std::string& name, const auto& value) { writer.set("qwen3moe." + name, value); };
  set("attention.causal", true);
  set("attention.sliding_window", uint32_t{0});
  set("expert_weights_scale", 1.0f);
  set("expert_weights_norm", true);
  set("expert_gating_func", uint32_t{1});
  set("rope.scaling.type", "none");
  set("rope.scaling.factor", 1.0f);
  set("rope.scaling.attn_factor", 1.0f);
  set("rope.scaling.original_context_length", uint32_t{512});
  set("attention.scale", 0.25f);
  set("final_logit_softcapping", 0.0f);
  set("logit_scale", 1.0f);
  set("expert_shared_count", uint32_t{0});
  set("expert_group_count", uint32_t{1});
  set("rope.dimension_sections", std::vector<int32_t>{0, 0, 0, 0});
  set("swiglu_clamp_exp", std::vector<float>{0, 0});
  set("hidden_activation", "silu");
  set("vocab_size", uint32_t{9});
  set("use_parallel_residual", false);
  set("embedding_length_out", uint32_t{64});
  EXPECT_EQ(refusal(writer), "");
  EXPECT_THAT(Family::create(parse(writer))->warnings(), IsEmpty());
}

// The same key means nothing to one family and everything to another.
TEST(ModelLeftOver, DenseFilesMayNotCountExperts) {
  gguf::Writer writer = test::tiny_model(test::tiny_dense_options());
  writer.set("qwen3.expert_count", uint32_t{0});
  EXPECT_EQ(refusal(writer), "");
  writer.set("qwen3.expert_count", uint32_t{8});
  EXPECT_THAT(refusal(writer), HasSubstr("qwen3.expert_count is 8"));
}

TEST(ModelLeftOver, KeysOfOtherPrefixesAreNobodysBusiness) {
  gguf::Writer writer = test::tiny_model();
  writer.set("general.frobnication", uint32_t{1});
  writer.set("qwen3moes.attention.causal", false);
  writer.set("quantize.imatrix.file", "x");
  EXPECT_EQ(refusal(writer), "");
  EXPECT_THAT(Family::create(parse(writer))->warnings(), IsEmpty());
}

}  // namespace
}  // namespace weir
