// matmul and route on the CPU: against double precision, bitwise across instruction sets, threads and rows.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "device/cpu_cases.h"

namespace weir {
namespace {

constexpr float inf = std::numeric_limits<float>::infinity();
constexpr float nan = std::numeric_limits<float>::quiet_NaN();

/// Weights of several formats over one input.
struct MatmulCase {
  int64_t in;
  std::vector<RandomMatrix> weights;
  Floats x;
  int rows;
  std::vector<Floats> biases;  ///< empty, or one a weight

  MatmulCase(int64_t width, int count, std::vector<std::pair<Type, int64_t>> shapes)
      : in(width), rows(count) {
    uint64_t seed = 10;
    for (const auto& [type, out] : shapes) weights.emplace_back(type, in, out, seed++);
    x = random_floats(static_cast<size_t>(rows * in), 3);
  }
  ScratchNeeds needs() const { return {.rows = rows, .max_in = in}; }
  int64_t outs() const {
    int64_t n = 0;
    for (const RandomMatrix& w : weights) n += w.matrix().out;
    return n;
  }
  /// [count, outs]: rows side by side, so that they can be cut.
  Floats run(Device& device, int first, int count) const {
    std::vector<Floats> out;
    std::vector<MatmulTarget> targets;
    for (const RandomMatrix& w : weights)
      out.emplace_back(static_cast<size_t>(count * w.matrix().out), -7.0f);
    for (size_t i = 0; i < out.size(); ++i)
      targets.push_back(
          {weights[i].matrix(), out[i].data(), false, biases.empty() ? nullptr : biases[i].data()});
    device.matmul({x.data() + first * in, count, targets});
    Floats all;
    for (int r = 0; r < count; ++r)
      for (size_t i = 0; i < out.size(); ++i) {
        const int64_t n = weights[i].matrix().out;
        all.insert(all.end(), out[i].begin() + r * n, out[i].begin() + (r + 1) * n);
      }
    return all;
  }
};

MatmulCase mixed() {
  return {512,
          11,
          {{Type::Q4_K, 40},
           {Type::Q6_K, 9},
           {Type::Q8_0, 3},
           {Type::F16, 17},
           {Type::Q5_0, 8},
           {Type::F32, 1},
           {Type::BF16, 26}}};
}

TEST(CpuMatmul, SeveralFormatsOverOneInputAgreeWithDouble) {
  const MatmulCase c = mixed();
  const Floats got = on_all_devices(c.needs(), [&](Device& device) { return c.run(device, 0, c.rows); });
  int64_t column = 0;
  for (const RandomMatrix& w : c.weights) {
    const Floats decoded = w.decoded();
    for (int64_t o = 0; o < w.matrix().out; ++o, ++column)
      for (int r = 0; r < c.rows; ++r) {
        double exact = 0, norm = 0;
        for (int64_t i = 0; i < c.in; ++i) {
          const double weight = decoded[static_cast<size_t>(o * c.in + i)];
          exact += weight * c.x[static_cast<size_t>(r * c.in + i)], norm += weight * weight;
        }
        // int8 activations: an error of 1/127/sqrt(12) of the largest, 1 here, on each of many terms
        ASSERT_NEAR(got[static_cast<size_t>(r * c.outs() + column)], exact,
                    6 * std::sqrt(norm) / 127 / 3.46 + 1e-6)
            << type_info(w.matrix().type).name << " out " << o << " row " << r;
      }
  }
}

TEST(CpuMatmul, RowsDoNotDependOnTheirNeighbours) {
  const MatmulCase c = mixed();
  expect_row_invariant(c.needs(), c.rows,
                       [&](Device& device, int first, int count) { return c.run(device, first, count); });
}

/// y = dot + bias, one rounding: of the same call without biases.
TEST(CpuMatmul, ABiasIsAddedToTheFinishedDot) {
  MatmulCase c = mixed();
  const Floats dots = on_all_devices(c.needs(), [&](Device& device) { return c.run(device, 0, c.rows); });
  Floats row;
  for (const RandomMatrix& w : c.weights) {
    c.biases.push_back(random_floats(static_cast<size_t>(w.matrix().out), 40 + c.biases.size()));
    row.insert(row.end(), c.biases.back().begin(), c.biases.back().end());
  }
  Floats expected = dots;
  for (size_t i = 0; i < expected.size(); ++i) expected[i] += row[i % row.size()];
  expect_same(on_all_devices(c.needs(), [&](Device& device) { return c.run(device, 0, c.rows); }), expected,
              "biases");
  expect_row_invariant(c.needs(), c.rows,
                       [&](Device& device, int first, int count) { return c.run(device, first, count); });
}

/// out = out + (dot + bias): not (out + dot) + bias.
TEST(CpuMatmul, ABiasComesBeforeTheSum) {
  const RandomMatrix weight(Type::Q8_0, 96, 20, 1);
  const Floats x = random_floats(3 * 96, 2), bias = random_floats(20, 3), before = random_floats(60, 4);
  const ScratchNeeds needs{.rows = 3, .max_in = 96, .hidden = 20};
  const auto run = [&](bool add, const float* b) {
    return on_all_devices(needs, [&](Device& device) {
      Floats out = before;
      const MatmulTarget target{weight.matrix(), out.data(), add, b};
      device.matmul({x.data(), 3, {&target, 1}});
      return out;
    });
  };
  Floats expected = before;
  const Floats dots = run(false, nullptr);
  for (size_t i = 0; i < 60; ++i) expected[i] += dots[i] + bias[i % 20];
  expect_same(run(true, bias.data()), expected, "sum");
}

TEST(CpuMatmul, OneBadValueMakesItsRowNanAndNoOther) {
  for (const float bad : {nan, inf, -inf}) {
    MatmulCase c = mixed();
    c.x[static_cast<size_t>(2 * c.in + 5)] = bad;
    const Floats got = on_all_devices(c.needs(), [&](Device& device) { return c.run(device, 0, c.rows); });
    const auto outs = static_cast<size_t>(c.outs());
    EXPECT_FALSE(std::isfinite(got[2 * outs])) << bad;
    for (size_t r : {size_t{1}, size_t{3}}) {
      EXPECT_TRUE(std::isfinite(got[r * outs])) << bad;
    }
  }
}

TEST(CpuMatmul, DeclaresTheWeightsBytes) {
  const MatmulCase c(256, 2, {{Type::Q4_K, 8}, {Type::F32, 4}});
  Ledger ledger({.enabled = true});
  const auto device = make_cpu_device(2);
  device->reserve(c.needs());
  device->set_ledger(&ledger);
  ledger.begin_generation();
  ledger.begin_round(Phase::decode);
  device->begin_role(Role::head);
  c.run(*device, 0, 2);
  device->file_imbalance();
  ledger.end_round(2, 1);
  const auto& phase = ledger.phase(Phase::decode);
  EXPECT_EQ(phase.roles[static_cast<size_t>(Role::head)].bytes, 8u * 144 + 4u * 256 * 4);
  EXPECT_GT(phase.tasks, 0u) << "the team's imbalance is filed";
  EXPECT_GT(phase.worker_busy_ns, 0u);
}

using CpuMatmulDeathTest = testing::Test;
TEST(CpuMatmulDeathTest, MoreRowsThanReservedIsOurBug) {
  const MatmulCase c(256, 4, {{Type::F32, 4}});
  const auto device = make_cpu_device(1);
  device->reserve({.rows = 3, .max_in = 256});
  EXPECT_DEATH(c.run(*device, 0, 4), "rows 4 of 3");
}

// --- route

/// A router that is the identity: the logits are x.
struct Routed {
  std::vector<int32_t> ids;
  Floats weights;
};
Routed route(Device& device, const Floats& logits, int rows, int k, RouterKind kind,
             const Floats* bias = nullptr) {
  const auto experts = static_cast<int64_t>(logits.size()) / rows;
  Floats identity(static_cast<size_t>(experts * experts));
  for (int64_t e = 0; e < experts; ++e) identity[static_cast<size_t>(e * experts + e)] = 1;
  Routed out{std::vector<int32_t>(static_cast<size_t>(rows * k), -1), Floats(static_cast<size_t>(rows * k))};
  RouteArgs args;
  args.x = logits.data();
  args.router = {identity.data(), Type::F32, experts, experts};
  args.bias = bias ? bias->data() : nullptr;
  args.rows = rows, args.top_k = k, args.kind = kind;
  args.ids = out.ids.data(), args.weights = out.weights.data();
  device.route(args);
  return out;
}
std::unique_ptr<Device> router_device(int experts, int rows = 1) {
  auto device = make_cpu_device(2);
  device->reserve({.rows = rows, .max_in = experts, .top_k = 8, .experts = experts});
  return device;
}

TEST(CpuRoute, TakesTheLargestInIncreasingIdWithTiesToTheLower) {
  const auto device = router_device(6);
  const Routed routed = route(*device, {1, 5, 2, 2, 2, 4}, 1, 4, RouterKind::softmax_selected);
  EXPECT_EQ(routed.ids, (std::vector<int32_t>{1, 2, 3, 5}));
  const double e = std::exp(1.0), sum = e * e * e * e * e + 2 * e * e + e * e * e * e;
  EXPECT_NEAR(routed.weights[0], std::exp(5.0) / sum, 1e-6);
  EXPECT_NEAR(routed.weights[1], std::exp(2.0) / sum, 1e-6);
  EXPECT_EQ(routed.weights[1], routed.weights[2]);
  EXPECT_NEAR(routed.weights[3], std::exp(4.0) / sum, 1e-6);
}

TEST(CpuRoute, AnyNumberOfExpertsIsChosen) {
  constexpr int experts = 300, k = 201;
  const auto device = make_cpu_device(2);
  device->reserve({.rows = 5, .max_in = experts, .top_k = k, .experts = experts});
  Floats logits;
  for (int i = 0; i < 5 * experts; ++i) logits.push_back(static_cast<float>(i * 7 % experts) / 100);
  const Routed routed = route(*device, logits, 5, k, RouterKind::softmax_selected);
  for (int row = 0; row < 5; ++row) {
    double sum = 0;
    for (int j = 0; j < k; ++j) {
      const auto at = static_cast<size_t>(row * k + j);
      EXPECT_GE(logits[static_cast<size_t>(row * experts + routed.ids[at])], 0.99f) << "of 0 to 2.99";
      sum += static_cast<double>(routed.weights[at]);
    }
    EXPECT_NEAR(sum, 1, 1e-5);
  }
}

TEST(CpuRoute, SoftmaxOverAllIsNotRenormalised) {
  const auto device = router_device(4);
  const Routed routed = route(*device, {0, 1, 2, 3}, 1, 2, RouterKind::softmax_all);
  const double sum = 1 + std::exp(1.0) + std::exp(2.0) + std::exp(3.0);
  EXPECT_EQ(routed.ids, (std::vector<int32_t>{2, 3}));
  EXPECT_NEAR(routed.weights[0], std::exp(2.0) / sum, 1e-6);
  EXPECT_NEAR(routed.weights[1], std::exp(3.0) / sum, 1e-6);
}

TEST(CpuRoute, BiasTakesPartInChoiceAndWeight) {
  const auto device = router_device(3);
  const Floats bias = {5, 0, 0};
  const Routed routed = route(*device, {0, 1, 2}, 1, 2, RouterKind::softmax_selected, &bias);
  EXPECT_EQ(routed.ids, (std::vector<int32_t>{0, 2}));
  EXPECT_NEAR(routed.weights[0], std::exp(5.0) / (std::exp(5.0) + std::exp(2.0)), 1e-6);
}

TEST(CpuRoute, NanNeverWinsAndNeverCrashes) {
  const auto device = router_device(4);
  const Floats bias = {0, nan, 0, nan};  // logits of x itself that are NaN would make all of them NaN
  const Routed some = route(*device, {1, 9, 2, 9}, 1, 2, RouterKind::softmax_selected, &bias);
  EXPECT_EQ(some.ids, (std::vector<int32_t>{0, 2}));
  EXPECT_TRUE(std::isnan(some.weights[0])) << "a damaged router is seen even where the expert is not chosen";
  for (const RouterKind kind : {RouterKind::softmax_selected, RouterKind::softmax_all}) {
    const Routed all = route(*device, {nan, 1, 1, 1}, 1, 3, kind);
    EXPECT_EQ(all.ids, (std::vector<int32_t>{0, 1, 2}));
    EXPECT_TRUE(std::isnan(all.weights[0])) << "flows on, to be reported at the logits";
  }
}

TEST(CpuRoute, AgreesBetweenDevicesAndRows) {
  const int rows = 11, k = 8, experts = 60;
  const int64_t hidden = 96;
  const RandomMatrix router(Type::BF16, hidden, experts, 5);
  const Floats x = random_floats(static_cast<size_t>(rows * hidden), 6);
  const ScratchNeeds needs = {.rows = rows, .max_in = hidden, .top_k = k, .experts = experts};
  for (const RouterKind kind : {RouterKind::softmax_selected, RouterKind::softmax_all}) {
    const auto run = [&](Device& device, int first, int count) {
      std::vector<int32_t> ids(static_cast<size_t>(count * k));
      Floats weights(ids.size());
      RouteArgs args;
      args.x = x.data() + first * hidden, args.router = router.matrix(), args.rows = count, args.top_k = k;
      args.kind = kind, args.ids = ids.data(), args.weights = weights.data();
      device.route(args);
      Floats all;
      for (size_t i = 0; i < ids.size(); ++i)
        all.push_back(static_cast<float>(ids[i])), all.push_back(weights[i]);
      return all;
    };
    on_all_devices(needs, [&](Device& device) { return run(device, 0, rows); });
    expect_row_invariant(needs, rows, run);
  }
}

}  // namespace
}  // namespace weir
