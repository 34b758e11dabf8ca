// Matmul kernels: the scalar set against a reference written here from docs/arithmetic.md and against
// doubles; every other instruction set against the scalar one bit for bit.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "base/half.h"
#include "base/random.h"
#include "device/cpu/kernels.h"
#include "quant/codecs.h"

namespace weir::cpu {
namespace {

/// Where a format keeps its f16 factors in a block; -1: none.
struct Factors {
  int d = -1, dmin = -1;
};
Factors factors(Type type) {
  switch (type) {
    case Type::Q8_0:
    case Type::Q5_0:
      return {0, -1};
    case Type::Q4_K:
      return {0, 2};
    case Type::Q6_K:
      return {208, -1};
    default:
      return {};
  }
}

std::vector<Type> computable() {
  std::vector<Type> types;
  quant::Codecs::each([&]<typename Codec>() { types.push_back(Codec::type); });
  return types;
}

std::vector<Type> block_formats() {
  std::vector<Type> types = computable();
  std::erase_if(types, [](Type type) { return type_info(type).act == ActFormat::none; });
  return types;
}

void put_u16(uint8_t* at, uint16_t value) { std::memcpy(at, &value, 2); }

/// One matmul's data. Weights start at an odd address; the output is surrounded by untouched sentinels.
struct Case {
  Type type;
  int64_t in, out;
  int rows;
  std::vector<uint8_t> storage;
  std::vector<float> x, scale;
  std::vector<int8_t> q;
  std::vector<int16_t> sums;

  Case(Type t, int64_t in_, int64_t out_, int rows_, uint64_t seed)
      : type(t), in(in_), out(out_), rows(rows_) {
    const TypeInfo& info = type_info(type);
    storage.resize(1 + row_bytes() * static_cast<uint64_t>(out));
    for (size_t i = 1; i < storage.size(); ++i) storage[i] = static_cast<uint8_t>(random_u64(seed, i));
    set_weights(seed);
    x.resize(static_cast<size_t>(rows * in));
    for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(random_unit(seed + 1, i) - 0.5);
    if (info.act != ActFormat::none) set_activations(seed + 2, 127);
  }

  uint64_t row_bytes() const { return type_info(type).bytes(static_cast<uint64_t>(in)); }
  uint8_t* weights() { return storage.data() + 1; }
  const uint8_t* weights() const { return storage.data() + 1; }
  int64_t act_blocks() const { return in / (type_info(type).act == ActFormat::per256 ? 256 : 32); }

  template <typename F>
  void each_block(F&& f) {
    const auto bytes = static_cast<size_t>(type_info(type).block_bytes);
    for (size_t at = 1; at < storage.size(); at += bytes) f(&storage[at]);
  }

  /// Block factors and float weights of ordinary size and both signs.
  void set_weights(uint64_t seed) {
    uint64_t n = 0;
    each_block([&](uint8_t* block) {
      const auto value = static_cast<float>(random_unit(seed + 3, n++) - 0.5);
      if (type == Type::F32) std::memcpy(block, &value, 4);
      if (type == Type::F16) put_u16(block, f32_to_f16(value));
      if (type == Type::BF16) put_u16(block, f32_to_bf16(value));
      set_factors(block, f32_to_f16(value * 0.1f), f32_to_f16(value * -0.3f));
    });
  }
  void set_factors(uint8_t* block, uint16_t d, uint16_t dmin) {
    if (factors(type).d >= 0) put_u16(block + factors(type).d, d);
    if (factors(type).dmin >= 0) put_u16(block + factors(type).dmin, dmin);
  }

  void set_activations(uint64_t seed, int magnitude) {
    q.resize(static_cast<size_t>(rows * in));
    for (size_t i = 0; i < q.size(); ++i)
      q[i] = static_cast<int8_t>(static_cast<int>(random_u64(seed, i) % (2 * magnitude + 1)) - magnitude);
    scale.resize(static_cast<size_t>(rows * act_blocks()));
    for (size_t i = 0; i < scale.size(); ++i) scale[i] = static_cast<float>(random_unit(seed + 1, i) * 0.01);
    set_sums();
  }
  void set_sums() {
    sums.assign(q.size() / 32, 0);
    for (size_t i = 0; i < q.size(); ++i) sums[i / 32] = static_cast<int16_t>(sums[i / 32] + q[i]);
  }

  MatmulTask task() const {
    MatmulTask t;
    t.weight = weights(), t.row_bytes = row_bytes(), t.in = in, t.out_end = out, t.n = rows;
    t.act = {q.data(), scale.data(), sums.data(), in, rows, type_info(type).act};
    t.x = x.data();
    return t;
  }

  std::vector<float> run(const MatmulKernels& kernels) const {
    std::vector<float> y(static_cast<size_t>(rows * out), -77.0f);
    MatmulTask t = task();
    t.y = y.data(), t.y_stride = out;
    kernels.matmul(type)(t);
    return y;
  }
};

testing::AssertionResult same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  for (size_t i = 0; i < a.size(); ++i)
    if (std::bit_cast<uint32_t>(a[i]) != std::bit_cast<uint32_t>(b[i]) &&
        !(std::isnan(a[i]) && std::isnan(b[i])))
      return testing::AssertionFailure() << "element " << i << ": " << a[i] << " and " << b[i];
  return testing::AssertionSuccess();
}

/// The integers of a row: decoded with d = 1, dmin = 0 (totals) or d = 0, dmin = 1 (minus the minima).
std::vector<float> row_integers(const Case& c, int64_t o, uint16_t d, uint16_t dmin) {
  Case copy = c;
  copy.each_block([&](uint8_t* block) { copy.set_factors(block, d, dmin); });
  std::vector<float> v(static_cast<size_t>(c.in));
  type_info(c.type).decode(copy.weights() + static_cast<uint64_t>(o) * c.row_bytes(), v.data(), c.in);
  return v;
}

/// docs/arithmetic.md, block products, from decoded integers.
float reference_block_dot(const Case& c, int64_t o, int64_t row) {
  const int64_t elements = type_info(c.type).block_elements;
  const std::vector<float> level = row_integers(c, o, 0x3c00, 0), minimum = row_integers(c, o, 0, 0x3c00);
  std::vector<float> segments;
  float acc = 0;
  for (int64_t i = 0; i < c.in; i += elements) {
    int32_t total = 0, minima = 0;
    for (int64_t j = i; j < i + elements; ++j) {
      const int a = c.q[static_cast<size_t>(row * c.in + j)];
      total += static_cast<int32_t>(level[static_cast<size_t>(j)]) * a;
      minima -= static_cast<int32_t>(minimum[static_cast<size_t>(j)]) * a;
    }
    const uint8_t* block = c.weights() + static_cast<uint64_t>(o) * c.row_bytes() +
                           static_cast<uint64_t>(i / elements * type_info(c.type).block_bytes);
    const float da = c.scale[static_cast<size_t>(row * c.act_blocks() + i / elements)];
    const Factors at = factors(c.type);
    uint16_t half;
    std::memcpy(&half, block + at.d, 2);
    acc = std::fma(f16_to_f32(half) * da, static_cast<float>(total), acc);
    if (at.dmin >= 0) {
      std::memcpy(&half, block + at.dmin, 2);
      acc = std::fma(-(f16_to_f32(half) * da), static_cast<float>(minima), acc);
    }
    if ((i + elements) % 2048 == 0 || i + elements == c.in) segments.push_back(acc), acc = 0;
  }
  return std::accumulate(segments.begin() + 1, segments.end(), segments[0]);
}

/// docs/arithmetic.md, float dots.
float reference_float_dot(const Case& c, int64_t o, int64_t row) {
  std::vector<float> w(static_cast<size_t>(c.in));
  type_info(c.type).decode(c.weights() + static_cast<uint64_t>(o) * c.row_bytes(), w.data(), c.in);
  std::vector<float> segments;
  for (size_t begin = 0; begin < w.size(); begin += 512) {
    std::vector<float> p(32, 0.0f);
    for (size_t i = begin; i < std::min(begin + 512, w.size()); ++i)
      p[i % 32] = std::fma(w[i], c.x[static_cast<size_t>(row * c.in) + i], p[i % 32]);
    while (p.size() > 1) {
      for (size_t j = 0; j < p.size() / 2; ++j) p[j] += p[j + p.size() / 2];
      p.resize(p.size() / 2);
    }
    segments.push_back(p[0]);
  }
  return std::accumulate(segments.begin() + 1, segments.end(), segments[0]);
}

/// In double, from decoded weights: no knowledge of the order of additions. Also the sum of magnitudes.
std::pair<double, double> double_dot(const Case& c, int64_t o, int64_t row) {
  std::vector<float> w(static_cast<size_t>(c.in));
  type_info(c.type).decode(c.weights() + static_cast<uint64_t>(o) * c.row_bytes(), w.data(), c.in);
  const bool floats = type_info(c.type).act == ActFormat::none;
  const int64_t act_block = c.in / c.act_blocks();
  double sum = 0, magnitude = 0;
  for (int64_t i = 0; i < c.in; ++i) {
    const auto at = static_cast<size_t>(row * c.in + i);
    const double a =
        floats ? c.x[at]
               : double(c.q[at]) * c.scale[static_cast<size_t>(row * c.act_blocks() + i / act_block)];
    sum += w[static_cast<size_t>(i)] * a, magnitude += std::abs(w[static_cast<size_t>(i)] * a);
  }
  return {sum, magnitude};
}

std::vector<int64_t> widths(Type type) {
  const int elements = type_info(type).block_elements;
  if (elements == 256) return {256, 512, 1792, 2048, 2304, 4096, 4864};
  if (elements == 32) return {32, 96, 1024, 2048, 2080, 4096, 4640};
  return {1, 2, 31, 32, 33, 100, 511, 512, 513, 544, 1024, 2065};
}

class MatmulFormats : public testing::TestWithParam<Type> {
 protected:
  Type type() const { return GetParam(); }
  bool floats() const { return type_info(type()).act == ActFormat::none; }
  void SetUp() override {
    if (processor_has_avx2()) sets_.push_back(&avx2_matmul_kernels());
    if (processor_has_vnni()) sets_.push_back(&vnni_matmul_kernels());
  }
  std::vector<const MatmulKernels*> sets_ = {&scalar_matmul_kernels()};  ///< all that run here, scalar first

  void all_agree(const Case& c, const std::string& what) {
    const std::vector<float> expected = c.run(scalar_matmul_kernels());
    for (const MatmulKernels* kernels : sets_)
      EXPECT_TRUE(same_bits(c.run(*kernels), expected)) << kernels->isa << ": " << what;
  }
};
class MatmulBlockFormats : public MatmulFormats {};
class MatmulFloatFormats : public MatmulFormats {};

std::string format_name(const testing::TestParamInfo<Type>& param) { return type_info(param.param).name; }
INSTANTIATE_TEST_SUITE_P(All, MatmulFormats, testing::ValuesIn(computable()), format_name);
INSTANTIATE_TEST_SUITE_P(All, MatmulBlockFormats, testing::ValuesIn(block_formats()), format_name);
INSTANTIATE_TEST_SUITE_P(All, MatmulFloatFormats, testing::Values(Type::F32, Type::F16, Type::BF16),
                         format_name);

TEST_P(MatmulFormats, ScalarFollowsTheWrittenArithmeticBitForBit) {
  for (int64_t in : widths(type())) {
    const Case c(type(), in, 3, 2, 11);
    const std::vector<float> y = c.run(scalar_matmul_kernels());
    for (int64_t row = 0; row < 2; ++row)
      for (int64_t o = 0; o < 3; ++o) {
        const float expected = floats() ? reference_float_dot(c, o, row) : reference_block_dot(c, o, row);
        EXPECT_EQ(y[static_cast<size_t>(row * 3 + o)], expected) << in << " " << row << " " << o;
      }
  }
}

TEST_P(MatmulFormats, ResultsAreNearTheDoubleDotOfDecodedWeights) {
  for (const MatmulKernels* kernels : sets_) {
    const Case c(type(), widths(type()).back(), 9, 2, 12);
    const std::vector<float> y = c.run(*kernels);
    for (int64_t row = 0; row < 2; ++row)
      for (int64_t o = 0; o < 9; ++o) {
        const auto [sum, magnitude] = double_dot(c, o, row);
        EXPECT_NEAR(y[static_cast<size_t>(row * 9 + o)], sum, 2e-6 * magnitude) << kernels->isa;
      }
  }
}

TEST_P(MatmulFormats, EverySetGivesTheSameBitsAtEveryWidthAndRowCount) {
  for (int64_t in : widths(type())) all_agree(Case(type(), in, 11, 5, 13), "in " + std::to_string(in));
  for (int rows = 1; rows <= 17; ++rows)
    all_agree(Case(type(), widths(type())[4], 19, rows, 14), "rows " + std::to_string(rows));
}

TEST_P(MatmulFormats, EverySetGivesTheSameBitsBeyondOneTile) {
  all_agree(Case(type(), widths(type())[2], 133, 70, 20), "70 rows");
}

TEST_P(MatmulFormats, ARowOfManyEqualsTheRowAlone) {
  const Case c(type(), widths(type())[4], 10, 17, 15);
  for (const MatmulKernels* kernels : sets_) {
    const std::vector<float> together = c.run(*kernels);
    for (int row = 0; row < c.rows; ++row) {
      std::vector<float> alone(10);
      MatmulTask t = c.task();
      const int32_t first = row, zero = 0;
      t.n = 1, t.x_index = &first, t.y_index = &zero, t.y = alone.data(), t.y_stride = 10;
      kernels->matmul(type())(t);
      EXPECT_TRUE(same_bits(alone, {together.begin() + 10 * row, together.begin() + 10 * row + 10}))
          << kernels->isa << " row " << row;
    }
  }
}

TEST_P(MatmulFormats, IndicesAndRangesSelectRowsAndLeaveTheRestUntouched) {
  const Case c(type(), widths(type())[1], 29, 8, 16);
  const std::vector<float> all = c.run(scalar_matmul_kernels());
  const std::vector<int32_t> x_index = {7, 0, 3, 3, 5}, y_index = {4, 1, 0, 6, 2};
  const int64_t stride = 33;
  for (const MatmulKernels* kernels : sets_)
    for (const auto& [begin, end] :
         {std::pair<int64_t, int64_t>{0, 1}, {3, 20}, {5, 13}, {21, 29}, {28, 29}, {4, 4}})
      for (int n = 1; n <= 5; ++n) {
        std::vector<float> y(static_cast<size_t>(8 * stride), -77.0f), expected = y;
        for (int i = 0; i < n; ++i)
          for (int64_t o = begin; o < end; ++o)
            expected[static_cast<size_t>(y_index[static_cast<size_t>(i)] * stride + o)] =
                all[static_cast<size_t>(x_index[static_cast<size_t>(i)] * 29 + o)];
        MatmulTask t = c.task();
        t.n = n, t.out_begin = begin, t.out_end = end, t.y = y.data(), t.y_stride = stride;
        t.x_index = x_index.data(), t.y_index = y_index.data();
        kernels->matmul(type())(t);
        EXPECT_TRUE(same_bits(y, expected)) << kernels->isa << " " << begin << " " << end << " n " << n;
      }
}

TEST_P(MatmulFormats, WeightsMayLieAnywhere) {
  const Case c(type(), widths(type())[3], 9, 3, 17);
  const std::vector<float> expected = c.run(scalar_matmul_kernels());
  for (const MatmulKernels* kernels : sets_)
    for (size_t shift = 0; shift < 34; shift += 3) {
      // Exactly as long as the weights, so that a sanitizer sees a read beyond them.
      std::vector<uint8_t> moved(shift + c.storage.size() - 1);
      std::copy(c.storage.begin() + 1, c.storage.end(), moved.begin() + static_cast<std::ptrdiff_t>(shift));
      std::vector<float> y(27);
      MatmulTask t = c.task();
      t.weight = moved.data() + shift, t.y = y.data(), t.y_stride = 9;
      kernels->matmul(type())(t);
      EXPECT_TRUE(same_bits(y, expected)) << kernels->isa << " shift " << shift;
    }
}

TEST_P(MatmulBlockFormats, ExtremeLevelsAndActivationsDoNotSaturate) {
  for (int byte : {0x00, 0x80, 0xff, 0x7f, 0x88, 0x77})
    for (int sign : {1, -1, 0}) {
      Case c(type(), 2 * type_info(type()).block_elements, 9, 9, 18);
      std::fill(c.storage.begin() + 1, c.storage.end(), static_cast<uint8_t>(byte));
      c.each_block([&](uint8_t* block) { c.set_factors(block, 0x3c00, 0x3800); });
      for (size_t i = 0; i < c.q.size(); ++i)
        c.q[i] = static_cast<int8_t>(sign ? 127 * sign : i % 2 ? 127 : -127);
      c.set_sums();
      const float expected = reference_block_dot(c, 0, 0);
      EXPECT_EQ(c.run(scalar_matmul_kernels())[0], expected);
      all_agree(c, "byte " + std::to_string(byte) + " sign " + std::to_string(sign));
    }
}

TEST_P(MatmulBlockFormats, ExtremeFactorsGiveTheSameBits) {
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  for (uint16_t d : {0x0000, 0x8000, 0x0001, 0x83ff, 0x7bff, 0xfbff, 0x7c00, 0xfc00, 0x7e00})
    for (uint16_t dmin : {0x0000, 0x0001, 0x7bff, 0xfc00})
      for (float da : {0.0f, 0x1p-149f, 0x1p-126f, 3e38f, -1.5f, inf, nan}) {
        Case c(type(), 2 * type_info(type()).block_elements, 9, 2, 19);
        c.each_block([&](uint8_t* block) { c.set_factors(block, d, dmin); });
        for (size_t i = 0; i < c.scale.size(); i += 2) c.scale[i] = da;
        all_agree(c, fmt::format("d {:x} dmin {:x} da {}", d, dmin, da));
      }
}

TEST_P(MatmulFloatFormats, FloatDotsKeepSignedZerosSubnormalsAndInfinities) {
  const float inf = std::numeric_limits<float>::infinity();
  const std::vector<float> values = {0.0f, -0.0f, 0x1p-149f, -0x1p-140f, 0x1p-75f, 1.0f, -1.0f, 3e38f};
  for (int64_t in : {1, 7, 33, 70, 513})
    for (uint64_t seed = 0; seed < 30; ++seed) {
      Case c(type(), in, 5, 4, seed);
      const size_t kinds = seed % 3 == 0 ? 5 : values.size();
      for (size_t i = 0; i < c.x.size(); ++i) c.x[i] = values[random_u64(seed, i) % kinds];
      if (seed % 7 == 6) c.x[0] = inf;
      if (seed % 3 == 0 && type() != Type::F16) {  // products that vanish, with either sign
        uint64_t n = 0;
        c.each_block([&](uint8_t* block) {
          const float w = values[1 + random_u64(seed + 9, n++) % 4];
          if (type() == Type::F32) std::memcpy(block, &w, 4);
          if (type() == Type::BF16) put_u16(block, f32_to_bf16(w));
        });
      }
      const std::vector<float> y = c.run(scalar_matmul_kernels());
      for (int64_t row = 0; row < 4; ++row)
        EXPECT_TRUE(same_bits({y[static_cast<size_t>(row * 5)]}, {reference_float_dot(c, 0, row)}));
      all_agree(c, fmt::format("in {} seed {}", in, seed));
    }
}

TEST(MatmulKernelTables, HaveEveryCodecAndNothingElse) {
  for (const MatmulKernels* kernels :
       {&scalar_matmul_kernels(), &avx2_matmul_kernels(), &vnni_matmul_kernels()}) {
    for (Type type : computable()) EXPECT_NE(kernels->matmul(type), nullptr);
    EXPECT_EQ(kernels->matmul(Type::Q2_K), nullptr);
  }
}

TEST(MatmulKernelTables, Avx2HasKernelsOfItsOwnForEveryCodec) {
  for (Type type : computable())
    EXPECT_NE(avx2_matmul_kernels().matmul(type), scalar_matmul_kernels().matmul(type))
        << type_info(type).name;
}

}  // namespace
}  // namespace weir::cpu
