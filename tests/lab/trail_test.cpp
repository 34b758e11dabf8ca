// A difference is traced to the position, layer and operation in which it arose.
#include "lab/trail.h"

#include <gtest/gtest.h>

#include "lab/verify.h"
#include "support/temp_dir.h"
#include "support/tiny_model.h"

namespace weir::lab {
namespace {

class LabTrail : public ::testing::Test {
 protected:
  VerifyCell cell(const std::string& name) {
    VerifyCell c;
    c.name = name;
    c.options.model = model_;
    c.options.context = 64;
    c.options.threads = 1;
    return c;
  }
  test::TempDir dir_;
  std::string model_ = test::write_tiny_model(dir_.file("tiny.gguf"));
  std::vector<VerifyPrompt> prompts_{{"a", {10, 20, 30, 40, 50, 60, 70, 80}}, {"b", {5, 6, 7}}};
};

TEST_F(LabTrail, APlantedBitIsFoundWhereItWasPlanted) {
  const VerifyCell base = cell("base");
  for (const Operation operation : {Operation::attention, Operation::feed_forward})
    for (const int layer : {0, 1})
      for (const int position : {2, 9}) {  // of the prompt, and of a new token
        PlantedFault fault(position, layer, operation);
        VerifyCell faulty = cell("faulty");
        faulty.options.probe = &fault;
        faulty.options.prefill_chunk = 3;
        EXPECT_FALSE(differences(run_cell(base, prompts_, 6), run_cell(faulty, prompts_, 6)).empty());
        const Parting parting = locate_difference(base, faulty, prompts_, 6);
        EXPECT_EQ(parting.prompt, "a");
        EXPECT_EQ(parting.first.position, position) << parting.describe();
        EXPECT_EQ(parting.first.layer, layer) << parting.describe();
        EXPECT_EQ(parting.first.operation, operation == Operation::attention ? "attention" : "feed_forward");
      }
}

TEST_F(LabTrail, TheEmbeddingAndTheSecondPromptAreNamedToo) {
  const VerifyCell base = cell("base");
  PlantedFault embed(1, 0, Operation::embed);
  VerifyCell faulty = cell("faulty");
  faulty.options.probe = &embed;
  EXPECT_EQ(locate_difference(base, faulty, prompts_, 2).describe(), "first: prompt a, position 1, embed");
  std::vector<VerifyPrompt> swapped{{"b", {5, 6, 7}}, prompts_[0]};
  PlantedFault late(6, 1, Operation::attention);  // prompt b ends before
  faulty.options.probe = &late;
  EXPECT_EQ(locate_difference(base, faulty, swapped, 2).describe(),
            "first: prompt a, position 6, layer 1, attention");
}

TEST_F(LabTrail, ChunksAndLanesLeaveTheTrailAsItIs) {
  const VerifyCell base = cell("base");
  VerifyCell other = cell("lanes");
  other.options.lanes = 2;
  other.options.prefill_chunk = 4;
  other.together = true;
  TrailRecorder left(nullptr), right(nullptr);
  const auto outcome = run_cell(base, prompts_, 6, &left);
  EXPECT_EQ(outcome.logits_hash, run_cell(base, prompts_, 6).logits_hash) << "looking changes nothing";
  run_cell(other, prompts_, 6, &right);
  for (const int request : {0, 1}) {
    EXPECT_EQ(left.trail(request).size(), prompts_[static_cast<size_t>(request)].tokens.size() + 5);
    EXPECT_EQ(left.trail(request), right.trail(request));
  }
  EXPECT_EQ(left.trail(0).at(0).size(), 5u) << "embed and two operations of two layers";
  EXPECT_EQ(left.trail(0).at(7).size(), 6u) << "and the logits where a token is drawn";
  EXPECT_TRUE(locate_difference(base, other, prompts_, 6).first.operation.empty());
}

TEST(LabTrailPlaces, TheFirstDifferenceIsByPositionThenByOperation) {
  const Trail base{{0, {1, 2, 3, 4, 5}}, {1, {1, 2, 3, 4, 5, 6}}, {2, {1, 2, 3, 4, 5, 6}}};
  const auto place = [&](int position, size_t index) {
    Trail other = base;
    other[2][0] = 99;  // later: must not win
    other[position][index] = 77;
    return first_difference(base, other, 2);
  };
  EXPECT_EQ(place(0, 0).operation, "embed");
  EXPECT_EQ(place(0, 4).operation, "feed_forward");
  EXPECT_EQ(place(0, 4).layer, 1);
  EXPECT_EQ(place(1, 1).operation, "attention");
  EXPECT_EQ(place(1, 1).layer, 0);
  EXPECT_EQ(place(1, 5).operation, "head");
  EXPECT_EQ(place(1, 5).position, 1);
  EXPECT_TRUE(first_difference(base, base, 2).operation.empty());
}

TEST_F(LabTrail, TheQuickMatrixKeepsOneCellOfEachKind) {
  const Engine probe(cell("base").options);
  const auto cells = verify_matrix(cell("base").options, probe);
  size_t quick = 0;
  for (const auto& c : cells) quick += c.quick;
  EXPECT_TRUE(cells.front().quick) << "the base is what the others are compared with";
  EXPECT_GE(quick, 10u);
  EXPECT_LT(quick, cells.size());
}

}  // namespace
}  // namespace weir::lab
