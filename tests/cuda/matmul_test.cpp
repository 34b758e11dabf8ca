// Matmul on the CUDA device has the CPU's bits: every format, width, number of outputs and of rows, with and
// without the norm and the sum, several weights at once, and values that are anything but ordinary.
#include <fmt/core.h>

#include "cuda/conformance.h"
#include "device/cuda/cuda_device.h"

namespace weir {
namespace {

struct Shape {
  int64_t in = 0;
  std::vector<int64_t> outs;  ///< a target each
  std::vector<int> rows;
  bool norm = false, add = false;
  unsigned biased = 0;  ///< targets with a bias, a bit each
};

class CudaMatmul : public CudaTest, public testing::WithParamInterface<Type> {
 protected:
  Type type() const { return GetParam(); }

  static ScratchNeeds needs(int rows, const Shape& shape) {
    ScratchNeeds n;
    n.rows = rows, n.max_in = shape.in;
    for (int64_t out : shape.outs) n.hidden = std::max(n.hidden, out);  // of the sums
    return n;
  }

  /// The CPU's results of the most rows; every call of fewer must give their first rows.
  void check(const Shape& shape, const std::vector<Type>& types, const Floats& x) {
    const int most = *std::max_element(shape.rows.begin(), shape.rows.end());
    reserve(needs(most, shape));
    std::vector<RandomMatrix> weights;
    std::vector<Floats> before, biases;
    for (size_t t = 0; t < shape.outs.size(); ++t) {
      weights.emplace_back(types[t % types.size()], shape.in, shape.outs[t], 31 + t);
      before.push_back(shape.add ? random_floats(static_cast<size_t>(most * shape.outs[t]), 77 + t)
                                 : Floats(static_cast<size_t>(most * shape.outs[t]), kNaN));
      const bool biased = shape.biased >> t & 1;
      biases.push_back(biased ? random_floats(static_cast<size_t>(shape.outs[t]), 55 + t) : Floats{});
    }
    const Floats norm = shape.norm ? random_floats(static_cast<size_t>(shape.in), 5) : Floats{};
    const auto run = [&](Device& device, int rows) {
      Bench bench(device);
      std::vector<MatmulTarget> targets;
      for (size_t t = 0; t < weights.size(); ++t)
        targets.push_back({bench.put(weights[t]), bench.put(first_rows(before[t], rows, shape.outs[t])),
                           shape.add, bench.put_if(biases[t])});
      MatmulArgs args;
      args.x = bench.put(first_rows(x, rows, shape.in)), args.rows = rows, args.targets = targets;
      args.norm = bench.put_if(norm), args.eps = 1e-6f;
      device.matmul(args);
      std::vector<Floats> out;
      for (size_t t = 0; t < targets.size(); ++t)
        out.push_back(bench.get(targets[t].out, static_cast<size_t>(rows * shape.outs[t])));
      return out;
    };
    const std::vector<Floats> expected = run(*cpu_, most);
    for (int rows : shape.rows) {
      const std::vector<Floats> got = run(*cuda_, rows);
      for (size_t t = 0; t < got.size(); ++t)
        expect_same(got[t], first_rows(expected[t], rows, shape.outs[t]),
                    fmt::format("{} x {} of {}, {} rows, target {}{}{}", shape.in, shape.outs[t],
                                type_info(types[t % types.size()]).name, rows, t, shape.norm ? ", norm" : "",
                                shape.add ? ", add" : "") +
                        (biases[t].empty() ? "" : ", bias"));
    }
  }
  void check(const Shape& shape) {
    const int most = *std::max_element(shape.rows.begin(), shape.rows.end());
    check(shape, {type()}, random_floats(static_cast<size_t>(most * shape.in), 3));
  }

  std::vector<int64_t> widths() const {
    const int elements = type_info(type()).block_elements;
    if (elements == 256) return {256, 512, 768, 2048, 2304, 4096, 4352};
    if (elements == 32) return {32, 96, 256, 768, 2048, 2080, 2304, 4096};
    return {1, 2, 31, 33, 96, 512, 513, 768, 2048, 2304};
  }
  int64_t ordinary_width() const { return type_info(type()).block_elements == 256 ? 512 : 416; }
};

TEST_P(CudaMatmul, HasTheCpusBitsAtEveryWidth) {
  bool odd = false;
  for (int64_t in : widths()) {
    odd = !odd;
    check({in, {17}, {1, 4, 33}, odd, !odd});
    check({in, {17}, {1, 16}, !odd, !odd});
  }
}

/// A wrong bit of the sum of squares seldom shows behind its root: many rows, of values far apart.
TEST_P(CudaMatmul, TheNormInsideHasTheCpusBits) {
  for (int64_t in : widths())
    for (uint64_t seed = 0; seed < 8; ++seed) {
      Floats x = random_floats(static_cast<size_t>(in), 200 + seed);
      for (float& v : x) v *= v * v * v;
      check({in, {3}, {1}, true, false}, {type()}, x);
    }
}

TEST_P(CudaMatmul, HasTheCpusBitsAtEveryNumberOfOutputs) {
  for (int64_t out : {1, 15, 16, 17, 100, 512}) {
    check({ordinary_width(), {out}, {1, 3, 17}, false, true});
    check({ordinary_width(), {out}, {1, 9, 64}, true, false});
  }
}

TEST_P(CudaMatmul, AnyNumberOfRowsHasTheBitsOfEachRowAlone) {
  check({ordinary_width(), {40}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}, true, true});
  check({ordinary_width(), {40}, {2, 7, 8, 16, 17, 33, 64, 65, 100}, false, false});
}

TEST_P(CudaMatmul, SeveralWeightsOverOneInput) {
  const Type other = type() == Type::Q6_K ? Type::Q4_K : Type::Q6_K;
  const Floats x = random_floats(33 * 512, 9);
  for (bool norm : {false, true}) {
    check({512, {100, 17, 16}, {1, 2, 16, 33}, norm, false}, {type()}, x);
    check({512, {40, 20, 36}, {1, 16, 33}, norm, false}, {type(), type(), other}, x);
    check({512, {16, 15}, {1, 5}, norm, true}, {other, type()}, x);
  }
}

TEST_P(CudaMatmul, BiasesHaveTheCpusBits) {
  const Type other = type() == Type::Q6_K ? Type::Q4_K : Type::Q6_K;
  const Floats x = random_floats(33 * 512, 9);
  for (const unsigned biased : {7u, 2u, 5u}) {
    check({512, {300, 17, 16}, {1, 2, 16, 33}, true, false, biased}, {type()}, x);
    check({512, {16, 257, 15}, {1, 5, 33}, false, false, biased}, {type(), other, type()}, x);
  }
  check({512, {270}, {1, 4, 16, 33}, false, true, 1}, {type()}, x);
}

TEST_P(CudaMatmul, ABiasIsOneLaunchMoreAndNoneWithout) {
  const RandomMatrix weight(type(), 512, 40, 3);
  const auto launches = [&](std::initializer_list<bool> biased) {
    cuda::CudaDevice device({.arithmetic = Arithmetic::portable});
    device.reserve({.rows = 1, .max_in = 512, .hidden = 512});
    Bench bench(device);
    const float* bias = bench.put(random_floats(40, 4));
    std::vector<MatmulTarget> targets;
    for (const bool b : biased)
      targets.push_back({bench.put(weight), bench.poisoned(40), false, b ? bias : nullptr});
    MatmulArgs args;
    args.x = bench.put(random_floats(512, 5)), args.rows = 1, args.targets = targets;
    const uint64_t before = device.launches();
    device.matmul(args);
    const uint64_t launched = device.launches() - before;
    device.synchronize();
    return launched;
  };
  const uint64_t without = launches({false, false, false});
  EXPECT_EQ(launches({true, true, true}), without + 1);
  EXPECT_EQ(launches({false, true, false}), without + 1);
}

/// Rows of every kind of trouble, and ordinary ones between, which must not notice.
Floats troubled_rows(int rows, int64_t in) {
  Floats x = random_floats(static_cast<size_t>(rows * in), 21);
  for (int r = 0; r < rows; ++r)
    for (int64_t i = 0; i < in; ++i) {
      float& v = x[static_cast<size_t>(r * in + i)];
      switch (r % 10) {
        case 1:
          v = i % 2 ? -0.0f : 0.0f;
          break;
        case 2:
          v *= 1e37f;
          break;
        case 3:
          v *= 1e-42f;  // d is subnormal, or 0
          break;
        case 4:
          if (i == in / 3) v = kNaN;
          break;
        case 5:
          if (i == in - 1) v = -kInfinity;
          break;
        case 6:
          v = i < in / 2 ? 0 : v;
          break;
        case 7:
          v *= 3e-44f;
          break;
        case 8:
          v = i == 0 ? 127 : std::rint(v * 20) + 0.5f;  // quotients that are ties
          break;
        default:
          break;
      }
    }
  return x;
}

TEST_P(CudaMatmul, ZerosHugeTinyAndNonFiniteRowsHaveTheCpusBits) {
  const Floats x = troubled_rows(40, 768);
  for (bool norm : {false, true}) {
    check({768, {18}, {10, 16, 40}, norm, norm}, {type()}, x);
    for (int r = 0; r < 10; ++r)
      check({768, {18}, {1}, norm, !norm}, {type()}, Floats(x.begin() + r * 768, x.begin() + (r + 1) * 768));
  }
}

INSTANTIATE_TEST_SUITE_P(All, CudaMatmul, testing::ValuesIn(computable_formats()), format_name);

}  // namespace
}  // namespace weir
