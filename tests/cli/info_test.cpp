// weir info describes any GGUF file, and says everything that speaks against running it, a line each.
#include <gmock/gmock.h>

#include "cli/weir.h"
#include "gguf/keys.h"

namespace weir::test {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;
using testing::Not;

gguf::Value integers(uint32_t element, std::vector<int64_t> values) {
  return {gguf::value_array, gguf::Array{element, std::move(values), {}, {}}};
}

class CliInfo : public Cli {
 protected:
  std::string write(const gguf::Writer& writer) const {
    const std::string path = dir_.file("odd.gguf");
    writer.write(path);
    return path;
  }
  /// What info prints; it must not fail.
  static std::string text(const std::string& path) {
    const ProcessResult result = weir({"info", "-m", path});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return result.out;
  }
};

TEST_F(CliInfo, SaysThatAModelIsSupported) {
  const std::string path = tiny();
  EXPECT_THAT(lines_of(text(path)),
              AllOf(Contains("supported: yes"), Contains(HasSubstr("attention.head_count_kv"))));
  const nlohmann::json json = json_answer(weir({"info", "-m", path, "--json"}));
  EXPECT_EQ(json["supported"], true);
  EXPECT_TRUE(json["unsupported"].empty());
  EXPECT_EQ(json["keys"]["block_count"], 2);
}

TEST_F(CliInfo, DescribesFamiliesItDoesNotKnowAndArraysPerLayer) {
  TinyModelOptions options;
  options.architecture = "gargantua";
  gguf::Writer writer = tiny_model(options);
  writer.set_value("gargantua.attention.head_count_kv", integers(gguf::value_i32, {2, 4}));
  writer.set_value("gargantua.feed_forward_length", integers(gguf::value_u32, std::vector<int64_t>(300, 96)));
  writer.set("gargantua.mood", "gr\nim");
  writer.set("gargantua.scale", 0.5f);
  const std::string path = write(writer);
  const std::string out = text(path);
  EXPECT_THAT(lines_of(out),
              Contains("supported: no: general.architecture 'gargantua' is not supported: expected one "
                       "of qwen3moe, qwen3"));
  for (const char* words : {"[2, 4]", "300 times 96", "'gr\\x0aim'", "0.5"})
    EXPECT_THAT(out, HasSubstr(words));
  const nlohmann::json json = json_answer(weir({"info", "-m", path, "--json"}));
  EXPECT_EQ(json["supported"], false);
  EXPECT_EQ(json["unsupported"].size(), 1u);
  EXPECT_EQ(json["keys"]["attention.head_count_kv"], (std::vector<int>{2, 4}));
  EXPECT_EQ(json["keys"]["feed_forward_length"], (nlohmann::json{{"array_of", "u32"}, {"elements", 300}}));
  EXPECT_EQ(json["keys"]["mood"], "gr\nim");
}

TEST_F(CliInfo, KeysOfTheWrongTypeAreNoReasonToFail) {
  gguf::Writer writer = tiny_model();
  writer.set_value("general.name", integers(gguf::value_u8, {1, 2}));
  writer.set("qwen3moe.block_count", "two");
  writer.set("tokenizer.ggml.model", uint32_t{5});
  writer.set("tokenizer.ggml.pre", 0.25f);
  const std::string path = write(writer);
  EXPECT_THAT(text(path), AllOf(HasSubstr("name          [1, 2]"), HasSubstr("5 / 0.25"),
                                HasSubstr("supported: no: key 'qwen3moe.block_count' is string"),
                                HasSubstr("supported: no: key 'tokenizer.ggml.model' is u32")));
  json_answer(weir({"info", "-m", path, "--json"}));
  writer.set("general.architecture", uint32_t{7});
  EXPECT_THAT(text(write(writer)), HasSubstr("architecture  7"));
  json_answer(weir({"info", "-m", path, "--json"}));
}

TEST_F(CliInfo, FileOfNothingIsDescribed) {
  const std::string path = write(gguf::Writer());
  EXPECT_THAT(text(path), AllOf(HasSubstr("architecture  none"), HasSubstr("tokenizer     none / none"),
                                HasSubstr("supported: no: key 'general.architecture' is missing")));
}

TEST_F(CliInfo, EveryReasonHasALine) {
  gguf::Writer writer = tiny_model();
  writer.set("qwen3moe.attention.causal", false);
  writer.set("tokenizer.ggml.pre", "klingon");
  writer.add_tensor("blk.0.exp_probs_b.bias", Type::F32, {8}, std::vector<uint8_t>(32));
  writer.add_tensor("output.bias", Type::F32, {8}, std::vector<uint8_t>(32));
  const std::string path = write(writer);
  EXPECT_THAT(
      lines_of(text(path)),
      AllOf(Contains(
                "supported: no: qwen3moe.attention.causal is false, which is not supported: expected true"),
            Contains("supported: no: tensor blk.0.exp_probs_b.bias is not used by qwen3moe"),
            Contains("supported: no: tensor output.bias is not used by qwen3moe"),
            Contains(HasSubstr("klingon")), Not(Contains("supported: yes"))));
  EXPECT_EQ(json_answer(weir({"info", "-m", path, "--json"}))["unsupported"].size(), 4u);
}

TEST_F(CliInfo, MoreTokensThanRowsIsAReason) {
  gguf::Writer writer = tiny_model();
  const auto model = gguf::Model::parse(writer.bytes(), "x");
  std::vector<std::string> tokens;
  for (const std::string_view token : model.array("tokenizer.ggml.tokens")->strings())
    tokens.emplace_back(token);
  tokens.push_back("one more");
  writer.set("tokenizer.ggml.tokens", tokens);
  writer.set("tokenizer.ggml.token_type", std::vector<int32_t>(tokens.size(), 1));
  const std::string path = write(writer);
  EXPECT_THAT(text(path), HasSubstr("supported: no: the tokenizer has"));
  expect_refused(weir({"plan", "-m", path, "--memory", "1GiB"}), {"the tokenizer has"});
}

TEST_F(CliInfo, UnknownKeysAreWarnedOfOnce) {
  gguf::Writer writer = tiny_model();
  writer.set("qwen3moe.frobnication", uint32_t{1});
  writer.set("tokenizer.ggml.frobnication", uint32_t{1});
  const std::string path = write(writer);
  for (const Arguments& command :
       {Arguments{"info", "-m", path}, Arguments{"plan", "-m", path, "--memory", "1GiB", "--json"},
        Arguments{"run", "-m", path, "-p", "the", "-n", "1", "--memory", "1GiB"}}) {
    const ProcessResult result = weir(command);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    for (const char* key : {"qwen3moe.frobnication", "tokenizer.ggml.frobnication"})
      EXPECT_THAT(lines_of(result.err),
                  Contains("weir: warning: " + std::string(key) + " is unknown and has no effect").Times(1))
          << command.front();
  }
  EXPECT_EQ(json_answer(weir({"info", "-m", path, "--json"}))["warnings"].size(), 2u);
}

TEST_F(CliInfo, TokenizerKeysThatChangeTheTokensAreRefused) {
  for (const char* key : {"add_space_prefix", "remove_extra_whitespaces", "normalizer.lowercase"}) {
    gguf::Writer writer = tiny_model();
    const std::string name = "tokenizer.ggml." + std::string(key);
    writer.set(name, false);
    EXPECT_THAT(text(write(writer)), HasSubstr("supported: yes"));
    writer.set(name, true);
    const std::string path = write(writer), reason = name + " is true, which is not supported";
    EXPECT_THAT(text(path), HasSubstr("supported: no: " + reason));
    expect_refused(weir({"tokenize", "-m", path, "-p", "the"}), {reason});
    expect_refused(weir({"plan", "-m", path, "--memory", "1GiB"}), {reason});
  }
  gguf::Writer writer = tiny_model();
  writer.set("tokenizer.ggml.suppress_tokens", std::vector<int32_t>{});
  EXPECT_THAT(text(write(writer)), HasSubstr("supported: yes"));
  writer.set("tokenizer.ggml.suppress_tokens", std::vector<int32_t>{0});
  EXPECT_THAT(text(write(writer)), HasSubstr("supported: no: tokenizer.ggml.suppress_tokens is [0]"));
}

}  // namespace
}  // namespace weir::test
