// Models split over files: joined in order, and refused where a part is missing, exchanged, doubled or
// foreign.
#include <gmock/gmock.h>

#include "gguf/byte_builder.h"
#include "gguf/keys.h"
#include "gguf/writer.h"

namespace weir::gguf {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class GgufSplit : public FolderTest {
 protected:
  /// Seven tensors named t0..t6 of 8 bytes, all of value i, over three parts.
  std::vector<std::string> write(const std::string& name = "model") {
    Writer writer;
    writer.set("general.architecture", "toy");
    for (uint8_t i = 0; i < 7; ++i)
      writer.add_tensor("t" + std::to_string(i), Type::I8, {8}, std::vector<uint8_t>(8, i));
    return writer.write_split(path(name), 3);
  }
  /// A later part by hand: the split keys and one tensor.
  std::vector<uint8_t> part(uint64_t no, uint64_t count, const std::string& tensor) {
    ByteBuilder out;
    out.header(1, 2).key("split.no", 2).u16(no).key("split.count", 2).u16(count);
    return out.tensor(tensor, {1}, 0, 0).pad(32).zeros(4).bytes;
  }
};

TEST_F(GgufSplit, PartsAreJoinedInOrder) {
  const auto paths = write();
  ASSERT_EQ(paths,
            (std::vector<std::string>{path("model-00001-of-00003.gguf"), path("model-00002-of-00003.gguf"),
                                      path("model-00003-of-00003.gguf")}));
  const Model model = Model::open(paths[0]);
  ASSERT_EQ(model.files().size(), 3u);
  ASSERT_EQ(model.tensors().size(), 7u);
  uint64_t total = 0;
  std::vector<int> spread(3);
  for (size_t i = 0; i < 7; ++i) {
    const Tensor& tensor = model.tensors()[i];
    EXPECT_EQ(tensor.name, "t" + std::to_string(i));
    EXPECT_EQ(&model.tensor(tensor.name), &tensor);
    ++spread.at(tensor.file);
    std::ifstream in(model.files()[tensor.file].path, std::ios::binary);
    in.seekg(static_cast<std::streamoff>(tensor.offset));
    EXPECT_EQ(in.get(), static_cast<int>(i));
  }
  EXPECT_THAT(spread, testing::ElementsAre(2, 2, 3));
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(model.files()[i].path, paths[i]);
    EXPECT_EQ(model.files()[i].size, std::filesystem::file_size(paths[i]));
    total += model.files()[i].size;
  }
  EXPECT_EQ(model.total_bytes(), total);
  EXPECT_EQ(model.require_string("general.architecture"), "toy");
  EXPECT_EQ(model.integer("split.no"), 0);
  EXPECT_EQ(model.metadata().at("split.count").type, value_u16);
  EXPECT_EQ(model.metadata().at("split.tensors.count").type, value_i32);
}

TEST_F(GgufSplit, ALaterPartNamesTheFileToOpen) {
  const auto paths = write();
  EXPECT_THAT(open_error(paths[1]),
              AllOf(HasSubstr("is part 2 of 3"), HasSubstr("open the first part: " + paths[0])));
  std::filesystem::rename(paths[1], path("other.gguf"));
  EXPECT_THAT(open_error(path("other.gguf")), AllOf(HasSubstr("is part 2 of 3"), HasSubstr("split.no is 0")));
}

TEST_F(GgufSplit, AMissingPartNamesItsPath) {
  const auto paths = write();
  std::filesystem::remove(paths[2]);
  EXPECT_THAT(open_error(paths[0]),
              AllOf(HasSubstr("part 3 of 3"), HasSubstr(paths[2]), HasSubstr("No such file")));
}

TEST_F(GgufSplit, ExchangedPartsAreSeenByTheirNumbers) {
  const auto paths = write();
  std::filesystem::rename(paths[1], path("aside"));
  std::filesystem::rename(paths[2], paths[1]);
  std::filesystem::rename(path("aside"), paths[2]);
  EXPECT_THAT(open_error(paths[0]),
              AllOf(HasSubstr(paths[1]), HasSubstr("'split.no' is 2"), HasSubstr("should be 1")));
}

TEST_F(GgufSplit, ADoubledPartIsSeenByItsNumber) {
  const auto paths = write();
  std::filesystem::copy_file(paths[1], paths[2], std::filesystem::copy_options::overwrite_existing);
  EXPECT_THAT(open_error(paths[0]),
              AllOf(HasSubstr(paths[2]), HasSubstr("'split.no' is 1"), HasSubstr("should be 2")));
}

TEST_F(GgufSplit, ATensorInTwoPartsIsNamedWithBothFiles) {
  const auto paths = write();
  store("model-00003-of-00003.gguf", part(2, 3, "t3"));
  EXPECT_THAT(open_error(paths[0]), AllOf(HasSubstr("'t3'"), HasSubstr(paths[1]), HasSubstr(paths[2])));
}

TEST_F(GgufSplit, APartOfAnotherSplitIsRefused) {
  const auto paths = write();
  store("model-00003-of-00003.gguf", part(2, 4, "other"));
  EXPECT_THAT(open_error(paths[0]),
              AllOf(HasSubstr(paths[2]), HasSubstr("'split.count' is 4"), HasSubstr("says 3")));
}

TEST_F(GgufSplit, APartWithoutSplitKeysIsRefused) {
  const auto paths = write();
  store("model-00002-of-00003.gguf", ByteBuilder().header(0, 0).bytes);
  EXPECT_THAT(open_error(paths[0]), AllOf(HasSubstr(paths[1]), HasSubstr("'split.no' is missing")));
}

TEST_F(GgufSplit, TheTotalCountOfTensorsIsChecked) {
  const auto paths = write();
  store("model-00003-of-00003.gguf", part(2, 3, "only one"));
  EXPECT_THAT(open_error(paths[0]),
              AllOf(HasSubstr("split.tensors.count"), HasSubstr("is 7"), HasSubstr("have 5")));
}

TEST_F(GgufSplit, ATruncatedPartIsNamed) {
  const auto paths = write();
  std::filesystem::resize_file(paths[1], std::filesystem::file_size(paths[1]) - 32);
  EXPECT_THAT(open_error(paths[0]), AllOf(HasSubstr(paths[1]), HasSubstr("'t3'"), HasSubstr("truncated")));
}

TEST_F(GgufSplit, ARenamedFirstPartIsToldItsName) {
  const auto paths = write();
  std::filesystem::rename(paths[0], path("renamed.gguf"));
  EXPECT_THAT(open_error(path("renamed.gguf")), HasSubstr("must end in -00001-of-00003.gguf"));
}

TEST_F(GgufSplit, SplitNumbersOutOfRange) {
  const auto file = [](uint64_t no, uint64_t count) {
    return ByteBuilder().header(0, 2).key("split.no", 5).u32(no).key("split.count", 5).u32(count);
  };
  EXPECT_THAT(parse_error(file(3, 3)), HasSubstr("'split.no' is 3, expected 0 to 2"));
  const ByteBuilder negative =
      ByteBuilder().header(0, 2).key("split.no", 5).u32(~uint64_t{0}).key("split.count", 5).u32(3);
  EXPECT_THAT(parse_error(negative), HasSubstr("'split.no' is -1, expected 0 to 2"));
  EXPECT_THAT(parse_error(file(0, 70000)), HasSubstr("'split.count' is 70000"));
  EXPECT_THAT(parse_error(file(0, ~uint64_t{0})), HasSubstr("'split.count' is -1"));
  EXPECT_EQ(parse_error(file(0, 1)), "");
  EXPECT_EQ(parse_error(file(0, 0)), "");
  EXPECT_THAT(parse_error(file(0, 2)), HasSubstr("only be opened from files"));
}

TEST_F(GgufSplit, OnePartAndMorePartsThanTensors) {
  Writer writer;
  writer.add_tensor("t", Type::I8, {1}, {5});
  EXPECT_EQ(Model::open(writer.write_split(path("one"), 1).at(0)).tensors().size(), 1u);
  EXPECT_EQ(Model::open(writer.write_split(path("many"), 4).at(0)).tensors().size(), 1u);
  EXPECT_THROW(writer.write_split(path("none"), 0), Error);
}

TEST_F(GgufSplit, EveryPartKeepsItsOwnAlignment) {
  Writer writer;
  writer.set("general.alignment", uint32_t{256});
  for (const char* name : {"a", "b", "c", "d"}) writer.add_tensor(name, Type::I8, {1}, {5});
  const Model model = Model::open(writer.write_split(path("aligned"), 2).at(0));
  for (const Tensor& tensor : model.tensors()) EXPECT_EQ(tensor.offset % 256, 0u) << tensor.name;
}

}  // namespace
}  // namespace weir::gguf
