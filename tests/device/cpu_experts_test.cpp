// experts and combine on the CPU: against double precision; bitwise the same in one group or many, in any
// order, in slices of any size, on every instruction set and thread count.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "device/cpu_cases.h"

namespace weir {
namespace {

struct ExpertsCase {
  struct Shape {
    Type gate, up, down;
    int64_t hidden, ff;
  } shape;
  int experts, top_k, rows;
  std::vector<RandomMatrix> gate, up, down;
  Floats x;
  std::vector<std::vector<int32_t>> pairs;  ///< by expert, increasing

  ExpertsCase(Shape s, int expert_count, int k, int row_count)
      : shape(s), experts(expert_count), top_k(k), rows(row_count), pairs(static_cast<size_t>(expert_count)) {
    for (int e = 0; e < experts; ++e) {
      const auto seed = static_cast<uint64_t>(100 * e);
      gate.emplace_back(s.gate, s.hidden, s.ff, seed + 1), up.emplace_back(s.up, s.hidden, s.ff, seed + 2);
      down.emplace_back(s.down, s.ff, s.hidden, seed + 3);
    }
    x = random_floats(static_cast<size_t>(rows * s.hidden), 9);
    for (float& v : x) v *= 0.2f;
    for (int r = 0; r < rows; ++r)  // k different experts a row, some experts far busier than others
      for (int j = 0, e = static_cast<int>(random_u64(8, static_cast<uint64_t>(r)) % experts); j < k;
           ++j, e += 1 + j)
        pairs[static_cast<size_t>(e % experts)].push_back(r * k + j);
  }
  ScratchNeeds needs() const {
    return {.rows = rows,
            .max_in = shape.hidden,
            .top_k = top_k,
            .expert_ff = shape.ff,
            .hidden = shape.hidden,
            .experts = experts};
  }
  ExpertWork work(int e, std::span<const int32_t> p) const {
    const auto i = static_cast<size_t>(e);
    return {gate[i].matrix(), up[i].matrix(), down[i].matrix(), p};
  }
  Floats parts() const { return Floats(static_cast<size_t>(rows * top_k * shape.hidden), -3.0f); }
  void run(Device& device, std::span<const ExpertWork> group, Floats& out) const {
    device.experts({group, x.data(), top_k, Activation::swiglu, out.data()});
  }
  Floats whole(Device& device) const {
    std::vector<ExpertWork> group;
    for (int e = 0; e < experts; ++e) group.push_back(work(e, pairs[static_cast<size_t>(e)]));
    Floats out = parts();
    run(device, group, out);
    return out;
  }
  /// One call for each pair: no grouping, no slices.
  Floats pair_by_pair(Device& device) const {
    Floats out = parts();
    for (int e = experts - 1; e >= 0; --e)
      for (const int32_t& pair : pairs[static_cast<size_t>(e)]) {
        const ExpertWork one = work(e, {&pair, 1});
        run(device, {&one, 1}, out);
      }
    return out;
  }
};

const ExpertsCase::Shape shapes[] = {
    {Type::Q4_K, Type::Q4_K, Type::Q6_K, 256, 256},
    {Type::Q4_K, Type::Q6_K, Type::Q5_0, 512, 96},
    {Type::Q8_0, Type::Q4_K, Type::Q8_0, 256, 64},
    {Type::F16, Type::BF16, Type::F32, 64, 40},
};

TEST(CpuExpertsSlow, AgreeBetweenDevicesAndHoweverGrouped) {
  for (const auto& shape : shapes) {
    const ExpertsCase c(shape, 7, 3, 13);
    const Floats whole = on_all_devices(c.needs(), [&](Device& device) { return c.whole(device); });
    const Floats single = on_all_devices(c.needs(), [&](Device& device) { return c.pair_by_pair(device); });
    expect_same(single, whole, "pair by pair");
    EXPECT_EQ(std::count(whole.begin(), whole.end(), -3.0f), 0) << "every part is written";
  }
}

TEST(CpuExperts, AgreeWithDouble) {
  for (const auto& shape : shapes) {
    const ExpertsCase c(shape, 4, 2, 5);
    const auto device = make_cpu_device(2);
    device->reserve(c.needs());
    const Floats got = c.whole(*device);
    double error = 0, size = 0;
    for (int e = 0; e < c.experts; ++e) {
      const auto i = static_cast<size_t>(e);
      const Floats gate = c.gate[i].decoded(), up = c.up[i].decoded(), down = c.down[i].decoded();
      for (const int32_t pair : c.pairs[i]) {
        const float* x = c.x.data() + pair / c.top_k * shape.hidden;
        std::vector<double> act(static_cast<size_t>(shape.ff));
        for (int64_t f = 0; f < shape.ff; ++f) {
          double g = 0, u = 0;
          for (int64_t h = 0; h < shape.hidden; ++h) {
            g += double{gate[static_cast<size_t>(f * shape.hidden + h)]} * x[h];
            u += double{up[static_cast<size_t>(f * shape.hidden + h)]} * x[h];
          }
          act[static_cast<size_t>(f)] = g / (1 + std::exp(-g)) * u;
        }
        for (int64_t h = 0; h < shape.hidden; ++h) {
          double y = 0;
          for (int64_t f = 0; f < shape.ff; ++f)
            y += down[static_cast<size_t>(h * shape.ff + f)] * act[static_cast<size_t>(f)];
          const double d = got[static_cast<size_t>(pair * shape.hidden + h)] - y;
          error += d * d, size += y * y;
        }
      }
    }
    EXPECT_LT(std::sqrt(error / size), 0.03) << type_info(shape.down).name;
  }
}

// More pairs than a slice holds: experts are cut, and one expert alone is larger than a slice.
TEST(CpuExperts, SlicesChangeNothing) {
  const ExpertsCase::Shape shape{Type::Q8_0, Type::Q8_0, Type::Q8_0, 32, 32};
  ExpertsCase c(shape, 5, 4, 700);
  for (auto& p : c.pairs) p.clear();
  for (int r = 0; r < c.rows; ++r)
    for (int j = 0; j < 4; ++j)  // expert 1 takes slots 1 and 2 of every row: 1400 pairs
      c.pairs[static_cast<size_t>(j == 0 ? 0 : j < 3 ? 1 : 2 + r % 3)].push_back(r * 4 + j);
  const Floats whole = on_all_devices(c.needs(), [&](Device& device) { return c.whole(device); });
  const auto device = make_cpu_device(2);
  ScratchNeeds small = c.needs();
  device->reserve(small);
  expect_same(c.pair_by_pair(*device), whole, "pair by pair");
}

TEST(CpuExperts, EmptyGroupsAndIdleExpertsAreNothing) {
  const ExpertsCase c(shapes[0], 3, 2, 4);
  const auto device = make_cpu_device(2);
  device->reserve(c.needs());
  Floats out = c.parts();
  c.run(*device, {}, out);
  const ExpertWork idle = c.work(0, {});
  c.run(*device, {&idle, 1}, out);
  EXPECT_EQ(std::count(out.begin(), out.end(), -3.0f), std::ssize(out));
}

TEST(CpuExperts, OneBadRowStaysAlone) {
  ExpertsCase c(shapes[0], 4, 2, 6);
  c.x[static_cast<size_t>(3 * c.shape.hidden)] = std::numeric_limits<float>::quiet_NaN();
  const Floats out = on_all_devices(c.needs(), [&](Device& device) { return c.whole(device); });
  for (int r = 0; r < 6; ++r)
    EXPECT_EQ(std::isnan(out[static_cast<size_t>(r * 2 * c.shape.hidden)]), r == 3) << r;
}

TEST(CpuExperts, DeclaresEachExpertsBytesOnce) {
  const ExpertsCase c(shapes[0], 3, 2, 4);
  Ledger ledger({.enabled = true});
  const auto device = make_cpu_device(2);
  device->reserve(c.needs());
  device->set_ledger(&ledger);
  ledger.begin_generation();
  ledger.begin_round(Phase::decode);
  device->begin_role(Role::experts_hit);
  const ExpertWork work[] = {c.work(0, c.pairs[0]), c.work(1, {})};
  Floats out = c.parts();
  c.run(*device, work, out);
  ledger.end_round(4, 1);
  EXPECT_EQ(ledger.phase(Phase::decode).roles[static_cast<size_t>(Role::experts_hit)].bytes,
            256u * (144 + 144 + 210));
}

TEST(CpuCombine, SumsInIncreasingSlotFirstThenAdds) {
  // (1e8 * 1 + 1 * 1) - 1e8 loses the one; h joins last.
  const Floats parts = {1e8f, 1.0f, -1e8f}, weights = {1, 1, 1};
  Floats h = {0.5f};
  const auto device = make_cpu_device(1);
  device->combine({parts.data(), weights.data(), h.data(), 1, 3, 1});
  EXPECT_EQ(h[0], 0.5f);
}

TEST(CpuCombine, AgreesBetweenDevicesAndRows) {
  const int rows = 9, k = 8;
  const int64_t hidden = 1100;
  const Floats parts = random_floats(static_cast<size_t>(rows * k * hidden), 1);
  const Floats weights = random_floats(static_cast<size_t>(rows * k), 2);
  const Floats h = random_floats(static_cast<size_t>(rows * hidden), 3);
  const auto run = [&](Device& device, int first, int count) {
    Floats out(h.begin() + first * hidden, h.begin() + (first + count) * hidden);
    device.combine(
        {parts.data() + first * k * hidden, weights.data() + first * k, out.data(), count, k, hidden});
    return out;
  };
  const Floats got = on_all_devices({}, [&](Device& device) { return run(device, 0, rows); });
  expect_row_invariant({}, rows, run);
  for (size_t i : {size_t{0}, static_cast<size_t>(4 * hidden + 1099)}) {
    double exact = h[i];
    const size_t row = i / static_cast<size_t>(hidden), at = i % static_cast<size_t>(hidden);
    for (size_t j = 0; j < k; ++j)
      exact += double{weights[row * k + j]} * parts[(row * k + j) * static_cast<size_t>(hidden) + at];
    EXPECT_NEAR(got[i], exact, 1e-5);
  }
}

}  // namespace
}  // namespace weir
