// Promise two on the pocket model: the same request gives the same tokens and logits whatever is changed
// around it.
#include <gtest/gtest.h>

#include <vector>

#include "engine/engine.h"
#include "lab/verify.h"
#include "support/paths.h"

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
