// Activations to int8: the definition of docs/arithmetic.md, and that every instruction set gives its bits.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "base/random.h"
#include "device/cpu/kernels.h"

namespace weir::cpu {
namespace {

struct Quantised {
  std::vector<int8_t> q;
  std::vector<float> scale;
  std::vector<int16_t> sums;
  bool finite = false;
};

Quantised quantise(const MatmulKernels& kernels, int block, const std::vector<float>& x, int64_t in) {
  Quantised r;
  r.q.resize(x.size(), 99), r.scale.resize(x.size() / static_cast<size_t>(block), 99);
  r.sums.resize(x.size() / 32, 9999);
  const QuantizeTask task{x.data(),
                          in,
                          nullptr,
                          in,
                          0,
                          static_cast<int>(static_cast<int64_t>(x.size()) / in),
                          r.q.data(),
                          r.scale.data(),
                          r.sums.data()};
  r.finite = (block == 256 ? kernels.quantize256 : kernels.quantize32)(task);
  return r;
}

std::vector<const MatmulKernels*> instruction_sets() {
  std::vector<const MatmulKernels*> sets = {&scalar_matmul_kernels()};
  if (processor_has_avx2()) sets.push_back(&avx2_matmul_kernels());
  if (processor_has_vnni()) sets.push_back(&vnni_matmul_kernels());
  return sets;
}

class Quantize : public testing::TestWithParam<int> {
 protected:
  int block() const { return GetParam(); }
  std::vector<float> zeros() const { return std::vector<float>(static_cast<size_t>(block())); }
};
INSTANTIATE_TEST_SUITE_P(PerBlock, Quantize, testing::Values(32, 256), testing::PrintToStringParamName());

TEST_P(Quantize, RoundsTiesToEvenAndUsesTheFullRange) {
  for (const MatmulKernels* kernels : instruction_sets()) {
    std::vector<float> x = zeros();
    x[0] = 127, x[1] = 0.5f, x[2] = 1.5f, x[3] = 2.5f, x[4] = -0.5f, x[5] = -1.5f, x[6] = -127,
    x[31] = 99.49f;
    const Quantised r = quantise(*kernels, block(), x, block());
    EXPECT_TRUE(r.finite);
    EXPECT_EQ(r.scale[0], 1.0f);
    const std::vector<int> expected = {127, 0, 2, 2, 0, -2, -127};
    for (size_t i = 0; i < expected.size(); ++i) EXPECT_EQ(r.q[i], expected[i]) << kernels->isa << " " << i;
    EXPECT_EQ(r.q[31], 99);
    if (block() == 256) {
      EXPECT_EQ(r.sums[0], 127 + 2 + 2 - 2 - 127 + 99);
    }
  }
}

TEST_P(Quantize, DividesByTheScaleRatherThanMultiplyingByItsReciprocal) {
  // Values on which the two differ must exist among those tried, or this test would show nothing.
  int differing = 0;
  for (uint64_t seed = 0; seed < 3000; ++seed) {
    std::vector<float> x = zeros();
    x[0] = static_cast<float>(1 + random_unit(seed, 0));
    const float d = x[0] / 127.0f, reciprocal = 1.0f / d;
    for (size_t i = 1; i < x.size(); ++i) {
      const auto k = static_cast<float>(random_u64(seed, i) % 120);
      x[i] = (k + 0.5f) * d;
    }
    for (const MatmulKernels* kernels : instruction_sets()) {
      const Quantised r = quantise(*kernels, block(), x, block());
      for (size_t i = 0; i < x.size(); ++i)
        ASSERT_EQ(r.q[i], std::lrintf(x[i] / d)) << kernels->isa << " " << i;
    }
    for (float v : x) differing += std::lrintf(v / d) != std::lrintf(v * reciprocal);
  }
  EXPECT_GT(differing, 0);
}

TEST_P(Quantize, ZerosGiveZerosAndScaleZero) {
  for (const MatmulKernels* kernels : instruction_sets()) {
    std::vector<float> x = zeros();
    x[3] = -0.0f;
    const Quantised r = quantise(*kernels, block(), x, block());
    EXPECT_TRUE(r.finite);
    EXPECT_EQ(std::bit_cast<uint32_t>(r.scale[0]), 0u);
    for (int8_t q : r.q) EXPECT_EQ(q, 0);
  }
}

TEST_P(Quantize, AScaleThatUnderflowsToZeroGivesZeros) {
  for (const MatmulKernels* kernels : instruction_sets()) {
    std::vector<float> x = zeros();
    x[5] = 63 * 0x1p-149f, x[6] = -0x1p-149f;  // 63 / 127 of the smallest subnormal rounds to 0
    const Quantised r = quantise(*kernels, block(), x, block());
    EXPECT_TRUE(r.finite);
    EXPECT_EQ(std::bit_cast<uint32_t>(r.scale[0]), 0u);
    for (int8_t q : r.q) EXPECT_EQ(q, 0);
  }
}

TEST_P(Quantize, ASubnormalScaleIsClampedToTheRange) {
  for (const MatmulKernels* kernels : instruction_sets()) {
    std::vector<float> x = zeros();
    x[0] = 190 * 0x1p-149f, x[1] = -190 * 0x1p-149f, x[2] = 64 * 0x1p-149f;  // 190 / 127 rounds to 1
    const Quantised r = quantise(*kernels, block(), x, block());
    EXPECT_EQ(r.scale[0], 0x1p-149f);
    EXPECT_EQ(r.q[0], 127);
    EXPECT_EQ(r.q[1], -127);
    EXPECT_EQ(r.q[2], 64);
  }
}

TEST_P(Quantize, ANonFiniteValueIsReportedAndConfinedToItsBlock) {
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  for (const MatmulKernels* kernels : instruction_sets())
    for (float bad : {inf, -inf, nan, -nan, std::bit_cast<float>(0x7f800001u)}) {
      std::vector<float> x(static_cast<size_t>(3 * block()), 2.0f);
      x[static_cast<size_t>(block() + 17)] = bad;
      const Quantised r = quantise(*kernels, block(), x, 3 * block());
      EXPECT_FALSE(r.finite);
      EXPECT_TRUE(std::isnan(r.scale[1]));
      EXPECT_EQ(r.scale[0], 2.0f / 127.0f);
      EXPECT_EQ(r.scale[2], 2.0f / 127.0f);
      for (int i = 0; i < 3 * block(); ++i)
        EXPECT_EQ(r.q[static_cast<size_t>(i)], i / block() == 1 ? 0 : 127) << kernels->isa << " " << i;
      if (block() == 256) {
        EXPECT_EQ(r.sums[8], 0);
      }
    }
}

TEST_P(Quantize, WritesOnlyTheRowsAskedForFromIndexedStridedInput) {
  const int64_t in = block() * 2, stride = in + 5;
  std::vector<float> x(static_cast<size_t>(6 * stride));
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(random_unit(7, i) - 0.5);
  const int32_t index[] = {5, 0, 3, 3};
  for (const MatmulKernels* kernels : instruction_sets()) {
    std::vector<int8_t> q(static_cast<size_t>(4 * in), 77);
    std::vector<float> scale(8, 77);
    std::vector<int16_t> sums(static_cast<size_t>(4 * in / 32), 7777);
    const QuantizeTask task{x.data(), stride, index, in, 1, 3, q.data(), scale.data(), sums.data()};
    ASSERT_TRUE((block() == 256 ? kernels->quantize256 : kernels->quantize32)(task));
    for (int row = 0; row < 4; ++row) {
      if (row == 0 || row == 3) {
        EXPECT_EQ(q[static_cast<size_t>(row * in)], 77);
        EXPECT_EQ(scale[static_cast<size_t>(2 * row)], 77);
        continue;
      }
      const float* source = x.data() + index[row] * stride;
      const Quantised alone = quantise(*kernels, block(), std::vector<float>(source, source + in), in);
      for (int64_t i = 0; i < in; ++i)
        ASSERT_EQ(q[static_cast<size_t>(row * in + i)], alone.q[static_cast<size_t>(i)]);
      EXPECT_EQ(scale[static_cast<size_t>(2 * row + 1)], alone.scale[1]);
      if (block() == 256) {
        EXPECT_EQ(sums[static_cast<size_t>(row * in / 32 + 9)], alone.sums[9]);
      }
    }
    if (block() == 32) {
      EXPECT_EQ(sums[0], 7777);
    }
  }
}

TEST_P(Quantize, EveryInstructionSetGivesTheSameBits) {
  const int64_t in = block() * 4;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    std::vector<float> x(static_cast<size_t>(2 * in));
    for (size_t i = 0; i < x.size(); ++i) {
      const auto bits = static_cast<uint32_t>(random_u64(seed, i));
      // Odd seeds: any float at all. Even seeds: ordinary values, of a magnitude of their own.
      x[i] = seed % 2
                 ? std::bit_cast<float>(seed % 3 ? bits & 0xbfffffffu : bits)
                 : std::ldexp(static_cast<float>(static_cast<int32_t>(bits)), static_cast<int>(seed) - 180);
    }
    const Quantised expected = quantise(scalar_matmul_kernels(), block(), x, in);
    for (const MatmulKernels* kernels : instruction_sets()) {
      const Quantised r = quantise(*kernels, block(), x, in);
      ASSERT_EQ(r.q, expected.q) << seed;
      ASSERT_EQ(r.sums, expected.sums) << seed;
      ASSERT_EQ(r.finite, expected.finite) << seed;
      for (size_t i = 0; i < r.scale.size(); ++i)
        ASSERT_TRUE(std::bit_cast<uint32_t>(r.scale[i]) == std::bit_cast<uint32_t>(expected.scale[i]) ||
                    (std::isnan(r.scale[i]) && std::isnan(expected.scale[i])))
            << seed << " " << i;
    }
    if (block() == 256) {
      for (size_t s = 0; s < expected.sums.size(); ++s)
        ASSERT_EQ(expected.sums[s], std::accumulate(&expected.q[32 * s], &expected.q[32 * s] + 32, 0));
    }
  }
}

}  // namespace
}  // namespace weir::cpu
