// The elementary functions against double precision: the bounds that docs/arithmetic.md states, on every
// 1021st float here and on all from 2^-26 to 256 in the slow suite, and the values at the edges.
#include "base/arithmetic.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <vector>

#include "base/thread_team.h"

namespace weir {
namespace {

constexpr float inf = std::numeric_limits<float>::infinity();
constexpr float nan = std::numeric_limits<float>::quiet_NaN();

struct Function {
  const char* name;
  float (*f)(float);
  double (*exact)(double);
  double bound;     ///< units in the last place of the exact value; in docs/arithmetic.md
  double tiny = 0;  ///< or this many 2^-149, where it is documented
};

void PrintTo(const Function& f, std::ostream* os) { *os << f.name; }

double exact_sigmoid(double x) { return x < 0 ? std::exp(x) / (1 + std::exp(x)) : 1 / (1 + std::exp(-x)); }

const Function functions[] = {
    {"exp", [](float x) { return exp_f32(x); }, [](double x) { return std::exp(x); }, 1.05},
    {"sigmoid", [](float x) { return sigmoid_f32(x); }, exact_sigmoid, 2.4},
    {"silu", [](float x) { return silu_f32(x); }, [](double x) { return x * exact_sigmoid(x); }, 2.9, 100},
    {"tanh", [](float x) { return tanh_f32(x); }, [](double x) { return std::tanh(x); }, 1.6},
    {"softplus", [](float x) { return softplus_f32(x); },
     [](double x) { return std::fmax(x, 0) + std::log1p(std::exp(-std::fabs(x))); }, 2.8},
};

/// Distance in units of the last place of a float near `exact` (2^-149 where that is subnormal).
double ulps(float got, double exact) {
  const double biggest = std::numeric_limits<float>::max();
  if (std::isinf(got))
    return std::fabs(exact) > biggest && std::signbit(got) == std::signbit(exact) ? 0 : HUGE_VAL;
  if (exact == 0) return got == 0 ? 0 : HUGE_VAL;
  const int exponent = std::max(std::ilogb(exact), -126);
  return std::fabs(static_cast<double>(got) - exact) / std::ldexp(1.0, exponent - 23);
}

double worst(const Function& function, uint64_t first, uint64_t last, uint64_t step, float* where) {
  double most = 0;
  for (uint64_t bits = first; bits < last; bits += step) {
    const float x = std::bit_cast<float>(static_cast<uint32_t>(bits));
    if (!std::isfinite(x)) continue;
    const float got = function.f(x);
    const double exact = function.exact(static_cast<double>(x));
    if (std::fabs(static_cast<double>(got) - exact) <= function.tiny * 0x1p-149) continue;
    const double error = ulps(got, exact);
    if (!(error <= most)) most = error, *where = x;
  }
  return most;
}

class Arithmetic : public testing::TestWithParam<Function> {};
INSTANTIATE_TEST_SUITE_P(Functions, Arithmetic, testing::ValuesIn(functions),
                         [](const auto& test) { return std::string(test.param.name); });

TEST_P(Arithmetic, ErrorStaysWithinItsBound) {
  float where = 0;
  const double most = worst(GetParam(), 0, uint64_t{1} << 32, 1021, &where);
  RecordProperty("ulps", std::to_string(most));
  EXPECT_LE(most, GetParam().bound) << "at " << where;
  EXPECT_GT(most, GetParam().bound / 3) << "the bound says nothing";
}

class ArithmeticSlow : public Arithmetic {};
INSTANTIATE_TEST_SUITE_P(Functions, ArithmeticSlow, testing::ValuesIn(functions),
                         [](const auto& test) { return std::string(test.param.name); });

TEST_P(ArithmeticSlow, EveryFloatFromTinyTo256StaysWithinTheBound) {
  const uint64_t first = std::bit_cast<uint32_t>(0x1p-26f), last = std::bit_cast<uint32_t>(256.0f);
  ThreadTeam team(2);
  double most[2] = {};
  float where[2] = {};
  team.run(2, 1, [&](int64_t m, int64_t, int) {
    const uint64_t sign = static_cast<uint64_t>(m) << 31;
    most[m] = worst(GetParam(), sign + first, sign + last, 1, &where[m]);
  });
  const int m = most[1] > most[0];
  printf("%s: %.3f ulp at %.9g\n", GetParam().name, most[m], static_cast<double>(where[m]));
  EXPECT_LE(most[m], GetParam().bound) << "at " << where[m];
}

TEST_P(Arithmetic, NanGivesNan) { EXPECT_TRUE(std::isnan(GetParam().f(nan))); }

TEST(ArithmeticEdges, ExpIsExactAtZeroAndRightAtTheEnds) {
  EXPECT_EQ(exp_f32(0.0f), 1.0f);
  EXPECT_EQ(exp_f32(-0.0f), 1.0f);
  EXPECT_EQ(exp_f32(inf), inf);
  EXPECT_EQ(exp_f32(-inf), 0.0f);
  EXPECT_EQ(exp_f32(1e-30f), 1.0f);
  EXPECT_EQ(exp_f32(88.722839f), static_cast<float>(std::exp(static_cast<double>(88.722839f))));
  EXPECT_EQ(exp_f32(88.72284f), inf);
  EXPECT_EQ(exp_f32(3e38f), inf);
  EXPECT_EQ(exp_f32(-3e38f), 0.0f);
  EXPECT_EQ(exp_f32(-103.9f), std::numeric_limits<float>::denorm_min());
  EXPECT_EQ(exp_f32(-104.0f), 0.0f);
  EXPECT_EQ(exp_f32(-95.0f), static_cast<float>(std::exp(-95.0))) << "gradual underflow";
}

TEST(ArithmeticEdges, SigmoidSiluTanhAndSoftplusAtTheEnds) {
  EXPECT_EQ(sigmoid_f32(0.0f), 0.5f);
  EXPECT_EQ(sigmoid_f32(inf), 1.0f);
  EXPECT_EQ(sigmoid_f32(-inf), 0.0f);
  EXPECT_GT(sigmoid_f32(-100.0f), 0.0f) << "gradual underflow";
  EXPECT_EQ(silu_f32(0.0f), 0.0f);
  EXPECT_EQ(silu_f32(inf), inf);
  EXPECT_TRUE(std::isnan(silu_f32(-inf))) << "a non-finite activation is not hidden";
  EXPECT_EQ(silu_f32(50.0f), 50.0f);
  EXPECT_EQ(tanh_f32(inf), 1.0f);
  EXPECT_EQ(tanh_f32(-inf), -1.0f);
  EXPECT_EQ(tanh_f32(20.0f), 1.0f);
  EXPECT_EQ(std::signbit(tanh_f32(-0.0f)), true);
  EXPECT_EQ(tanh_f32(1e-40f), 1e-40f);
  EXPECT_EQ(softplus_f32(inf), inf);
  EXPECT_EQ(softplus_f32(-inf), 0.0f);
  EXPECT_EQ(softplus_f32(100.0f), 100.0f);
  EXPECT_GT(softplus_f32(-100.0f), 0.0f);
}

TEST(ArithmeticEdges, SigmoidIsMonotonic) {
  // Not a theorem for a rounded quotient: checked where routing and gates live.
  float before = 0;
  for (float x = -20; x < 20; x += 0.0009765625f) {
    const float y = sigmoid_f32(x);
    EXPECT_GE(y, before) << x;
    before = y;
  }
}

}  // namespace
}  // namespace weir
