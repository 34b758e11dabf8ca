#include "support/mutate.h"

#include <array>
#include <cstring>
#include <limits>

#include "base/random.h"
#include "gguf/keys.h"

namespace weir::test {

namespace {

class Draws {
 public:
  explicit Draws(uint64_t seed) : seed_(seed) {}
  uint64_t below(uint64_t bound) { return random_u64(seed_, next_++) % bound; }
  template <typename T, size_t N>
  T one_of(const std::array<T, N>& values) {
    return values[below(N)];
  }

 private:
  uint64_t seed_, next_ = 0;
};

constexpr std::array<int64_t, 20> integers = {
    0,  1,          2,     3,          4,          8,          16,         17,         63,
    64, 129,        65536, 1000000007, 2147483647, 2147483648, 4294967295, 4294967360, int64_t{1} << 62,
    -1, -2147483648};
constexpr std::array<double, 10> reals = {0.0, -0.0, 1.0, -1.0, 0.5, 4.0, 1e-30, 1e38, 1e300, 10000.0};
constexpr std::array<const char*, 10> texts = {"",      "none", "yarn",     "linear", "qwen2",
                                               "qwen3", "gpt2", "qwen3moe", "t h",    "\xff\n"};

double any_real(Draws& draws) {
  if (draws.below(4) > 0) return draws.one_of(reals);
  return draws.below(2) > 0 ? std::numeric_limits<double>::infinity()
                            : std::numeric_limits<double>::quiet_NaN();
}

gguf::Value any_array(Draws& draws) {
  const uint64_t n = draws.below(5);
  constexpr std::array<uint32_t, 6> kinds = {gguf::value_i32, gguf::value_u64, gguf::value_bool,
                                             gguf::value_u8,  gguf::value_f32, gguf::value_string};
  const uint32_t element = draws.one_of(kinds);
  std::vector<int64_t> numbers;
  std::vector<double> fractions;
  std::vector<std::string> strings;
  const int64_t same = draws.one_of(integers);
  const bool equal = draws.below(2) > 0;
  for (uint64_t i = 0; i < n; ++i) {
    if (element == gguf::value_string)
      strings.emplace_back(draws.one_of(texts));
    else if (element == gguf::value_f32)
      fractions.push_back(static_cast<double>(static_cast<float>(draws.below(9))));
    else if (element == gguf::value_u8 || element == gguf::value_bool)
      numbers.push_back(static_cast<int64_t>(draws.below(2)));
    else if (element == gguf::value_i32)
      numbers.push_back(static_cast<int32_t>(equal ? same : draws.one_of(integers)));
    else
      numbers.push_back(equal ? same : draws.one_of(integers));
  }
  return {gguf::value_array, gguf::Array(element, numbers, fractions, strings)};
}

gguf::Value any_value(Draws& draws) {
  switch (draws.below(7)) {
    case 0:
      return {gguf::value_u32, uint64_t{static_cast<uint32_t>(draws.one_of(integers))}};
    case 1:
      return {gguf::value_u64, static_cast<uint64_t>(draws.one_of(integers))};
    case 2:
      return {gguf::value_i64, draws.one_of(integers)};
    case 3:
      return {gguf::value_f64, any_real(draws)};
    case 4:
      return {gguf::value_string, std::string(draws.one_of(texts))};
    case 5:
      return {gguf::value_bool, draws.below(2) > 0};
    default:
      return any_array(draws);
  }
}

}  // namespace

std::vector<uint8_t> mutated_bytes(std::vector<uint8_t> bytes, uint64_t header_bytes, uint64_t seed) {
  Draws draws(seed);
  for (uint64_t changes = 1 + draws.below(4); changes > 0; --changes) {
    const uint64_t at = draws.below(header_bytes - sizeof(uint32_t));
    if (draws.below(3) > 0) {
      bytes[at] ^= static_cast<uint8_t>(1u << draws.below(8));
    } else if (draws.below(2) > 0) {
      bytes[at] = draws.one_of(std::array<uint8_t, 5>{0x00, 0x01, 0x7f, 0x80, 0xff});
    } else {
      const auto word = static_cast<uint32_t>(draws.one_of(integers));
      std::memcpy(bytes.data() + at, &word, sizeof word);
    }
  }
  return bytes;
}

void mutate_metadata(gguf::Writer& writer, const std::vector<std::string>& keys, uint64_t seed) {
  Draws draws(seed);
  for (uint64_t changes = 1 + draws.below(3); changes > 0; --changes)
    writer.set_value(keys[draws.below(keys.size())], any_value(draws));
}

}  // namespace weir::test
