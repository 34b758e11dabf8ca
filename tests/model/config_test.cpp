// Numbers of a configuration: in range before they are narrowed, one value for all layers, old files'
// defaults.
#include "model/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "gguf/keys.h"
#include "model/family.h"
#include "support/tiny_model.h"

namespace weir {
namespace {

using testing::AllOf;
using testing::HasSubstr;

gguf::Writer with(const std::string& name, const gguf::Value& value) {
  gguf::Writer writer = test::tiny_model();
  writer.set_value("qwen3moe." + name, value);
  return writer;
}

gguf::Value number(uint64_t value) { return {gguf::value_u64, value}; }
gguf::Value each(std::vector<int64_t> values) {
  return {gguf::value_array, gguf::Array{gguf::value_i32, std::move(values), {}, {}}};
}

ModelConfig config(const gguf::Writer& writer) {
  return Family::create(gguf::Model::parse(writer.bytes(), "tiny.gguf"))->config();
}

std::string refusal(const gguf::Writer& writer) {
  try {
    config(writer);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), Error::Kind::input) << error.what();
    return error.what();
  }
  return "";
}

// 2^32 + n is n in 32 bits, and every n here is what the tiny model has.
TEST(ModelConfig, NumbersAreCheckedBeforeTheyAreNarrowed) {
  const std::pair<const char*, uint64_t> keys[] = {
      {"block_count", 2},
      {"context_length", 512},
      {"embedding_length", 64},
      {"attention.head_count", 4},
      {"attention.head_count_kv", 2},
      {"attention.key_length", 16},
      {"attention.value_length", 16},
      {"expert_count", 8},
      {"expert_used_count", 2},
      {"expert_feed_forward_length", 32},
      {"feed_forward_length", 64},
      {"rope.dimension_count", 16},
  };
  for (const auto& [name, n] : keys) {
    ASSERT_EQ(refusal(with(name, number(n))), "") << name;
    const uint64_t wide = (uint64_t{1} << 32) + n;
    EXPECT_THAT(refusal(with(name, number(wide))),
                AllOf(HasSubstr("tiny.gguf: qwen3moe." + std::string(name) + " is " + std::to_string(wide)),
                      HasSubstr("expected ")))
        << name;
    EXPECT_THAT(refusal(with(name, number(~uint64_t{0}))), HasSubstr(name));
    EXPECT_THAT(refusal(with(name, {gguf::value_i64, int64_t{-4294967292}})), HasSubstr(name));
  }
}

TEST(ModelConfig, EqualValuesPerLayerAreOneValue) {
  const std::pair<const char*, int64_t> keys[] = {{"attention.head_count", 4},
                                                  {"attention.head_count_kv", 2},
                                                  {"feed_forward_length", 64},
                                                  {"expert_feed_forward_length", 32},
                                                  {"expert_used_count", 2}};
  for (const auto& [name, n] : keys) {
    EXPECT_EQ(refusal(with(name, each({n, n}))), "") << name;
    EXPECT_THAT(refusal(with(name, each({n, n + 1}))),
                HasSubstr("qwen3moe." + std::string(name) + " is " + std::to_string(n) + " in layer 0 but " +
                          std::to_string(n + 1) + " in layer 1"));
    EXPECT_THAT(refusal(with(name, each({n, n, n}))), HasSubstr("has 3 elements")) << name;
    EXPECT_THAT(refusal(with(name, each({}))), HasSubstr("has 0 elements")) << name;
    EXPECT_THAT(refusal(with(name, each({-1, -1}))), HasSubstr("is -1: expected")) << name;
  }
  EXPECT_EQ(config(with("attention.head_count_kv", each({2, 2}))).kv_heads, 2);
  EXPECT_THAT(refusal(with("attention.head_count",
                           {gguf::value_array, gguf::Array{gguf::value_f32, {}, {4, 4}, {}}})),
              HasSubstr("an array of 2 f32"));
  EXPECT_THAT(refusal(with("block_count", each({2, 2}))), HasSubstr("qwen3moe.block_count"));
}

/// The tiny model without expert_feed_forward_length.
gguf::Writer without_expert_width(uint64_t ff) {
  gguf::Writer writer = with("feed_forward_length", number(ff));
  writer.set_value("qwen3moe.expert_feed_forward_length", number(0));
  return writer;
}

TEST(ModelConfig, ExpertWidthFallsBackToTheWholeWidthByTheExpertsUsed) {
  EXPECT_EQ(config(without_expert_width(64)).expert_ff, 32);
  EXPECT_THAT(refusal(without_expert_width(128)), HasSubstr("ffn_gate_exps.weight has shape"));
  EXPECT_THAT(refusal(without_expert_width(1)),
              HasSubstr("qwen3moe.expert_feed_forward_length is missing or 0"));
}

}  // namespace
}  // namespace weir
