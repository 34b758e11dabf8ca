// Where expert bytes lie, and which files do not fit together.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "experts/expert_fixture.h"

namespace weir {
namespace {

using testing::HasSubstr;
using Kind = ExpertPartKind;

TEST(ExpertStore, SlicesAreTheFilesBytes) {
  const test::ExpertFile file;
  EXPECT_EQ(file.store.layers(), 3);
  EXPECT_EQ(file.store.layer(1).experts, 0);
  EXPECT_EQ(file.store.layer(0).experts, 12);
  EXPECT_EQ(file.store.layer(0).hidden, 64);
  EXPECT_EQ(file.store.layer(0).ff, 32);
  EXPECT_EQ(file.store.layer(2).ff, 32);
  const uint64_t q8 = 64 * 32 / 32 * 34, q5 = 64 * 32 / 32 * 22, f16 = 64 * 64 * 2;
  EXPECT_EQ(file.store.layer(0).expert_bytes(), q8 + q8 + q5);
  EXPECT_EQ(file.store.layer(2).expert_bytes(), f16 + q8);
  EXPECT_EQ(file.store.total_bytes(), 12 * (q8 + q8 + q5 + f16 + q8));
  EXPECT_EQ(file.store.fingerprint(), file.model.fingerprint());
  EXPECT_EQ(file.store.files().front().path, file.path);
  const auto last = test::random_blocks(Type::Q5_0, 32 * 64 * 12, 0.3f, 5, 2);
  const auto slice = file.slice(0, 2, 11);
  EXPECT_TRUE(std::equal(slice.begin(), slice.end(), last.end() - static_cast<ptrdiff_t>(q5)));
}

TEST(ExpertStore, PartsAreOrderedByKindHoweverTheyAreNamed) {
  const test::ExpertFile file;
  EXPECT_EQ(file.store.layer(2).parts[0].kind, Kind::gate_up);
  EXPECT_EQ(file.store.layer(2).parts[1].kind, Kind::down);
}

std::string refusal(const gguf::Model& model, const std::vector<ExpertStore::Named>& layer) {
  try {
    ExpertStore(model, {layer});
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), Error::Kind::input);
    return e.what();
  }
  return "";
}

TEST(ExpertStore, TensorsThatDoNotFitTogetherAreRefusedByName) {
  test::TempDir dir;
  const std::string path = dir.file("odd.gguf");
  gguf::Writer writer;
  writer.set("general.architecture", std::string("test"));
  const auto add = [&](const char* name, Type type, const std::vector<int64_t>& dims) {
    int64_t elements = 1;
    for (const int64_t d : dims) elements *= d;
    writer.add_tensor(name, type, dims, test::random_blocks(type, elements, 1, 1, 1));
  };
  add("gate", Type::Q8_0, {64, 32, 4});
  add("up", Type::Q8_0, {64, 32, 4});
  add("down", Type::Q8_0, {32, 64, 4});
  add("up_of_5", Type::Q8_0, {64, 32, 5});
  add("up_wide", Type::Q8_0, {64, 64, 4});
  add("flat", Type::Q8_0, {64, 32});
  add("odd_type", Type::Q4_0, {64, 32, 4});
  writer.write(path);
  const gguf::Model m = gguf::Model::open(path);
  EXPECT_EQ(
      refusal(m, {{Kind::gate, m.find("gate")}, {Kind::up, m.find("up")}, {Kind::down, m.find("down")}}), "");
  EXPECT_THAT(
      refusal(m, {{Kind::gate, m.find("gate")}, {Kind::up, m.find("up_of_5")}, {Kind::down, m.find("down")}}),
      HasSubstr(path + ": tensor up_of_5: shape {64, 32, 5}; the layer's other experts need {64, 32, 4}"));
  EXPECT_THAT(
      refusal(m, {{Kind::gate, m.find("gate")}, {Kind::up, m.find("up_wide")}, {Kind::down, m.find("down")}}),
      HasSubstr("tensor up_wide: shape {64, 64, 4}"));
  EXPECT_THAT(refusal(m, {{Kind::gate_up, m.find("gate")}, {Kind::down, m.find("down")}}),
              HasSubstr("need {64, 64, 4}"));
  EXPECT_EQ(refusal(m, {{Kind::gate_up, m.find("up_wide")}, {Kind::down, m.find("down")}}), "");
  EXPECT_THAT(
      refusal(m, {{Kind::gate, m.find("flat")}, {Kind::up, m.find("up")}, {Kind::down, m.find("down")}}),
      HasSubstr("tensor flat: 2 dimensions"));
  EXPECT_THAT(
      refusal(m, {{Kind::gate, m.find("odd_type")}, {Kind::up, m.find("up")}, {Kind::down, m.find("down")}}),
      HasSubstr("tensor odd_type: cannot compute with type Q4_0; weir computes F32"));
  EXPECT_THAT(refusal(m, {{Kind::gate, m.find("gate")}, {Kind::down, m.find("down")}}),
              HasSubstr("layer 0 has the expert tensors (gate, down)"));
  EXPECT_THAT(
      refusal(m, {{Kind::gate, m.find("gate")}, {Kind::gate, m.find("up")}, {Kind::down, m.find("down")}}),
      HasSubstr("(gate, gate, down)"));
}

}  // namespace
}  // namespace weir
