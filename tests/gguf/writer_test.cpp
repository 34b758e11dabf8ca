// The writer's bytes, checked by hand once and by reading them back for every value and tensor type.
#include "gguf/writer.h"

#include <gmock/gmock.h>

#include <limits>

#include "gguf/byte_builder.h"
#include "gguf/keys.h"

namespace weir::gguf {
namespace {

using testing::AllOf;
using testing::HasSubstr;

template <typename T>
constexpr T least = std::numeric_limits<T>::lowest();
template <typename T>
constexpr T most = std::numeric_limits<T>::max();

template <typename F>
std::string error_of(F&& f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(GgufWriter, BytesOfATinyFile) {
  Writer writer;
  writer.set("a", uint32_t{7});
  writer.set("s", "hi");
  writer.set("f", std::vector<int32_t>{-1, 2});
  writer.add_tensor("x", Type::I8, {3}, {1, 2, 3});
  writer.add_tensor("y", Type::F16, {1, 2}, {4, 5, 6, 7});
  ByteBuilder expected;
  expected.raw("GGUF").u32(3).u64(2).u64(3);
  expected.u64(1).raw("a").u32(4).u32(7);
  expected.u64(1).raw("s").u32(8).u64(2).raw("hi");
  expected.u64(1).raw("f").u32(9).u32(5).u64(2).u32(0xffffffff).u32(2);
  expected.u64(1).raw("x").u32(1).u64(3).u32(24).u64(0);
  expected.u64(1).raw("y").u32(2).u64(1).u64(2).u32(1).u64(32);
  expected.pad(32).raw("\1\2\3").pad(32).raw("\4\5\6\7").pad(32);
  EXPECT_EQ(writer.bytes(), expected.bytes);
}

TEST(GgufWriter, EveryScalarTypeComesBackAtItsLimits) {
  const std::vector<Value> values = {
      {value_u8, uint64_t{0}},
      {value_u8, uint64_t{255}},
      {value_i8, int64_t{-128}},
      {value_i8, int64_t{127}},
      {value_u16, uint64_t{65535}},
      {value_i16, int64_t{-32768}},
      {value_i16, int64_t{32767}},
      {value_u32, uint64_t{4294967295}},
      {value_i32, int64_t{least<int32_t>}},
      {value_i32, int64_t{most<int32_t>}},
      {value_u64, most<uint64_t>},
      {value_i64, least<int64_t>},
      {value_i64, most<int64_t>},
      {value_f32, double{most<float>}},
      {value_f32, double{-0.1f}},
      {value_f64, 0.1},
      {value_f64, least<double>},
      {value_bool, true},
      {value_bool, false},
      {value_string, std::string("a\0b", 3)},
      {value_string, std::string()},
  };
  Writer writer;
  for (size_t i = 0; i < values.size(); ++i) writer.set_value("key" + std::to_string(i), values[i]);
  const Model model = Model::parse(writer.bytes(), "scalars");
  ASSERT_EQ(model.metadata().size(), values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    EXPECT_TRUE(model.metadata().at("key" + std::to_string(i)) == values[i]) << i;
  }
}

TEST(GgufWriter, EveryArrayTypeComesBack) {
  const std::vector<Array> arrays = {
      {value_u8, {0, 255}, {}, {}},
      {value_i8, {-128, 127}, {}, {}},
      {value_u16, {0, 65535}, {}, {}},
      {value_i16, {-32768, 32767}, {}, {}},
      {value_u32, {0, 4294967295}, {}, {}},
      {value_i32, {least<int32_t>, most<int32_t>}, {}, {}},
      {value_u64, {0, most<int64_t>, -1}, {}, {}},  // -1: the wrapped 2^64 - 1
      {value_i64, {least<int64_t>, most<int64_t>}, {}, {}},
      {value_f32, {}, {-0.5, 3.25}, {}},
      {value_f64, {}, {0.1, -1e300}, {}},
      {value_bool, {0, 1, 1}, {}, {}},
      {value_string, {}, {}, {"", "one", std::string(1000, 'x')}},
      {value_string, {}, {}, {}},
      {value_f32, {}, {}, {}},
      {value_u32, {}, {}, {}},
  };
  Writer writer;
  for (size_t i = 0; i < arrays.size(); ++i)
    writer.set_value("key" + std::to_string(i), {value_array, arrays[i]});
  const Model model = Model::parse(writer.bytes(), "arrays");
  for (size_t i = 0; i < arrays.size(); ++i) {
    const Array* read = model.array("key" + std::to_string(i));
    ASSERT_NE(read, nullptr);
    EXPECT_TRUE(*read == arrays[i]) << i;
  }
}

TEST(GgufWriter, EveryTensorTypeComesBackWithItsBytes) {
  Writer writer;
  int count = 0;
#define WEIR_TYPE(name, id, elements, bytes)                                                             \
  writer.add_tensor(#name, Type::name, {2 * elements, 3}, std::vector<uint8_t>(6 * bytes, uint8_t{id})), \
      ++count;
#include "quant/types.def"
#undef WEIR_TYPE
  const std::vector<uint8_t> file = writer.bytes();
  const Model model = Model::parse(file, "types");
  ASSERT_EQ(model.tensors().size(), static_cast<size_t>(count));
  for (const Tensor& tensor : model.tensors()) {
    EXPECT_EQ(tensor.name, tensor.info->name);
    EXPECT_EQ(tensor.info->type, tensor.type);
    EXPECT_EQ(tensor.dims[0], 2 * tensor.info->block_elements);
    EXPECT_EQ(tensor.bytes, static_cast<uint64_t>(6 * tensor.info->block_bytes));
    for (uint64_t i = 0; i < tensor.bytes; ++i)
      ASSERT_EQ(file[tensor.offset + i], static_cast<uint8_t>(tensor.type)) << tensor.name << " byte " << i;
  }
}

TEST(GgufWriter, HonoursTheAlignmentKey) {
  Writer writer;
  writer.set("general.alignment", uint32_t{128});
  writer.add_tensor("a", Type::I8, {1}, {1});
  writer.add_tensor("b", Type::I8, {1}, {2});
  const Model model = Model::parse(writer.bytes(), "aligned");
  EXPECT_EQ(model.files()[0].data_offset % 128, 0u);
  EXPECT_EQ(model.tensor("b").offset - model.tensor("a").offset, 128u);
  writer.set("general.alignment", uint32_t{24});
  EXPECT_THAT(error_of([&] { writer.bytes(); }), HasSubstr("power of two"));
}

TEST(GgufWriter, AKeySetAgainTakesTheNewValue) {
  Writer writer;
  writer.set("k", uint32_t{1});
  writer.set("k", "two");
  EXPECT_EQ(Model::parse(writer.bytes(), "x").require_string("k"), "two");
}

TEST(GgufWriter, RefusesWhatAReaderWouldRefuse) {
  Writer writer;
  const auto add = [&](const std::string& name, Type type, std::vector<int64_t> dims, size_t bytes) {
    return error_of([&] { writer.add_tensor(name, type, dims, std::vector<uint8_t>(bytes)); });
  };
  EXPECT_EQ(add("t", Type::F32, {2}, 8), "");
  EXPECT_THAT(add("t", Type::F32, {2}, 8), AllOf(HasSubstr("'t'"), HasSubstr("already")));
  EXPECT_THAT(add("u", Type::F32, {2}, 7), HasSubstr("7 bytes of data, expected 8"));
  EXPECT_THAT(add("u", Type::Q8_0, {31}, 34), HasSubstr("block of 32"));
  EXPECT_THAT(add("u", Type::F32, {0}, 0), HasSubstr("dimension 0"));
  EXPECT_THAT(add("u", Type::F32, {}, 0), HasSubstr("0 dimensions"));
  EXPECT_THAT(add(std::string(64, 'n'), Type::F32, {1}, 4), HasSubstr("64 bytes long"));
  const auto value = [](const Value& bad) {
    Writer other;
    other.set_value("k", bad);
    return error_of([&] { other.bytes(); });
  };
  EXPECT_EQ(value({value_u8, uint64_t{255}}), "");
  EXPECT_THAT(value({value_u8, uint64_t{256}}), AllOf(HasSubstr("'k'"), HasSubstr("u8")));
  EXPECT_THAT(value({value_u32, most<uint64_t>}), HasSubstr("u32"));
  EXPECT_THAT(value({value_i8, int64_t{-129}}), HasSubstr("i8"));
  EXPECT_THAT(value({value_u32, std::string("text")}), HasSubstr("u32"));
  EXPECT_THAT(value({99, uint64_t{1}}), HasSubstr("type 99"));
  EXPECT_THAT(error_of([] { Array(value_i8, {128}, {}, {}); }), HasSubstr("i8"));
  EXPECT_THAT(error_of([] { Array(value_array, {}, {}, {}); }), HasSubstr("array"));
  EXPECT_THAT(error_of([] { Array(value_string, {1}, {}, {}); }), HasSubstr("string"));
  EXPECT_THAT(error_of([] { Array(value_u32, {}, {0.5}, {}); }), HasSubstr("u32"));
  EXPECT_THAT(error_of([] { Array(value_f32, {1}, {}, {}); }), HasSubstr("f32"));
}

class GgufWriterFile : public FolderTest {};

TEST_F(GgufWriterFile, WritesTheSameBytesAndLeavesNoTemporary) {
  Writer writer;
  writer.set("k", 1.5f);
  writer.add_tensor("t", Type::F32, {2}, std::vector<uint8_t>(8, 9));
  writer.write(path("out.gguf"));
  std::ifstream in(path("out.gguf"), std::ios::binary);
  const std::vector<uint8_t> read{std::istreambuf_iterator<char>(in), {}};
  EXPECT_EQ(read, writer.bytes());
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_), {}), 1);
  EXPECT_EQ(Model::open(path("out.gguf")).path(), path("out.gguf"));
  EXPECT_THAT(error_of([&] { writer.write(path("no/such/folder.gguf")); }), HasSubstr("no/such/folder.gguf"));
}

}  // namespace
}  // namespace weir::gguf
