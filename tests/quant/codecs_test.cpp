// Block formats: blocks written byte by byte with values worked out from the format's definition, and the
// integer products against the decoded values.
#include "quant/codecs.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <numeric>
#include <vector>

#include "base/random.h"

namespace weir::quant {
namespace {

void put_u16(std::vector<uint8_t>& block, size_t at, uint16_t value) { std::memcpy(&block[at], &value, 2); }
constexpr uint16_t kOne = 0x3c00, kHalf = 0x3800, kMinusTwo = 0xc000, kZero = 0;

template <typename Codec>
std::vector<float> decode(const std::vector<uint8_t>& block) {
  EXPECT_EQ(block.size(), static_cast<size_t>(Codec::block_bytes));
  std::vector<float> out(Codec::block_elements);
  Codec::decode(block.data(), out.data());
  return out;
}

TEST(Codecs, F32F16Bf16HoldOneValue) {
  EXPECT_EQ(decode<F32>({0x00, 0x00, 0x20, 0xc1})[0], -10.0f);
  EXPECT_EQ(decode<F16>({0x00, 0xc9})[0], -10.0f);
  EXPECT_EQ(decode<F16>({0x01, 0x00})[0], 0x1p-24f);
  EXPECT_EQ(decode<BF16>({0x20, 0xc1})[0], -10.0f);
}

TEST(Codecs, Q8_0IsScaleTimesSignedByte) {
  std::vector<uint8_t> block(34);
  put_u16(block, 0, kHalf);
  block[2 + 0] = 0x80, block[2 + 1] = 0xff, block[2 + 2] = 0x01, block[2 + 31] = 0x7f;
  const std::vector<float> v = decode<Q8_0>(block);
  EXPECT_EQ(v[0], -64.0f);
  EXPECT_EQ(v[1], -0.5f);
  EXPECT_EQ(v[2], 0.5f);
  EXPECT_EQ(v[3], 0.0f);
  EXPECT_EQ(v[31], 63.5f);
}

TEST(Codecs, Q5_0PairsElementsSixteenApartAndTakesTheFifthBitFromQh) {
  std::vector<uint8_t> block(22);
  put_u16(block, 0, kMinusTwo);
  // Fifth bits of elements 0, 17 and 31.
  const uint32_t qh = 1u << 0 | 1u << 17 | 1u << 31;
  std::memcpy(&block[2], &qh, 4);
  block[6 + 0] = 0x3f;   // element 0: 15 + 16 - 16 = 15; element 16: 3 - 16 = -13
  block[6 + 1] = 0xa0;   // element 1: 0 - 16; element 17: 10 + 16 - 16 = 10
  block[6 + 15] = 0x21;  // element 15: 1 - 16; element 31: 2 + 16 - 16 = 2
  const std::vector<float> v = decode<Q5_0>(block);
  EXPECT_EQ(v[0], -30.0f);
  EXPECT_EQ(v[16], 26.0f);
  EXPECT_EQ(v[1], 32.0f);
  EXPECT_EQ(v[17], -20.0f);
  EXPECT_EQ(v[15], 30.0f);
  EXPECT_EQ(v[31], -4.0f);
  EXPECT_EQ(v[2], 32.0f);
}

TEST(Codecs, Q4_KUnpacksSixBitScalesAndMinima) {
  std::vector<uint8_t> block(144);
  put_u16(block, 0, kOne);
  put_u16(block, 2, kHalf);
  // Scale bytes 0..3: low six bits scales 0..3, top two bits of each the high bits of scales 4..7.
  block[4 + 0] = 0b01'000001;  // scale 0 = 1,  scale 4 high = 1
  block[4 + 1] = 0b00'111111;  // scale 1 = 63, scale 5 high = 0
  block[4 + 2] = 0b11'000000;  // scale 2 = 0,  scale 6 high = 3
  block[4 + 3] = 0b10'100000;  // scale 3 = 32, scale 7 high = 2
  // Bytes 4..7: the same for the minima.
  block[4 + 4] = 0b00'000010;  // minimum 0 = 2,  minimum 4 high = 0
  block[4 + 5] = 0b10'000000;  // minimum 1 = 0,  minimum 5 high = 2
  block[4 + 6] = 0b01'111110;  // minimum 2 = 62, minimum 6 high = 1
  block[4 + 7] = 0b11'000111;  // minimum 3 = 7,  minimum 7 high = 3
  // Bytes 8..11: low nibble low bits of scales 4..7, high nibble of minima 4..7.
  block[4 + 8] = 0x53;   // scale 4 = 16 + 3 = 19, minimum 4 = 5
  block[4 + 9] = 0x1f;   // scale 5 = 15,          minimum 5 = 32 + 1 = 33
  block[4 + 10] = 0x0f;  // scale 6 = 48 + 15 = 63, minimum 6 = 16
  block[4 + 11] = 0xf0;  // scale 7 = 32,          minimum 7 = 48 + 15 = 63
  const int scale[8] = {1, 63, 0, 32, 19, 15, 63, 32}, minimum[8] = {2, 0, 62, 7, 5, 33, 16, 63};
  // Chunk c: byte i holds low nibble (i + c) % 16 for sub-block 2c, high nibble (i + 5 + c) % 16 for 2c + 1.
  for (int c = 0; c < 4; ++c)
    for (int i = 0; i < 32; ++i)
      block[static_cast<size_t>(16 + 32 * c + i)] =
          static_cast<uint8_t>((i + c) % 16 | (i + 5 + c) % 16 << 4);
  const std::vector<float> v = decode<Q4_K>(block);
  for (int j = 0; j < 8; ++j)
    for (int i = 0; i < 32; ++i) {
      const int level = j % 2 ? (i + 5 + j / 2) % 16 : (i + j / 2) % 16;
      EXPECT_EQ(v[static_cast<size_t>(32 * j + i)],
                static_cast<float>(scale[j] * level) - 0.5f * static_cast<float>(minimum[j]))
          << j << " " << i;
    }
}

TEST(Codecs, Q6_KJoinsLowNibblesAndHighPairs) {
  std::vector<uint8_t> block(210);
  put_u16(block, 208, kHalf);
  const int scale[16] = {1, -1, 2, -2, 127, -128, 3, 5, 7, -9, 11, 13, -17, 19, 0, 23};
  for (size_t s = 0; s < 16; ++s) block[192 + s] = static_cast<uint8_t>(scale[s]);
  // Level of element e, 0..63, packed by the definition's table of four quarters a half.
  const auto level = [](int e) { return (e * 37 + 11) % 64; };
  for (int h = 0; h < 2; ++h)
    for (int l = 0; l < 32; ++l) {
      const int a = level(128 * h + l), b = level(128 * h + l + 32), c = level(128 * h + l + 64),
                d = level(128 * h + l + 96);
      block[static_cast<size_t>(64 * h + l)] = static_cast<uint8_t>((a & 15) | (c & 15) << 4);
      block[static_cast<size_t>(64 * h + l + 32)] = static_cast<uint8_t>((b & 15) | (d & 15) << 4);
      block[static_cast<size_t>(128 + 32 * h + l)] =
          static_cast<uint8_t>(a >> 4 | (b >> 4) << 2 | (c >> 4) << 4 | (d >> 4) << 6);
    }
  EXPECT_EQ(block[0], 0xbb);  // level(0) = 11, level(64) = 59 = 0x3b
  const std::vector<float> v = decode<Q6_K>(block);
  for (int e = 0; e < 256; ++e)
    EXPECT_EQ(v[static_cast<size_t>(e)], 0.5f * static_cast<float>(scale[e / 16] * (level(e) - 32))) << e;
}

/// Where a format keeps its f16 factors; -1: none.
template <typename Codec>
constexpr int kDAt = 0;
template <>
constexpr int kDAt<Q6_K> = Q6_K::d_offset;
template <typename Codec>
constexpr int kDminAt = -1;
template <>
constexpr int kDminAt<Q4_K> = Q4_K::dmin_offset;

/// With d = 1 and dmin = 0 the decoded values are the integers of the total; with d = 0 and dmin = 1 they are
/// minus those of the minimum.
template <typename Codec>
int64_t dot_of_decoded(std::vector<uint8_t> block, uint16_t d, uint16_t dmin, const std::vector<int8_t>& q) {
  put_u16(block, kDAt<Codec>, d);
  if (kDminAt<Codec> >= 0) put_u16(block, static_cast<size_t>(std::max(kDminAt<Codec>, 0)), dmin);
  const std::vector<float> v = decode<Codec>(block);
  int64_t dot = 0;
  for (size_t i = 0; i < v.size(); ++i) dot += static_cast<int64_t>(v[i]) * q[i];
  return dot;
}

template <typename Codec>
void product_equals_decoded(uint64_t seed, int magnitude) {
  std::vector<uint8_t> block(Codec::block_bytes);
  for (size_t i = 0; i < block.size(); ++i) block[i] = static_cast<uint8_t>(random_u64(seed, i));
  put_u16(block, kDAt<Codec>, 0xb555);
  if (kDminAt<Codec> >= 0) put_u16(block, static_cast<size_t>(std::max(kDminAt<Codec>, 0)), 0x2abc);
  std::vector<int8_t> q(Codec::block_elements);
  for (size_t i = 0; i < q.size(); ++i)
    q[i] =
        static_cast<int8_t>(static_cast<int>(random_u64(seed + 1000, i) % (2 * magnitude + 1)) - magnitude);
  std::vector<int16_t> sums;
  for (size_t i = 0; i < q.size(); i += 32)
    sums.push_back(static_cast<int16_t>(std::accumulate(q.begin() + i, q.begin() + i + 32, 0)));
  const BlockProduct p = Codec::product(block.data(), q.data(), sums.data());
  EXPECT_EQ(p.d, f16_to_f32(0xb555));
  EXPECT_EQ(p.total, (dot_of_decoded<Codec>(block, kOne, kZero, q)));
  if constexpr (Codec::has_minimum) {
    EXPECT_EQ(p.dmin, f16_to_f32(0x2abc));
    EXPECT_EQ(p.minimum, -(dot_of_decoded<Codec>(block, kZero, kOne, q)));
  }
}

TEST(Codecs, ProductIsTheDotOfTheDecodedIntegers) {
  Codecs::each([]<typename Codec>() {
    if constexpr (Codec::act != ActFormat::none)
      for (uint64_t seed = 0; seed < 40; ++seed) product_equals_decoded<Codec>(seed, seed % 2 ? 127 : 3);
  });
}

TEST(Codecs, LargestQ6_KTotalFitsInInt32) {
  std::vector<uint8_t> block(210);
  for (size_t s = 0; s < 16; ++s) block[192 + s] = 0x80;
  const std::vector<int8_t> q(256, 127);  // every level is -32, every scale -128
  EXPECT_EQ(Q6_K::product(block.data(), q.data(), nullptr).total, 256 * 32 * 128 * 127);
}

}  // namespace
}  // namespace weir::quant
