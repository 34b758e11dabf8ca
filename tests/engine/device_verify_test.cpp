// weir verify's matrix on a device: its cells, what each compares, and that a wrong choice is found and
// placed.
#include <stdexcept>

#include "engine/device_cases.h"
#include "lab/verify.h"

namespace weir {
namespace {

/// The matrix of `deferred`, with a context of so many positions.
std::vector<lab::VerifyCell> matrix(const Deferred& deferred, int context) {
  EngineOptions o = options();
  o.context = context;
  deferred.put_into(o);
  return lab::verify_matrix(o, Engine(o));
}

const std::vector<lab::VerifyPrompt>& two_prompts() {
  static const std::vector<lab::VerifyPrompt> prompts = {{"a", request(1, 9).prompt},
                                                         {"b", request(1, 30).prompt}};
  return prompts;
}

TEST(EngineOnADeviceSlow, TheWholeMatrixIsEqualToItsReferences) {
  const Deferred deferred;
  const auto cells = matrix(deferred, 128);
  std::vector<std::string> names;
  for (const auto& cell : cells) names.push_back(cell.name);
  EXPECT_THAT(names, ::testing::IsSupersetOf({"graphs off", "lanes 4", "ledger 1", "prefill chunk 7", "cpu",
                                              "portable", "portable, lanes 4", "choice on the GPU",
                                              "choice on the GPU, lanes 4"}));
  EXPECT_THAT(names, ::testing::Not(::testing::Contains(::testing::HasSubstr("slots")))) << "nothing streams";
  const auto& prompts = two_prompts();
  std::vector<lab::VerifyOutcome> outcomes;
  for (size_t i = 0; i < cells.size(); ++i) {
    outcomes.push_back(lab::run_cell(cells[i], prompts, 5));
    const size_t reference = lab::reference_of(cells, i);
    EXPECT_EQ(cells[reference].name, cells[i].reference.empty() ? "base" : "cpu");
    for (const auto& line : lab::differences(outcomes[reference], outcomes[i])) ADD_FAILURE() << line;
  }
  EXPECT_TRUE(lab::differences(outcomes.front(), outcomes.back()).empty()) << "here both compute on the CPU";
}

/// Throws where there is none.
const lab::VerifyCell& cell_named(const std::vector<lab::VerifyCell>& cells, const std::string& name) {
  const auto found = std::find_if(cells.begin(), cells.end(), [&](const auto& c) { return c.name == name; });
  if (found == cells.end()) throw std::runtime_error("no cell " + name);
  return *found;
}

TEST(EngineOnADevice, VerifyComparesTheDevicesOwnChoiceByTokensAlone) {
  const Deferred deferred;
  const auto cells = matrix(deferred, 64);
  const auto& prompts = two_prompts();
  constexpr int n = 5;
  const lab::VerifyOutcome base = lab::run_cell(cells[0], prompts, n);
  EXPECT_FALSE(base.tokens_only);
  for (const std::string name : {"choice on the GPU", "choice on the GPU, lanes 4"}) {
    const lab::VerifyCell& cell = cell_named(cells, name);
    EXPECT_EQ(cell.quick, name == "choice on the GPU");
    EXPECT_EQ(cell.together, !cell.quick);
    EXPECT_EQ(cell.reference, "");
    deferred.counters->downloaded_bytes = 0;
    const lab::VerifyOutcome outcome = lab::run_cell(cell, prompts, n);
    EXPECT_GT(deferred.counters->downloaded_bytes, 0u);
    EXPECT_LE(deferred.counters->downloaded_bytes, prompts.size() * n * sizeof(Choice)) << "logits came";
    EXPECT_TRUE(outcome.tokens_only);
    EXPECT_TRUE(outcome.logits_hash.empty());
    EXPECT_EQ(outcome.tokens, base.tokens);
    EXPECT_TRUE(lab::differences(base, outcome).empty()) << name;
    EXPECT_TRUE(lab::locate_difference(cells[0], cell, prompts, n).first.operation.empty());
  }
}

TEST(EngineOnADevice, VerifysCpuCellTakesNothingThatOnlyAGpuHas) {
  EngineOptions o = options();
  const Deferred deferred;
  deferred.put_into(o);
  o.graphs = false;
  o.vram = deferred.options.memory.free;
  EXPECT_EQ(refusal(cell_named(lab::verify_matrix(o, Engine(o)), "cpu").options), "opened");
}

TEST(EngineOnADevice, VerifyFindsADeviceThatChoosesWrongly) {
  Deferred deferred;
  deferred.options.wrong_choice = true;
  const auto cells = matrix(deferred, 64);
  const std::vector<lab::VerifyPrompt> prompts = {{"a", request(1, 9).prompt}};
  const lab::VerifyCell& choice = cell_named(cells, "choice on the GPU");
  const lab::VerifyOutcome base = lab::run_cell(cells[0], prompts, 4);
  for (const char* name : {"graphs off", "ledger 1"})  // the host chooses from their logits
    EXPECT_TRUE(lab::differences(base, lab::run_cell(cell_named(cells, name), prompts, 4)).empty()) << name;
  const auto lines = lab::differences(base, lab::run_cell(choice, prompts, 4));
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_THAT(lines[0], HasSubstr("choice on the GPU, prompt a: new token 0: "));
  const lab::Parting parting = lab::locate_difference(cells[0], choice, prompts, 4);
  EXPECT_EQ(parting.first.operation, "head or sample") << "not the embedding that follows from it";
  EXPECT_EQ(parting.first.position, 9);
}

}  // namespace
}  // namespace weir
