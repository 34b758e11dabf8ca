// The routed experts on the CUDA device against experts() and combine() of the CPU, whose grouping is done
// here on the host.
#include <fmt/core.h>

#include <algorithm>
#include <numeric>

#include "cuda/conformance.h"

namespace weir {
namespace {

struct ExpertShape {
  Type gate, down;
  int64_t hidden, ff;
};

/// A layer of experts in slots: `slots` of them, of which slot_of names one for every expert.
struct ExpertLayer {
  ExpertShape shape;
  int experts, slots;
  std::vector<int32_t> slot_of;  ///< empty: slot e is expert e's
  std::vector<RandomMatrix> gate, up, down;

  ExpertLayer(const ExpertShape& s, int n, bool permuted)
      : shape(s), experts(n), slots(permuted ? n + 3 : n) {
    for (int e = 0; e < n; ++e) {
      const auto seed = static_cast<uint64_t>(e) * 3 + 100;
      gate.emplace_back(s.gate, s.hidden, s.ff, seed);
      up.emplace_back(s.gate, s.hidden, s.ff, seed + 1);
      down.emplace_back(s.down, s.ff, s.hidden, seed + 2);
      if (permuted) slot_of.push_back((e * 7 + 2) % slots);
    }
  }

  /// All slots of one matrix, each at its expert's: NaNs where there is none.
  Matrix put(Bench& bench, const std::vector<RandomMatrix>& of, uint64_t* stride) const {
    Matrix m = of[0].matrix();
    *stride = (m.bytes() + 31) / 32 * 32 + 64;  // slots are padded
    std::vector<uint8_t> bytes(*stride * static_cast<uint64_t>(slots), 0xff);
    for (size_t e = 0; e < of.size(); ++e) {
      const auto slot = static_cast<uint64_t>(slot_of.empty() ? static_cast<int32_t>(e) : slot_of[e]);
      memcpy(bytes.data() + slot * *stride, of[e].matrix().data, m.bytes());
    }
    m.data = bench.put_weights(bytes.data(), bytes.size(), Bench::least_alignment(m.type));
    return m;
  }
  ExpertBank put(Bench& bench) const {
    ExpertBank bank;
    bank.gate = put(bench, gate, &bank.gate_stride), bank.up = put(bench, up, &bank.up_stride);
    bank.down = put(bench, down, &bank.down_stride);
    bank.slot_of = slot_of.empty() ? nullptr : bench.put(slot_of);
    bank.experts = experts;
    return bank;
  }
};

/// Chosen experts of every row: increasing in each, unlike between rows, some experts never.
std::vector<int32_t> random_ids(int rows, int top_k, int experts, uint64_t seed) {
  std::vector<int32_t> ids;
  for (int r = 0; r < rows; ++r) {
    std::vector<int32_t> all(static_cast<size_t>(experts));
    std::iota(all.begin(), all.end(), 0);
    for (int j = 0; j < top_k; ++j) {
      const auto at = static_cast<size_t>(random_u64(seed, static_cast<uint64_t>(r * 8 + j)) %
                                          (all.size() - static_cast<size_t>(j)));
      std::swap(all[static_cast<size_t>(j)], all[static_cast<size_t>(j) + at]);
    }
    std::sort(all.begin(), all.begin() + top_k);
    ids.insert(ids.end(), all.begin(), all.begin() + top_k);
  }
  return ids;
}

class CudaExperts : public CudaTest {
 protected:
  static ScratchNeeds needs(const ExpertLayer& layer, int rows, int top_k) {
    ScratchNeeds n;
    n.rows = rows, n.hidden = layer.shape.hidden, n.max_in = std::max(layer.shape.hidden, layer.shape.ff);
    n.top_k = top_k, n.expert_ff = layer.shape.ff, n.experts = layer.experts;
    return n;
  }

  Floats on_cpu(const ExpertLayer& layer, const Floats& x, Floats h, const std::vector<int32_t>& ids,
                const Floats& weights, int rows, int top_k) {
    std::vector<std::vector<int32_t>> pairs(static_cast<size_t>(layer.experts));
    for (size_t p = 0; p < ids.size(); ++p)
      pairs[static_cast<size_t>(ids[p])].push_back(static_cast<int32_t>(p));
    std::vector<ExpertWork> work;
    for (size_t e = 0; e < pairs.size(); ++e)
      if (!pairs[e].empty())
        work.push_back({layer.gate[e].matrix(), layer.up[e].matrix(), layer.down[e].matrix(), pairs[e]});
    Floats parts(ids.size() * static_cast<size_t>(layer.shape.hidden));
    cpu_->experts({work, x.data(), top_k, Activation::swiglu, parts.data()});
    cpu_->combine({parts.data(), weights.data(), h.data(), rows, top_k, layer.shape.hidden});
    return h;
  }

  void check(const ExpertLayer& layer, int rows, int top_k) {
    check(layer, rows, top_k, random_ids(rows, top_k, layer.experts, 7));
  }
  void check(const ExpertLayer& layer, int rows, int top_k, const std::vector<int32_t>& ids) {
    reserve(needs(layer, rows, top_k));
    const auto size = static_cast<size_t>(rows * layer.shape.hidden);
    const Floats x = random_floats(size, 4), h = random_floats(size, 5);
    const Floats weights = random_floats(static_cast<size_t>(rows * top_k), 6);
    Bench bench(*cuda_);
    RoutedArgs args;
    args.bank = layer.put(bench), args.x = bench.put(x), args.h = bench.put(h), args.rows = rows,
    args.top_k = top_k;
    args.ids = bench.put(ids), args.weights = bench.put(weights);
    cuda_->routed_experts(args);
    expect_same(bench.get(args.h, size), on_cpu(layer, x, h, ids, weights, rows, top_k),
                fmt::format("{} and {}, {} x {}, {} rows, top {} of {}{}", type_info(layer.shape.gate).name,
                            type_info(layer.shape.down).name, layer.shape.hidden, layer.shape.ff, rows, top_k,
                            layer.experts, layer.slot_of.empty() ? "" : ", permuted slots"));
  }
};

TEST_F(CudaExperts, HaveTheCpusBitsInEveryFormat) {
  for (const ExpertShape& shape : {ExpertShape{Type::Q4_K, Type::Q6_K, 256, 256},
                                   {Type::Q6_K, Type::Q4_K, 512, 768},
                                   {Type::Q4_K, Type::Q4_K, 768, 256},
                                   {Type::Q8_0, Type::Q5_0, 64, 96},
                                   {Type::Q5_0, Type::Q8_0, 96, 64},
                                   {Type::Q6_K, Type::Q8_0, 256, 96},
                                   {Type::F16, Type::BF16, 64, 40},
                                   {Type::F32, Type::Q8_0, 64, 32},
                                   {Type::Q8_0, Type::F32, 64, 33},
                                   {Type::BF16, Type::F16, 33, 40}}) {
    const ExpertLayer straight(shape, 9, false), permuted(shape, 9, true);
    for (int rows : {1, 16}) check(straight, rows, 2);
    for (int rows : {1, 3, 20}) check(permuted, rows, 4);
  }
}

TEST_F(CudaExperts, HaveTheCpusBitsAtEveryNumberOfRows) {
  const ExpertLayer k_quants({Type::Q4_K, Type::Q6_K, 256, 256}, 12, true),
      blocks({Type::Q8_0, Type::Q5_0, 64, 96}, 12, false);
  for (int rows : {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 64})
    for (int top_k : {2, 8}) {
      if (rows == 64 && top_k == 8) continue;
      check(blocks, rows, top_k);
      if (rows % 3 == 1) check(k_quants, rows, top_k);
    }
}

/// More inner values than one row's kernel has room for: they go by expert.
TEST_F(CudaExperts, WideInnerRowsOfManyExpertsHaveTheCpusBits) {
  check(ExpertLayer({Type::Q8_0, Type::Q8_0, 32, 1536}, 130, false), 1, 128);
}

TEST_F(CudaExperts, OneExpertMayHaveEveryRow) {
  for (int rows : {2, 16, 40}) {
    const ExpertLayer layer({Type::Q8_0, Type::Q8_0, 32, 32}, 1, false);
    check(layer, rows, 1);
  }
}

class CudaExpertsSlow : public CudaExperts {};

/// Two to sixteen rows of Q4_K experts: rows that chose an expert share its weights, whatever rows they are.
TEST_F(CudaExpertsSlow, FewRowsThatShareExpertsHaveTheCpusBits) {
  const ExpertLayer layer({Type::Q4_K, Type::Q4_K, 256, 256}, 40, true);
  for (int rows : {2, 5, 16})
    for (int top_k : {1, 3, 16}) {
      const auto k = static_cast<size_t>(top_k), pairs = static_cast<size_t>(rows) * k;
      std::vector<int32_t> same(pairs), last(pairs), apart(pairs);
      for (size_t p = 0; p < pairs; ++p) {
        const auto row = static_cast<int32_t>(p / k), j = static_cast<int32_t>(p % k);
        same[p] = 2 * j + 5;                         // all rows chose the same
        last[p] = j + 1 < top_k ? j + row % 3 : 39;  // many share some, all the last
        apart[p] = (row * top_k % 24 + j) % 40;      // none, or few, share
      }
      for (const std::vector<int32_t>& ids : {same, last, apart}) check(layer, rows, top_k, ids);
      check(layer, rows, top_k);
    }
}

/// route() groups the pairs for the experts that follow: the whole of a layer's second half.
/// Experts that take what the router leaves: their input, quantised where the formats fit, and the choices.
class CudaExpertsAfterRouterBase : public CudaExperts {
 protected:
  void check_after_router(const ExpertLayer& layer, int rows, int top_k) {
    const int64_t hidden = layer.shape.hidden;
    const RandomMatrix router(Type::F32, hidden, layer.experts, 90);
    const Floats norm = random_floats(static_cast<size_t>(hidden), 91);
    reserve(needs(layer, rows, top_k));
    const auto size = static_cast<size_t>(rows * hidden), pairs = static_cast<size_t>(rows * top_k);
    const Floats h = random_floats(size, 92);
    const auto route = [&](Device& device, Bench& bench, const float* x) {
      RouteArgs args;
      args.x = x, args.norm = bench.put(norm), args.eps = 1e-6f, args.normed = bench.poisoned(size);
      args.router = bench.put(router), args.rows = rows, args.top_k = top_k;
      args.ids = bench.put(std::vector<int32_t>(pairs, -9)), args.weights = bench.poisoned(pairs);
      device.route(args);
      return args;
    };
    Bench host(*cpu_);
    const RouteArgs chosen = route(*cpu_, host, host.put(h));
    const Floats expected = on_cpu(layer, host.get(chosen.normed, size), h, host.get(chosen.ids, pairs),
                                   host.get(chosen.weights, pairs), rows, top_k);
    Bench bench(*cuda_);
    float* at = bench.put(h);
    RoutedArgs args;
    args.bank = layer.put(bench);  // ahead of the router: uploads would make its leavings old
    const RouteArgs own = route(*cuda_, bench, at);
    args.x = own.normed, args.h = at, args.rows = rows, args.top_k = top_k;
    args.ids = own.ids, args.weights = own.weights;
    cuda_->routed_experts(args);
    expect_same(bench.get(args.h, size), expected, fmt::format("{} rows, top {}", rows, top_k));
  }
};

class CudaExpertsAfterRouter : public CudaExpertsAfterRouterBase,
                               public testing::WithParamInterface<ExpertShape> {};

TEST_P(CudaExpertsAfterRouter, HaveTheCpusBits) {
  const ExpertLayer layer(GetParam(), 24, true);
  for (int rows : {1, 2, 8, 16, 17, 40})
    for (int top_k : {2, 8}) check_after_router(layer, rows, top_k);
}

class CudaExpertsAfterRouterAtEveryWidthSlow : public CudaExpertsAfterRouterBase {};

/// The one-row and the few-rows kernels' instantiations: up to 4, 8 and 16 super-blocks of a weight row of
/// gate and up, and up to 4 and 8 of down's.
TEST_F(CudaExpertsAfterRouterAtEveryWidthSlow, HaveTheCpusBits) {
  for (const auto& [hidden, ff] :
       {std::pair<int64_t, int64_t>{768, 256}, {2048, 768}, {1280, 1280}, {4096, 256}})
    for (int rows : {1, 3, 16})
      check_after_router(ExpertLayer({Type::Q4_K, Type::Q4_K, hidden, ff}, 5, true), rows, 3);
}

INSTANTIATE_TEST_SUITE_P(Formats, CudaExpertsAfterRouter,
                         testing::Values(ExpertShape{Type::Q4_K, Type::Q6_K, 256, 256},
                                         ExpertShape{Type::F16, Type::Q8_0, 64, 32},
                                         ExpertShape{Type::Q8_0, Type::F16, 64, 32}),
                         [](const testing::TestParamInfo<ExpertShape>& p) {
                           return std::string(type_info(p.param.gate).name) + "_" +
                                  type_info(p.param.down).name;
                         });

}  // namespace
}  // namespace weir
