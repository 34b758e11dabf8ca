// Seeded damage to a small valid file: it loads as something consistent or it is refused with an Error;
// nothing else.
#include "base/random.h"
#include "gguf/byte_builder.h"
#include "gguf/writer.h"

namespace weir::gguf {
namespace {

std::vector<uint8_t> small_file() {
  Writer writer;
  writer.set("general.architecture", "toy");
  writer.set("general.alignment", uint32_t{32});
  writer.set("scores", std::vector<float>{1, 2, 3});
  writer.set("tokens", std::vector<std::string>{"a", "bc", ""});
  writer.set("flag", true);
  writer.add_tensor("token_embd.weight", Type::Q4_K, {256, 2}, std::vector<uint8_t>(288));
  writer.add_tensor("norm.weight", Type::F32, {8}, std::vector<uint8_t>(32));
  return writer.bytes();
}

/// True where it loads; then what it says must be safe to act on.
bool loads(const std::vector<uint8_t>& bytes) {
  try {
    const Model model = Model::parse(bytes, "mutant");
    for (const Tensor& tensor : model.tensors()) {
      EXPECT_GE(tensor.offset, model.files()[0].data_offset);
      EXPECT_LE(tensor.offset, bytes.size());
      EXPECT_LE(tensor.bytes, bytes.size() - tensor.offset);
      EXPECT_EQ(tensor.info->bytes(static_cast<uint64_t>(tensor.elements())), tensor.bytes);
      EXPECT_EQ(model.find(tensor.name), &tensor);
    }
    return true;
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("mutant"), std::string::npos) << error.what();
    return false;
  }
}

TEST(GgufMutation, EveryByteSetToTellingValues) {
  const std::vector<uint8_t> good = small_file();
  ASSERT_TRUE(loads(good));
  for (size_t i = 0; i < good.size(); ++i)
    for (const int value : {0x00, 0x01, 0x7f, 0x80, 0xff}) {
      std::vector<uint8_t> bytes = good;
      bytes[i] = static_cast<uint8_t>(value);
      EXPECT_NO_THROW(loads(bytes)) << "byte " << i << " = " << value;
    }
}

TEST(GgufMutation, SeededFlipsAndTruncations) {
  const std::vector<uint8_t> good = small_file();
  int loaded = 0;
  constexpr int rounds = 6000;
  for (uint64_t round = 0; round < rounds; ++round) {
    std::vector<uint8_t> bytes = good;
    uint64_t draw = 0;
    const auto next = [&](uint64_t below) { return random_u64(round, draw++) % below; };
    for (uint64_t flips = 1 + next(4); flips > 0; --flips)
      bytes[next(bytes.size())] ^= static_cast<uint8_t>(1u << next(8));
    if (next(4) == 0) bytes.resize(next(bytes.size()));
    EXPECT_NO_THROW(loaded += loads(bytes)) << "round " << round;
  }
  // Damage to tensor data, names and values loads; damage to lengths and types does not: both must have been
  // met.
  EXPECT_GT(loaded, rounds / 20);
  EXPECT_LT(loaded, rounds * 19 / 20);
}

}  // namespace
}  // namespace weir::gguf
