// Promise two on the pocket model: the same request gives the same tokens and logits whatever is changed
// around it.
#include <gtest/gtest.h>

#include <vector>

#include "device/cpu/kernels.h"
#include "engine/engine.h"
#include "lab/verify.h"
#include "support/paths.h"
#include "support/temp_dir.h"
#include "support/tiny_model.h"

namespace weir {
namespace {

using lab::VerifyCell;
using lab::VerifyPrompt;

EngineOptions base_options() {
  EngineOptions o;
  o.model = testing::pocket_model();
  o.context = 256;
  o.threads = 2;
  o.expert_slots = 12;
  return o;
}

std::vector<VerifyPrompt> prompts() {
  std::vector<VerifyPrompt> all;
  for (int p = 0; p < 4; ++p) {
    VerifyPrompt prompt{"p" + std::to_string(p), {}};
    for (int i = 0; i < 5 + 37 * p; ++i) prompt.tokens.push_back((i * 977 + p * 131 + 17) % 8000);
    all.push_back(prompt);
  }
  return all;
}

TEST(ExactSlow, TheWholeMatrixIsEqual) {
  const EngineOptions options = base_options();
  const Engine probe(options);
  const auto cells = lab::verify_matrix(options, probe);
  ASSERT_GE(cells.size(), 20u);
  const auto base = lab::run_cell(cells.front(), prompts(), 24);
  for (size_t i = 1; i < cells.size(); ++i) {
    const auto outcome = lab::run_cell(cells[i], prompts(), 24);
    for (const auto& line : lab::differences(base, outcome)) ADD_FAILURE() << line;
  }
}

TEST(Exact, LanesTogetherEqualEachAlone) {
  EngineOptions o = base_options();
  const auto alone = lab::run_cell({"alone", o, false}, prompts(), 12);
  o.lanes = 4;
  const auto together = lab::run_cell({"together", o, true}, prompts(), 12);
  EXPECT_TRUE(lab::differences(alone, together).empty());
  EXPECT_NE(alone.experts.misses, together.experts.misses) << "four lanes in a round must share fetches";
}

TEST(Exact, SlotsAtTheFloorEqualResident) {
  EngineOptions o = base_options();
  o.expert_slots = 4;
  const auto floor = lab::run_cell({"floor", o, false}, prompts(), 12);
  o.expert_slots = 32;
  const auto resident = lab::run_cell({"resident", o, false}, prompts(), 12);
  EXPECT_TRUE(lab::differences(resident, floor).empty());
  EXPECT_GT(floor.experts.misses, resident.experts.misses) << "the budget must change what is read";
}

// The pocket model's widths and context are one segment of a block product (2,048 elements) and one chunk of
// attention (256 positions). These models and prompts go beyond both.

/// Inputs of q, k, v, gate, up, the router and the head are wider than a segment.
test::TinyModelOptions wide_hidden() {
  test::TinyModelOptions o;
  o.hidden = 2304;
  o.experts = 4, o.context = 1024;
  o.gate_types = o.up_types = o.down_types = {Type::Q8_0};
  return o;
}
/// Inputs of the attention output and of down are.
test::TinyModelOptions wide_inner() {
  test::TinyModelOptions o;
  o.heads = 9, o.kv_heads = 3, o.head_dim = 256;
  o.expert_ff = 2304;
  o.experts = 4, o.context = 1024;
  o.gate_types = o.up_types = o.down_types = {Type::Q8_0};
  return o;
}

class ExactLong : public ::testing::Test {
 protected:
  EngineOptions options(const test::TinyModelOptions& model) {
    EngineOptions o;
    o.model = test::write_tiny_model(dir_.file(std::to_string(model.hidden) + ".gguf"), model);
    o.context = 768, o.threads = 2, o.expert_slots = 3;
    return o;
  }
  /// They end before a chunk's end, which decode then crosses, behind it, or in a third chunk.
  static std::vector<VerifyPrompt> prompts(std::initializer_list<int> lengths) {
    std::vector<VerifyPrompt> all;
    for (int n : lengths) {
      VerifyPrompt prompt{std::to_string(n), {}};
      for (int i = 0; i < n; ++i) prompt.tokens.push_back((i * i + i * 97 + n) % 250);
      all.push_back(prompt);
    }
    return all;
  }
  static void expect_equal(const std::vector<VerifyCell>& cells, const std::vector<VerifyPrompt>& prompts) {
    const auto base = lab::run_cell(cells.front(), prompts, 12);
    for (size_t i = 1; i < cells.size(); ++i)
      for (const auto& line : lab::differences(base, lab::run_cell(cells[i], prompts, 12)))
        ADD_FAILURE() << line;
  }
  /// Prefill chunks that end at the boundaries of attention's chunks, around them, and far from them.
  std::vector<VerifyCell> cells(const test::TinyModelOptions& model) {
    const EngineOptions base = options(model);
    std::vector<VerifyCell> all{{"base", base}};
    for (int chunk : {5, 255, 256, 257, 512}) {
      all.push_back({"chunks of " + std::to_string(chunk), base});
      all.back().options.prefill_chunk = chunk;
    }
    all.push_back({"scalar, one thread", base});
    all.back().options.isa = Isa::scalar, all.back().options.threads = 1;
    if (cpu::processor_has_avx2()) {
      all.push_back({"avx2, resident", base});
      all.back().options.isa = Isa::avx2, all.back().options.expert_slots = 4;
    }
    all.push_back({"lanes 4", base, true});
    all.back().options.lanes = 4;
    return all;
  }
  test::TempDir dir_;
};
class ExactLongSlow : public ExactLong {
 protected:
  void expect_whole_matrix(const test::TinyModelOptions& model) {
    const EngineOptions o = options(model);
    const Engine probe(o);
    expect_equal(lab::verify_matrix(o, probe), prompts({256, 530}));
  }
};

TEST_F(ExactLong, ManySegmentsAndChunksOfAttention) {
  expect_equal(cells(wide_hidden()), prompts({253, 257, 300}));
}
TEST_F(ExactLongSlow, ManySegmentsInsideALayer) { expect_equal(cells(wide_inner()), prompts({253, 270})); }
TEST_F(ExactLongSlow, TheWholeMatrixIsEqual) {
  expect_whole_matrix(wide_hidden());
  expect_whole_matrix(wide_inner());
}

TEST(Exact, DifferencesAreSeen) {
  auto a = lab::run_cell({"a", base_options(), false}, prompts(), 4);
  auto b = a;
  b.cell = "b";
  b.tokens[2][1] += 1;
  b.tokens_hash[2] ^= 1;
  ASSERT_EQ(lab::differences(a, b).size(), 1u);
  EXPECT_NE(lab::differences(a, b)[0].find("p2: new token 1"), std::string::npos)
      << lab::differences(a, b)[0];
  b = a;
  b.logits_hash[0] ^= 1;
  EXPECT_EQ(lab::differences(a, b).size(), 1u) << "logits alone count too";
}

TEST(Exact, SampledTextDoesNotDependOnSlotsOrLanes) {
  EngineOptions o = base_options();
  Request request;
  request.prompt = prompts()[1].tokens;
  request.max_tokens = 20;
  request.sampler.seed = 42;
  request.hash_logits = true;
  Engine small(o);
  small.load();
  const Result one = small.run(request);
  o.expert_slots = 32;
  o.lanes = 3;
  o.prefill_chunk = 9;
  Engine large(o);
  large.load();
  large.submit(request);
  Request other = request;
  other.prompt = prompts()[2].tokens;
  other.sampler.seed = 43;
  large.submit(other);
  while (large.step()) {
  }
  auto results = large.take_finished();
  ASSERT_EQ(results.size(), 2u);
  const Result& same = results[0].id == 0 ? results[0] : results[1];
  EXPECT_EQ(one.tokens, same.tokens);
  EXPECT_EQ(one.logits_hash, same.logits_hash);
}

}  // namespace
}  // namespace weir
