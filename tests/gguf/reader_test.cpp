// What an opened model tells: tensors, typed metadata, and the pocket model's own table.
#include "gguf/reader.h"

#include <gmock/gmock.h>
#include <time.h>

#include "gguf/byte_builder.h"
#include "gguf/keys.h"
#include "gguf/writer.h"
#include "support/sanitized.h"
#include "support/temp_dir.h"

namespace weir::gguf {
namespace {

using testing::AllOf;
using testing::HasSubstr;

template <typename F>
std::string error_of(F&& f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

Model parse(const Writer& writer) { return Model::parse(writer.bytes(), "written.gguf"); }

uint64_t thread_cpu_ns() {
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<uint64_t>(t.tv_sec) * 1'000'000'000u + static_cast<uint64_t>(t.tv_nsec);
}

TEST(GgufReader, ReadsAHandBuiltFile) {
  ByteBuilder file;
  file.header(2, 2).key("general.architecture", 8).string("toy").key("general.alignment", 4).u32(64);
  file.tensor("late", {32, 3}, 8, 64).tensor("early", {5}, 0, 0).pad(64);
  const size_t start = file.bytes.size();
  file.zeros(64 + 102);
  const Model model = Model::parse(file.bytes, "hand.gguf");
  EXPECT_EQ(model.require_string("general.architecture"), "toy");
  ASSERT_EQ(model.tensors().size(), 2u);
  const Tensor& late = model.tensor("late");
  EXPECT_EQ(&late, &model.tensors()[0]);  // in file order
  EXPECT_EQ(late.type, Type::Q8_0);
  EXPECT_EQ(late.info, &type_info(Type::Q8_0));
  EXPECT_EQ(late.n_dims, 2);
  EXPECT_EQ(late.dims, (std::array<int64_t, 4>{32, 3, 1, 1}));
  EXPECT_EQ(late.elements(), 96);
  EXPECT_EQ(late.rows(), 3);
  EXPECT_EQ(late.bytes, 102u);
  EXPECT_EQ(late.offset, start + 64);
  EXPECT_EQ(model.tensor("early").offset, start);
  EXPECT_EQ(model.files().at(0).data_offset, start);
  EXPECT_EQ(model.total_bytes(), file.bytes.size());
  EXPECT_EQ(model.path(), "hand.gguf");
}

TEST(GgufReader, WithoutTensorsThereIsNoPadding) {
  const ByteBuilder file = ByteBuilder().header(0, 1).key("k", 0).u8(7);
  EXPECT_EQ(Model::parse(file.bytes, "x").files()[0].data_offset, file.bytes.size());
}

TEST(GgufReader, FindsTensorsByName) {
  Writer writer;
  writer.add_tensor("here", Type::F32, {2}, std::vector<uint8_t>(8));
  const Model model = parse(writer);
  EXPECT_NE(model.find("here"), nullptr);
  EXPECT_EQ(model.find("her"), nullptr);
  EXPECT_THAT(error_of([&] { model.tensor("gone"); }), AllOf(HasSubstr("written.gguf"), HasSubstr("'gone'")));
}

TEST(GgufReader, IntegerGettersTakeAnyWidth) {
  Writer writer;
  writer.set_value("u8", {value_u8, uint64_t{200}});
  writer.set_value("i64", {value_i64, int64_t{-5}});
  writer.set_value("big", {value_u64, uint64_t{1} << 63});
  writer.set("flag", true);
  writer.set("half", 0.5f);
  writer.set("name", "text");
  const Model model = parse(writer);
  EXPECT_EQ(model.integer("u8"), 200);
  EXPECT_EQ(model.integer("i64"), -5);
  EXPECT_EQ(model.integer("flag"), 1);
  EXPECT_EQ(model.integer("absent"), std::nullopt);
  EXPECT_THAT(error_of([&] { model.integer("half"); }),
              AllOf(HasSubstr("'half' is f32"), HasSubstr("an integer")));
  EXPECT_THAT(error_of([&] { model.integer("big"); }), HasSubstr("9223372036854775808"));
  EXPECT_EQ(model.real("half"), 0.5);
  EXPECT_EQ(model.real("u8"), 200.0);
  EXPECT_EQ(model.real("i64"), -5.0);
  EXPECT_THAT(error_of([&] { model.real("name"); }), HasSubstr("'name' is string, expected a number"));
  EXPECT_EQ(model.boolean("flag"), true);
  EXPECT_EQ(model.boolean("absent"), std::nullopt);
  EXPECT_THAT(error_of([&] { model.boolean("u8"); }), HasSubstr("'u8' is 200"));
  EXPECT_EQ(model.string("name"), "text");
  EXPECT_THAT(error_of([&] { model.string("flag"); }), HasSubstr("'flag' is bool, expected a string"));
  EXPECT_TRUE(model.has("name"));
  EXPECT_FALSE(model.has("nam"));
}

TEST(GgufReader, RequiredKeysNameFileAndKey) {
  const Model model = parse(Writer());
  for (const std::string& message :
       {error_of([&] { model.require_integer("gone"); }), error_of([&] { model.require_real("gone"); }),
        error_of([&] { model.require_string("gone"); })})
    EXPECT_THAT(message, AllOf(HasSubstr("written.gguf"), HasSubstr("'gone' is missing")));
}

TEST(GgufReader, ArraysAndPerLayerIntegers) {
  Writer writer;
  writer.set("heads", std::vector<int32_t>{4, 2});
  writer.set("scale", std::vector<float>{1.0f});
  writer.set("same", uint32_t{8});
  writer.set_value("wide", {value_array, Array{value_u64, {-1}, {}, {}}});
  const Model model = parse(writer);
  ASSERT_NE(model.array("heads"), nullptr);
  EXPECT_EQ(model.array("heads")->integers().to_vector(), (std::vector<int64_t>{4, 2}));
  EXPECT_EQ(model.array("absent"), nullptr);
  EXPECT_THAT(error_of([&] { model.array("same"); }), HasSubstr("'same' is u32, expected an array"));
  EXPECT_EQ(model.integer_for_layer("heads", 1), 2);
  EXPECT_EQ(model.integer_for_layer("same", 1), 8);
  EXPECT_EQ(model.integer_for_layer("absent", 0), std::nullopt);
  EXPECT_THAT(error_of([&] { model.integer_for_layer("heads", 2); }),
              AllOf(HasSubstr("2 elements"), HasSubstr("layer 2")));
  EXPECT_THAT(error_of([&] { model.integer_for_layer("heads", -1); }), HasSubstr("layer -1"));
  EXPECT_THAT(error_of([&] { model.integer_for_layer("scale", 0); }), HasSubstr("an array of 1 f32"));
  EXPECT_THAT(error_of([&] { model.integer_for_layer("wide", 0); }), HasSubstr("18446744073709551615"));
  EXPECT_THAT(error_of([&] { model.integer("heads"); }), HasSubstr("an array of 2 i32"));
}

TEST(GgufReader, FingerprintSeesTheTableAndNotTheMetadata) {
  const auto print = [](const std::string& name, Type type, std::vector<int64_t> dims, const char* note) {
    Writer writer;
    writer.set("note", note);
    writer.add_tensor(name, type, dims, std::vector<uint8_t>(8));
    return parse(writer).fingerprint();
  };
  const uint64_t base = print("a", Type::F32, {2, 1}, "x");
  EXPECT_EQ(print("a", Type::F32, {2, 1}, "y"), base);
  EXPECT_NE(print("b", Type::F32, {2, 1}, "x"), base);
  EXPECT_NE(print("a", Type::I32, {2, 1}, "x"), base);
  EXPECT_NE(print("a", Type::F32, {1, 2}, "x"), base);
}

// How a model is laid out is not the model: its parts, the order of its tensors, the padding between them.
TEST(GgufReader, FingerprintOfAWholeAndASplitFileIsOne) {
  Writer writer, other_order;
  const std::vector<std::string> names = {"a", "b", "c", "d", "e"};
  for (const auto& name : names) writer.add_tensor(name, Type::F32, {2}, std::vector<uint8_t>(8));
  other_order.set("general.alignment", uint32_t{4096});
  for (auto name = names.rbegin(); name != names.rend(); ++name)
    other_order.add_tensor(*name, Type::F32, {2}, std::vector<uint8_t>(8));
  EXPECT_EQ(parse(other_order).fingerprint(), parse(writer).fingerprint());
  const test::TempDir dir;
  for (const int parts : {2, 3}) {
    const auto paths = writer.write_split(dir.file("split" + std::to_string(parts)), parts);
    EXPECT_EQ(Model::open(paths.front()).fingerprint(), parse(writer).fingerprint()) << parts << " parts";
  }
}

TEST(GgufReader, ReadsThePocketModel) {
  const std::string path = WEIR_SOURCE_DIR "/models/pocket-moe-q4.gguf";
  const Model model = Model::open(path);
  std::map<std::string, int> counts;
  uint64_t end = 0;
  for (const Tensor& tensor : model.tensors()) {
    ++counts[tensor.info->name];
    end = std::max(end, tensor.offset + tensor.bytes);
  }
  EXPECT_EQ(counts,
            (std::map<std::string, int>{{"Q4_K", 45}, {"Q6_K", 5}, {"Q5_0", 4}, {"Q8_0", 4}, {"F32", 41}}));
  EXPECT_EQ(model.total_bytes(), 21152032u);
  EXPECT_LE(end, 21152032u);
  EXPECT_GT(end + 32, 21152032u);
  EXPECT_EQ(model.require_string("general.architecture"), "qwen3moe");
  EXPECT_EQ(model.require_integer("qwen3moe.expert_count"), 32);
  EXPECT_EQ(model.require_integer("qwen3moe.expert_used_count"), 4);
  EXPECT_EQ(model.array("tokenizer.ggml.tokens")->strings().size(), 8192u);
  EXPECT_EQ(model.array("tokenizer.ggml.tokens")->strings()[8191], "<|im_end|>");
  EXPECT_EQ(model.tensor("blk.0.ffn_gate_exps.weight").dims, (std::array<int64_t, 4>{256, 128, 32, 1}));
}

class GgufReaderFile : public FolderTest {};

// Strings of all lengths up to beyond the read buffer, so that they straddle its edges in every way.
TEST_F(GgufReaderFile, StringsAcrossBufferEdgesArriveWhole) {
  std::vector<std::string> strings;
  for (int i = 0; i < 3000; ++i)
    strings.emplace_back(static_cast<size_t>(i), static_cast<char>('a' + i % 26));
  strings.emplace_back(700'000, 'L');
  Writer writer;
  writer.set("strings", strings);
  writer.set("after", uint32_t{42});
  writer.write(path("strings.gguf"));
  const Model model = Model::open(path("strings.gguf"));
  EXPECT_TRUE(*model.array("strings") == Array(value_string, {}, {}, strings));
  EXPECT_EQ(model.integer("after"), 42);
}

TEST_F(GgufReaderFile, AVocabularyOf150ThousandTokensTakesWellUnder100Milliseconds) {
  std::vector<std::string> tokens;
  for (int i = 0; i < 150'000; ++i) tokens.push_back("token" + std::to_string(i));
  Writer writer;
  writer.set("tokenizer.ggml.tokens", tokens);
  writer.set("tokenizer.ggml.scores", std::vector<float>(150'000, 1.0f));
  writer.set("tokenizer.ggml.token_type", std::vector<int32_t>(150'000, 1));
  writer.write(path("vocabulary.gguf"));
  uint64_t best = ~uint64_t{0};
  for (int repeat = 0; repeat < 3; ++repeat) {
    const uint64_t start = thread_cpu_ns();
    const Model model = Model::open(path("vocabulary.gguf"));
    best = std::min(best, thread_cpu_ns() - start);
    EXPECT_EQ(model.array("tokenizer.ggml.tokens")->size(), tokens.size());
  }
  RecordProperty("milliseconds", std::to_string(static_cast<double>(best) / 1e6));
  EXPECT_LT(best, test::sanitized ? 5'000'000'000u : 100'000'000u);
}

}  // namespace
}  // namespace weir::gguf
