// The tiny models are what they say: readable, repeatable, and of sane size in every format.
#include "support/tiny_model.h"

#include <gtest/gtest.h>

#include <cmath>
#include <stdexcept>

#include "gguf/reader.h"
#include "support/temp_dir.h"

namespace weir::test {
namespace {

TEST(TinyModel, SparseModelHasTheTensorsAndTypesOfItsOptions) {
  TempDir dir;
  const gguf::Model model = gguf::Model::open(write_tiny_model(dir.file("m.gguf")));
  EXPECT_EQ(model.require_string("general.architecture"), "qwen3moe");
  EXPECT_EQ(model.require_integer("qwen3moe.expert_used_count"), 2);
  EXPECT_EQ(model.array("tokenizer.ggml.tokens")->size(), static_cast<size_t>(tiny_vocabulary_size()));
  EXPECT_EQ(model.tensors().size(), 3u + 2u * 12u);
  const gguf::Tensor& down = model.tensor("blk.1.ffn_down_exps.weight");
  EXPECT_EQ(down.type, Type::Q8_0);
  EXPECT_EQ(down.dims, (std::array<int64_t, 4>{32, 64, 8, 1}));
  EXPECT_EQ(model.tensor("blk.0.ffn_down_exps.weight").type, Type::Q5_0);
  EXPECT_EQ(model.tensor("blk.0.ffn_gate_inp.weight").type, Type::F32);
}

TEST(TinyModel, DenseModelHasNoExperts) {
  TempDir dir;
  const gguf::Model model = gguf::Model::open(write_tiny_model(dir.file("m.gguf"), tiny_dense_options()));
  EXPECT_EQ(model.require_string("general.architecture"), "qwen3");
  EXPECT_EQ(model.tensors().size(), 3u + 2u * 11u);
  EXPECT_EQ(model.find("blk.0.ffn_gate_inp.weight"), nullptr);
  EXPECT_FALSE(model.has("qwen3.expert_count"));
}

TEST(TinyModel, FusedAndTiedFormsAreWritten) {
  TinyModelOptions options = tiny_kquant_options();
  options.fused_gate_up = options.tied_head = true;
  TempDir dir;
  const gguf::Model model = gguf::Model::open(write_tiny_model(dir.file("m.gguf"), options));
  EXPECT_EQ(model.find("output.weight"), nullptr);
  EXPECT_EQ(model.find("blk.0.ffn_up_exps.weight"), nullptr);
  EXPECT_EQ(model.tensor("blk.0.ffn_gate_up_exps.weight").dims[1], 512);
}

TEST(TinyModel, SameOptionsGiveTheSameBytesAndAnotherSeedOthers) {
  TinyModelOptions other;
  other.seed = 2;
  EXPECT_EQ(tiny_model().bytes(), tiny_model().bytes());
  EXPECT_NE(tiny_model().bytes(), tiny_model(other).bytes());
}

class TinyModelValues : public testing::TestWithParam<Type> {};

TEST_P(TinyModelValues, HaveMeanZeroAndTheDeviationAskedFor) {
  const TypeInfo& info = type_info(GetParam());
  if (!info.decode) GTEST_SKIP() << info.name << " has no codec";
  constexpr int64_t n = 1 << 18;
  constexpr float std = 0.125f;
  const std::vector<uint8_t> blocks = random_blocks(GetParam(), n, std, 3, 5);
  std::vector<float> values(n);
  info.decode(blocks.data(), values.data(), n);
  double sum = 0, squares = 0;
  for (float v : values) sum += v, squares += double{v} * v;
  EXPECT_NEAR(sum / n, 0, 0.06 * std);
  EXPECT_NEAR(std::sqrt(squares / n), std, 0.03 * std);
}

INSTANTIATE_TEST_SUITE_P(, TinyModelValues,
                         testing::Values(Type::F32, Type::F16, Type::BF16, Type::Q8_0, Type::Q5_0, Type::Q4_K,
                                         Type::Q6_K),
                         [](const auto& test) { return type_name(static_cast<uint32_t>(test.param)); });

TEST(TinyModel, PartBlocksAreRefused) {
  EXPECT_THROW(random_blocks(Type::Q4_K, 128, 1.0f, 1, 1), std::invalid_argument);
}

}  // namespace
}  // namespace weir::test
