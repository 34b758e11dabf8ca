// Metadata values in words.
#include "gguf/describe.h"

#include <gtest/gtest.h>

#include "gguf/keys.h"

namespace weir::gguf {
namespace {

std::string words(uint32_t type, decltype(Value::data) data) { return describe({type, std::move(data)}); }
std::string array(uint32_t element, std::vector<int64_t> integers) {
  return words(value_array, Array{element, std::move(integers), {}, {}});
}

TEST(GgufDescribe, Scalars) {
  EXPECT_EQ(words(value_u64, ~uint64_t{0}), "18446744073709551615");
  EXPECT_EQ(words(value_i8, int64_t{-4}), "-4");
  EXPECT_EQ(words(value_f32, double{1e-6f}), "1e-06");
  EXPECT_EQ(words(value_bool, false), "false");
  EXPECT_EQ(words(value_string, std::string("a\nb")), "'a\\x0ab'");
}

TEST(GgufDescribe, Arrays) {
  EXPECT_EQ(array(value_i32, {}), "[]");
  EXPECT_EQ(array(value_i32, {4}), "[4]");
  EXPECT_EQ(array(value_i32, {4, -4, 8}), "[4, -4, 8]");
  EXPECT_EQ(array(value_u32, std::vector<int64_t>(48, 4)), "48 times 4");
  EXPECT_EQ(array(value_bool, {1, 0}), "[true, false]");
  EXPECT_EQ(array(value_u64, {-1, 2}), "[18446744073709551615, 2]");
  EXPECT_EQ(array(value_u8, {1, 2, 3, 4, 5, 6, 7, 8, 9}), "[1, 2, 3, 4, 5, 6] and 3 more");
  EXPECT_EQ(words(value_array, Array{value_f32, {}, {0.5, 2}, {}}), "[0.5, 2]");
  EXPECT_EQ(words(value_array, Array{value_string, {}, {}, {"a", "b"}}), "['a', 'b']");
}

}  // namespace
}  // namespace weir::gguf
