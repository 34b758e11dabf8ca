// The float kernels: the scalar set against double precision and against the order that docs/arithmetic.md
// gives; AVX2 against scalar bit for bit, at every length around the vector width.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "base/rope_table.h"
#include "device/cpu_cases.h"

namespace weir::cpu {
namespace {

constexpr float inf = std::numeric_limits<float>::infinity();
constexpr float nan = std::numeric_limits<float>::quiet_NaN();
const FloatKernels& plain() { return scalar_float_kernels(); }

std::vector<int64_t> lengths() {
  std::vector<int64_t> n;
  for (int64_t i = 1; i <= 72; ++i) n.push_back(i);
  for (int64_t i : {128, 255, 256, 511, 512, 513, 543, 544, 545, 1024, 1031, 2048, 5000}) n.push_back(i);
  return n;
}

std::vector<uint16_t> halves(const Floats& x) {
  std::vector<uint16_t> h(x.size());
  for (size_t i = 0; i < x.size(); ++i) h[i] = f32_to_f16(x[i]);
  return h;
}

TEST(FloatKernelsScalar, DotAddsInTheDocumentedOrder) {
  // 1e8 swallows ones unless they meet in their own partial sum first.
  Floats a(64, 1.0f), b(64, 1.0f);
  a[0] = 1e8f, a[16] = -1e8f;  // p[0] = 1e8 + 1, p[16] = -1e8 + 1: the ones are lost
  EXPECT_EQ(plain().dot(a.data(), b.data(), 64), 60.0f);
  a[16] = 1.0f, a[32] = -1e8f;  // both in p[0]: 1e8 - 1e8
  EXPECT_EQ(plain().dot(a.data(), b.data(), 64), 62.0f);
  Floats c(1024, 0.0f), d(1024, 1.0f);
  c[0] = 1e8f, c[1] = 1.0f, c[512] = -1e8f;  // segments meet last
  EXPECT_EQ(plain().dot(c.data(), d.data(), 1024), 0.0f);
}

TEST(FloatKernelsScalar, DotAgreesWithDouble) {
  for (int64_t n : lengths()) {
    const Floats a = random_floats(static_cast<size_t>(n), 1), b = random_floats(static_cast<size_t>(n), 2);
    double exact = 0, magnitude = 0;
    for (size_t i = 0; i < a.size(); ++i)
      exact += double{a[i]} * b[i], magnitude += std::fabs(double{a[i]} * b[i]);
    EXPECT_NEAR(plain().dot(a.data(), b.data(), n), exact, 2e-6 * magnitude) << n;
  }
}

TEST(FloatKernelsScalar, RmsNormAgreesWithDouble) {
  const Floats x = random_floats(300, 3), w = random_floats(300, 4);
  Floats y(300), plain_y(300);
  plain().rms_norm(x.data(), w.data(), y.data(), 300, 1e-5f);
  plain().rms_norm(x.data(), nullptr, plain_y.data(), 300, 1e-5f);
  double sum = 0;
  for (float v : x) sum += double{v} * v;
  for (size_t i = 0; i < 300; ++i) {
    const double exact = x[i] / std::sqrt(sum / 300 + 1e-5);
    EXPECT_NEAR(plain_y[i], exact, 1e-6 * std::fabs(exact));
    EXPECT_NEAR(y[i], exact * w[i], 1e-6 * std::fabs(exact));
  }
}

TEST(FloatKernelsScalar, RotationFollowsTheStyle) {
  const float c[] = {0.5f, 1.0f}, s[] = {0.25f, 0.0f};
  Floats neox = {1, 2, 3, 4, 9}, normal = neox;
  plain().rope_neox(neox.data(), c, s, 4);
  plain().rope_normal(normal.data(), c, s, 4);
  EXPECT_EQ(neox, (Floats{0.5f - 0.75f, 2, 0.25f + 1.5f, 4, 9})) << "pairs (0, 2) and (1, 3)";
  EXPECT_EQ(normal, (Floats{0.5f - 0.5f, 0.25f + 1.0f, 3, 4, 9})) << "pairs (0, 1) and (2, 3)";
}

class FloatKernelsAvx2 : public testing::Test {
 protected:
  void SetUp() override {
    if (!processor_has_avx2()) GTEST_SKIP() << "no AVX2 here";
  }
  const FloatKernels& fast() { return avx2_float_kernels(); }
};

TEST_F(FloatKernelsAvx2, DotsEqualScalar) {
  for (int64_t n : lengths()) {
    const Floats a = random_floats(static_cast<size_t>(n), 5), b = random_floats(static_cast<size_t>(n), 6);
    const auto h = halves(b);
    EXPECT_TRUE(same_bits(fast().dot(a.data(), b.data(), n), plain().dot(a.data(), b.data(), n))) << n;
    EXPECT_TRUE(same_bits(fast().dot_f16(a.data(), h.data(), n), plain().dot_f16(a.data(), h.data(), n)))
        << n;
  }
}

TEST_F(FloatKernelsAvx2, DotsKeepTheSignOfZero) {
  // Every product underflows to -0 onto +0: fma gives -0, which a zero added for a missing element would
  // lose.
  for (int64_t n : {1, 31, 32, 33, 40}) {
    const Floats a(static_cast<size_t>(n), -1e-30f), b(static_cast<size_t>(n), 1e-30f);
    EXPECT_TRUE(same_bits(fast().dot(a.data(), b.data(), n), plain().dot(a.data(), b.data(), n))) << n;
  }
}

TEST_F(FloatKernelsAvx2, NormsGatesAndSumsEqualScalar) {
  for (int64_t n : lengths()) {
    const auto size = static_cast<size_t>(n);
    const Floats x = random_floats(size, 7), w = random_floats(size, 8);
    const auto compare = [&](const char* what, auto&& f) {
      Floats got = x, expected = x;
      f(fast(), got.data()), f(plain(), expected.data());
      expect_same(got, expected, std::string(what) + " of " + std::to_string(n));
    };
    compare("rms_norm", [&](const FloatKernels& k, float* y) { k.rms_norm(y, w.data(), y, n, 1e-6f); });
    compare("rms_norm, no weight",
            [&](const FloatKernels& k, float* y) { k.rms_norm(y, nullptr, y, n, 1e-6f); });
    compare("swiglu", [&](const FloatKernels& k, float* y) { k.swiglu(y, w.data(), y, n); });
    compare("add", [&](const FloatKernels& k, float* y) { k.add(y, w.data(), n); });
    compare("axpy", [&](const FloatKernels& k, float* y) { k.axpy(0.3f, w.data(), y, n); });
    compare("exp_minus", [&](const FloatKernels& k, float* y) { k.exp_minus(y, 0.7f, y, n); });
    const auto n_rot = static_cast<int>(n / 2 * 2);
    const Floats c = random_floats(size, 9), s = random_floats(size, 10);
    compare("rope_neox", [&](const FloatKernels& k, float* y) { k.rope_neox(y, c.data(), s.data(), n_rot); });
    compare("rope_normal",
            [&](const FloatKernels& k, float* y) { k.rope_normal(y, c.data(), s.data(), n_rot); });
  }
}

/// Floats of every exponent, both signs, with the specials among them.
Floats all_magnitudes(uint64_t step) {
  Floats x = {0.0f, -0.0f, inf, -inf, nan, 88.722839f, 88.72284f, -103.97f, -104.0f, 0.625f, -0.625f};
  for (uint64_t bits = 0; bits < uint64_t{1} << 32; bits += step)
    x.push_back(std::bit_cast<float>(static_cast<uint32_t>(bits)));
  return x;
}

void expect_functions_equal(const Floats& x) {
  for (Elementwise f : {Elementwise::exp, Elementwise::sigmoid, Elementwise::silu, Elementwise::tanh,
                        Elementwise::softplus}) {
    Floats got(x.size()), expected(x.size());
    avx2_float_kernels().apply(f, x.data(), got.data(), static_cast<int64_t>(x.size()));
    plain().apply(f, x.data(), expected.data(), static_cast<int64_t>(x.size()));
    expect_same(got, expected, "function " + std::to_string(static_cast<int>(f)));
  }
}

TEST_F(FloatKernelsAvx2, ElementaryFunctionsEqualScalar) { expect_functions_equal(all_magnitudes(4099)); }

class FloatKernelsSlow : public FloatKernelsAvx2 {};
TEST_F(FloatKernelsSlow, ElementaryFunctionsEqualScalarDensely) {
  expect_functions_equal(all_magnitudes(127));
}

TEST_F(FloatKernelsAvx2, HalfConversionEqualsScalar) {
  const Floats x = all_magnitudes(65521);
  std::vector<uint16_t> got(x.size()), expected(x.size());
  fast().to_f16(x.data(), got.data(), static_cast<int64_t>(x.size()));
  plain().to_f16(x.data(), expected.data(), static_cast<int64_t>(x.size()));
  for (size_t i = 0; i < x.size(); ++i) {
    if (!std::isnan(x[i])) {
      ASSERT_EQ(got[i], expected[i]) << x[i];
    }
  }
}

/// Two heads of `head_dim` over random keys and values at positions [first, last].
struct HeadsCase {
  int head_dim;
  int64_t first, last;
  Floats q, keys, values, sinks = {0.5f, -0.5f};
  bool with_sinks = false;

  HeadsCase(int dim, int64_t begin, int64_t end) : head_dim(dim), first(begin), last(end) {
    const auto d = static_cast<size_t>(dim), n = static_cast<size_t>(end + 1);
    q = random_floats(2 * d, 11), keys = random_floats(n * d, 12), values = random_floats(n * d, 13);
  }
  Floats run(const FloatKernels& kernels) const {
    const auto k = halves(keys), v = halves(values);
    Floats out(q.size()), scratch(static_cast<size_t>(attend_scratch_floats(2, head_dim)));
    AttendTask task;
    task.q = q.data(), task.k = k.data(), task.v = v.data(), task.stride = head_dim;
    task.first = first, task.last = last, task.heads = 2, task.head_dim = head_dim, task.scale = 0.25f;
    task.sinks = with_sinks ? sinks.data() : nullptr;
    task.out = out.data(), task.scratch = scratch.data();
    kernels.attend_heads(task);
    return out;
  }
};

TEST_F(FloatKernelsAvx2, AttentionEqualsScalar) {
  for (int head_dim : {8, 20, 32, 64, 72, 80, 96, 128, 256, 576})
    for (int64_t last : {0, 1, 6, 7, 8, 254, 255, 256, 519})
      for (const bool half : {false, true}) {
        HeadsCase c(head_dim, half ? last / 2 : 0, last);
        c.with_sinks = half;
        expect_same(c.run(fast()), c.run(plain()), std::to_string(head_dim) + " x " + std::to_string(last));
      }
}

TEST_F(FloatKernelsAvx2, AttentionOverBadScoresEqualsScalar) {
  for (const float bad : {nan, inf, -inf})
    for (size_t at : {0, 3, 200, 299}) {
      HeadsCase c(32, 0, 299);
      std::fill(c.q.begin(), c.q.end(), 1.0f);
      std::fill_n(c.keys.begin() + static_cast<long>(at) * 32, 32, bad);
      const Floats got = c.run(fast());
      expect_same(got, c.run(plain()), std::to_string(bad));
      EXPECT_EQ(std::isnan(got[0]), bad != -inf) << bad << ": a key of -inf has weight 0, others spread";
    }
}

}  // namespace
}  // namespace weir::cpu
