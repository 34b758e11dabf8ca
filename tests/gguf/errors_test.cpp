// Each way a file can be wrong, built by hand, and what the message must say about it.
#include <gmock/gmock.h>

#include "gguf/byte_builder.h"

namespace weir::gguf {
namespace {

using testing::AllOf;
using testing::HasSubstr;

/// One tensor whose table entry is given, with `data` bytes after it.
ByteBuilder one_tensor(const std::vector<uint64_t>& dims, uint32_t type, uint64_t offset, size_t data) {
  return ByteBuilder().header(1, 0).tensor("blk.0.w", dims, type, offset).pad(32).zeros(data);
}

TEST(GgufError, OneGoodTensorLoads) { EXPECT_EQ(parse_error(one_tensor({32, 2}, 8, 0, 68)), ""); }

TEST(GgufError, NotAGguf) {
  EXPECT_THAT(parse_error(ByteBuilder().raw("PK\3\4 and more")),
              AllOf(HasSubstr("hand.gguf"), HasSubstr("not a GGUF file"), HasSubstr("'PK\\x03\\x04'")));
  EXPECT_THAT(parse_error(ByteBuilder()), AllOf(HasSubstr("not a GGUF file"), HasSubstr("0 bytes")));
  EXPECT_THAT(parse_error(ByteBuilder().raw("GGU")),
              AllOf(HasSubstr("not a GGUF file"), HasSubstr("3 bytes")));
  EXPECT_THAT(parse_error(ByteBuilder().raw("version https://git-lfs.github.com/spec/v1\n")),
              HasSubstr("Git LFS"));
}

TEST(GgufError, VersionsOtherThanTwoAndThree) {
  EXPECT_EQ(parse_error(ByteBuilder().header(0, 0, 3)), "");
  EXPECT_EQ(parse_error(ByteBuilder().header(0, 0, 2)), "");
  for (const int version : {0, 1, 4})
    EXPECT_THAT(parse_error(ByteBuilder().header(0, 0, version)),
                AllOf(HasSubstr("version " + std::to_string(version) + " "), HasSubstr("2 or 3")));
}

TEST(GgufError, BigEndianIsDiagnosedAsSuch) {
  EXPECT_THAT(parse_error(ByteBuilder().header(0, 0, 0x03000000)), HasSubstr("big-endian"));
}

TEST(GgufError, CountsThatCannotFit) {
  EXPECT_THAT(parse_error(ByteBuilder().header(uint64_t{1} << 60, 0)),
              AllOf(HasSubstr("tensor count"), HasSubstr("1152921504606846976"), HasSubstr("cannot fit")));
  EXPECT_THAT(parse_error(ByteBuilder().header(0, ~uint64_t{0})),
              AllOf(HasSubstr("metadata count"), HasSubstr("18446744073709551615"), HasSubstr("cannot fit")));
}

TEST(GgufError, StringLengthsAreCheckedBeforeAllocation) {
  const uint64_t huge = uint64_t{1} << 60;
  EXPECT_THAT(parse_error(ByteBuilder().header(0, 1).u64(huge).zeros(64)),
              AllOf(HasSubstr("metadata entry 1 of 1"), HasSubstr("key"),
                    HasSubstr("1152921504606846976 bytes"), HasSubstr("offset 24")));
  EXPECT_THAT(parse_error(ByteBuilder().header(0, 1).key("general.name", 8).u64(huge)),
              AllOf(HasSubstr("'general.name'"), HasSubstr("1152921504606846976"), HasSubstr("offset 48")));
  EXPECT_THAT(parse_error(ByteBuilder().header(0, 1).key("general.name", 8).u64(~uint64_t{0})),
              HasSubstr("18446744073709551615"));
  EXPECT_THAT(parse_error(ByteBuilder().header(1, 0).u64(huge).zeros(64)),
              AllOf(HasSubstr("tensor 1 of 1"), HasSubstr("tensor name")));
}

TEST(GgufError, Keys) {
  EXPECT_THAT(parse_error(ByteBuilder().header(0, 1).key("", 4).u32(1).zeros(16)),
              HasSubstr("the key is empty"));
  EXPECT_EQ(parse_error(ByteBuilder().header(0, 1).key(std::string(65535, 'k'), 4).u32(1)), "");
  EXPECT_THAT(parse_error(ByteBuilder().header(0, 1).key(std::string(65536, 'k'), 4).u32(1)),
              AllOf(HasSubstr("65536"), HasSubstr("at most 65535")));
  EXPECT_THAT(parse_error(ByteBuilder().header(0, 2).key("twin", 4).u32(1).key("twin", 4).u32(1)),
              AllOf(HasSubstr("'twin'"), HasSubstr("twice")));
  EXPECT_THAT(parse_error(ByteBuilder().header(0, 1).key("a\n\x1b[31m", 13).zeros(16)),
              HasSubstr("'a\\x0a\\x1b[31m'"));
}

TEST(GgufError, ValueTypes) {
  EXPECT_THAT(parse_error(ByteBuilder().header(0, 1).key("k", 13).u64(0)),
              AllOf(HasSubstr("'k'"), HasSubstr("unknown value type 13")));
  EXPECT_THAT(parse_error(ByteBuilder().header(0, 1).key("k", 7).u8(2)),
              AllOf(HasSubstr("'k'"), HasSubstr("bool is 2")));
}

TEST(GgufError, Arrays) {
  const auto array = [](uint32_t element, uint64_t count) {
    return ByteBuilder().header(0, 1).key("list", 9).u32(element).u64(count);
  };
  EXPECT_THAT(parse_error(array(9, 1).u32(4).u64(0)), AllOf(HasSubstr("'list'"), HasSubstr("nested arrays")));
  EXPECT_THAT(parse_error(array(13, 0)), AllOf(HasSubstr("'list'"), HasSubstr("element type 13")));
  EXPECT_THAT(
      parse_error(array(4, uint64_t{1} << 62).zeros(64)),
      AllOf(HasSubstr("'list'"), HasSubstr("4611686018427387904 u32"), HasSubstr("64 bytes that follow")));
  EXPECT_THAT(parse_error(array(8, 9).zeros(71)),
              AllOf(HasSubstr("9 string"), HasSubstr("71 bytes that follow")));
  EXPECT_THAT(parse_error(array(8, 2).string("one").u64(9).raw("x")),
              AllOf(HasSubstr("'list'"), HasSubstr("string in the array"), HasSubstr("needs 9 bytes")));
  EXPECT_THAT(parse_error(array(7, 2).u8(1).u8(3)), HasSubstr("bool is 3"));
  const uint64_t too_many = (uint64_t{1} << 24) + 1;
  EXPECT_THAT(parse_error(array(0, too_many).zeros(too_many)),
              HasSubstr("16777217 elements, at most 16777216"));
}

TEST(GgufError, CountsOfEntriesAndTensorsAreBounded) {
  EXPECT_THAT(parse_error(ByteBuilder().header(0, 65537).zeros(65537 * 14)),
              HasSubstr("metadata count is 65537, at most 65536"));
  EXPECT_THAT(parse_error(ByteBuilder().header(262145, 0).zeros(262145 * 33)),
              HasSubstr("tensor count is 262145, at most 262144"));
}

TEST(GgufError, TruncatedAnywhereInTheHeader) {
  ByteBuilder whole;
  whole.header(1, 3).key("name", 8).string("value").key("list", 9).u32(8).u64(2).string("one").string("two");
  whole.key("flag", 7).u8(1).tensor("weight", {32, 2}, 8, 0);
  const size_t header_bytes = whole.bytes.size();
  whole.pad(32).zeros(68);
  ASSERT_EQ(parse_error(whole), "");
  for (size_t size = 0; size < whole.bytes.size(); ++size) {
    const std::vector<uint8_t> part(whole.bytes.begin(), whole.bytes.begin() + static_cast<ptrdiff_t>(size));
    const std::string message = parse_error(part);
    EXPECT_THAT(message, AllOf(HasSubstr("hand.gguf"), HasSubstr(size < 4 ? "not a GGUF" : "truncated")))
        << size;
    if (size >= header_bytes) {
      EXPECT_THAT(message, AllOf(HasSubstr("'weight'"), HasSubstr("has " + std::to_string(size) + " bytes"),
                                 HasSubstr("need " + std::to_string(whole.bytes.size()))))
          << size;
    }
  }
}

TEST(GgufError, AlignmentMustBeAU32PowerOfTwo) {
  const auto aligned = [](uint64_t alignment) {
    return ByteBuilder().header(0, 1).key("general.alignment", 4).u32(alignment);
  };
  EXPECT_EQ(parse_error(aligned(64)), "");
  for (const uint64_t bad : {0, 3, 48})
    EXPECT_THAT(parse_error(aligned(bad)), AllOf(HasSubstr("general.alignment"),
                                                 HasSubstr(std::to_string(bad) + " is not a power of two")));
  EXPECT_THAT(parse_error(ByteBuilder().header(0, 1).key("general.alignment", 10).u64(32)),
              AllOf(HasSubstr("general.alignment"), HasSubstr("u64, expected u32")));
}

TEST(GgufError, TensorNames) {
  const auto named = [](const std::string& name) {
    return ByteBuilder().header(1, 0).tensor(name, {1}, 0, 0).pad(32).zeros(4);
  };
  EXPECT_EQ(parse_error(named(std::string(63, 'n'))), "");
  EXPECT_THAT(parse_error(named(std::string(64, 'n'))),
              AllOf(HasSubstr("tensor name"), HasSubstr("64 bytes"), HasSubstr("at most 63")));
  EXPECT_THAT(parse_error(named("")), HasSubstr("tensor name is empty"));
  EXPECT_THAT(
      parse_error(
          ByteBuilder().header(2, 0).tensor("twin", {1}, 0, 0).tensor("twin", {1}, 0, 32).pad(32).zeros(64)),
      AllOf(HasSubstr("'twin'"), HasSubstr("twice")));
}

TEST(GgufError, Dimensions) {
  EXPECT_THAT(parse_error(one_tensor({}, 0, 0, 64)),
              AllOf(HasSubstr("'blk.0.w'"), HasSubstr("0 dimensions")));
  EXPECT_EQ(parse_error(one_tensor({1, 1, 1, 1}, 0, 0, 4)), "");
  EXPECT_THAT(parse_error(one_tensor({1, 1, 1, 1, 1}, 0, 0, 64)), HasSubstr("5 dimensions, expected 1 to 4"));
  EXPECT_THAT(parse_error(one_tensor({4, 0}, 0, 0, 64)),
              AllOf(HasSubstr("'blk.0.w'"), HasSubstr("dimension 1 is 0")));
  EXPECT_THAT(parse_error(one_tensor({~uint64_t{0}}, 0, 0, 64)), HasSubstr("dimension 0 is -1"));
  const uint64_t large = uint64_t{1} << 32;
  EXPECT_THAT(parse_error(one_tensor({large, large}, 0, 0, 64)),
              AllOf(HasSubstr("'blk.0.w'"), HasSubstr("63 bits")));
  // 2^62 values of 8 bytes: countable, but 2^65 bytes.
  EXPECT_THAT(parse_error(one_tensor({uint64_t{1} << 62}, 27, 0, 64)), HasSubstr("64 bits"));
}

TEST(GgufError, TypesAndBlocks) {
  for (const uint32_t id : {4u, 5u, 31u, 33u, 36u, 38u, 43u, 0xffffffffu})
    EXPECT_THAT(parse_error(one_tensor({256}, id, 0, 2048)),
                AllOf(HasSubstr("'blk.0.w'"), HasSubstr("type id " + std::to_string(id))));
  EXPECT_THAT(parse_error(one_tensor({128, 2}, 12, 0, 2048)),
              AllOf(HasSubstr("'blk.0.w'"), HasSubstr("128"), HasSubstr("Q4_K"), HasSubstr("256")));
}

TEST(GgufError, TensorOffsets) {
  EXPECT_THAT(parse_error(one_tensor({1}, 0, 16, 64)),
              AllOf(HasSubstr("'blk.0.w'"), HasSubstr("offset 16"), HasSubstr("alignment 32")));
  EXPECT_THAT(parse_error(one_tensor({1}, 0, ~uint64_t{31}, 64)),
              AllOf(HasSubstr("'blk.0.w'"), HasSubstr("exceed 64 bits")));
  // The end wraps, the start does not.
  EXPECT_THAT(parse_error(one_tensor({uint64_t{1} << 60}, 28, uint64_t{1} << 63, 64)),
              HasSubstr("exceed 64 bits"));
}

TEST(GgufError, DataBeyondTheEndNamesTheTensorAndBothSizes) {
  ByteBuilder file;
  file.header(2, 0).tensor("first", {8}, 0, 0).tensor("second", {16}, 0, 32).pad(32);
  const size_t start = file.bytes.size();
  file.zeros(32 + 63);
  EXPECT_THAT(parse_error(file),
              AllOf(HasSubstr("'second'"), HasSubstr("byte " + std::to_string(start + 96)),
                    HasSubstr("has " + std::to_string(start + 95)), HasSubstr("truncated")));
  EXPECT_EQ(parse_error(file.zeros(1)), "");
}

TEST(GgufError, OverlappingTensors) {
  const auto pair = [](uint64_t first, uint64_t second) {
    return ByteBuilder()
        .header(2, 0)
        .tensor("a", {9}, 0, first)
        .tensor("b", {9}, 0, second)
        .pad(32)
        .zeros(256);
  };
  EXPECT_EQ(parse_error(pair(0, 64)), "");
  EXPECT_EQ(parse_error(pair(64, 0)), "");  // any order, and gaps, are fine
  EXPECT_THAT(parse_error(pair(0, 32)), AllOf(HasSubstr("'b'"), HasSubstr("overlaps"), HasSubstr("'a'")));
  EXPECT_THAT(parse_error(pair(32, 0)), AllOf(HasSubstr("'a'"), HasSubstr("overlaps"), HasSubstr("'b'")));
  EXPECT_THAT(parse_error(pair(0, 0)), HasSubstr("overlaps"));
}

class GgufOpenError : public FolderTest {};

TEST_F(GgufOpenError, PathsThatCannotBeRead) {
  EXPECT_THAT(open_error(path("absent.gguf")), AllOf(HasSubstr("absent.gguf"), HasSubstr("No such file")));
  EXPECT_THAT(open_error(folder_), HasSubstr("is a directory"));
}

TEST_F(GgufOpenError, AHeaderLargerThanTheLimitIsRefusedWithoutReadingIt) {
  // A sparse file of 1 GiB whose one string claims 300 MiB of it.
  const std::string file = store("sparse.gguf", ByteBuilder().header(0, 1).key("k", 8).u64(300u << 20).bytes);
  std::filesystem::resize_file(file, uint64_t{1} << 30);
  EXPECT_THAT(open_error(file),
              AllOf(HasSubstr("'k'"), HasSubstr("314572800"), HasSubstr("not a plausible header")));
}

TEST_F(GgufOpenError, ATruncatedFileOnDiskNamesSizes) {
  ByteBuilder file = one_tensor({64, 8}, 0, 0, 2047);
  EXPECT_THAT(
      open_error(store("short.gguf", file.bytes)),
      AllOf(HasSubstr("short.gguf"), HasSubstr("'blk.0.w'"), HasSubstr(std::to_string(file.bytes.size())),
            HasSubstr(std::to_string(file.bytes.size() + 1))));
}

}  // namespace
}  // namespace weir::gguf
