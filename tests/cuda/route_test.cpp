// The router on the CUDA device: the CPU's ids, weights and normed rows.
#include <fmt/core.h>

#include "cuda/conformance.h"

namespace weir {
namespace {

struct RouteCase {
  Type type = Type::F32;
  int64_t hidden = 256, experts = 8;
  int top_k = 2;
  RouterKind kind = RouterKind::softmax_selected;
  bool norm = true, bias = false;
};

class CudaRoute : public CudaTest {
 protected:
  void check(const RouteCase& c, const std::vector<uint8_t>& router, const Floats& x, int rows) {
    ScratchNeeds needs;
    needs.rows = rows, needs.max_in = needs.hidden = c.hidden, needs.top_k = c.top_k;
    needs.experts = static_cast<int>(c.experts), needs.expert_ff = 32;
    reserve(needs);
    const Floats norm = random_floats(static_cast<size_t>(c.hidden), 51),
                 bias = random_floats(static_cast<size_t>(c.experts), 52);
    expect_cpu_bits(
        fmt::format("{} {} experts of {}, top {}, {} rows{}{}{}", type_info(c.type).name, c.experts, c.hidden,
                    c.top_k, rows, c.norm ? ", norm" : "", c.bias ? ", bias" : "",
                    c.kind == RouterKind::softmax_all ? ", softmax over all" : ""),
        [&](Device& device) {
          Bench bench(device);
          RouteArgs args;
          args.x = bench.put(x), args.rows = rows, args.top_k = c.top_k, args.kind = c.kind;
          args.router = {bench.put_weights(router.data(), router.size(), Bench::least_alignment(c.type)),
                         c.type, c.hidden, c.experts};
          if (c.norm) args.norm = bench.put(norm), args.eps = 1e-6f, args.normed = bench.poisoned(x.size());
          if (c.bias) args.bias = bench.put(bias);
          const auto pairs = static_cast<size_t>(rows * c.top_k);
          args.ids = bench.put(std::vector<int32_t>(pairs, -9)), args.weights = bench.poisoned(pairs);
          // Twice: what one launch leaves behind (its ticket) must serve the next.
          for (int i = 0; i < 2; ++i) device.route(args);
          Floats result = bench.get(args.weights, pairs);
          append(result, bench.get(args.ids, pairs));
          if (c.norm) append(result, bench.get(args.normed, x.size()));
          return result;
        });
  }
  static std::vector<uint8_t> bytes_of(const RandomMatrix& matrix) {
    const Matrix m = matrix.matrix();
    const auto* begin = static_cast<const uint8_t*>(m.data);
    return {begin, begin + m.bytes()};
  }
  void check(const RouteCase& c, int rows) {
    check(c, bytes_of(RandomMatrix(c.type, c.hidden, c.experts, 3)),
          random_floats(static_cast<size_t>(rows * c.hidden), 4), rows);
  }
};

TEST_F(CudaRoute, HasTheCpusChoiceAndWeights) {
  for (Type type : {Type::F32, Type::F16, Type::BF16})
    for (int64_t experts : {8, 60, 128, 256})
      for (int top_k : {1, 2, 8})
        for (RouterKind kind : {RouterKind::softmax_selected, RouterKind::softmax_all}) {
          const bool odd = (experts + top_k) % 3 == 0;
          check({type, 96, experts, top_k, kind, odd, !odd}, type == Type::F32 ? 1 : 5);
          if (top_k == 8) check({type, 96, experts, top_k, kind, !odd, odd}, type == Type::F32 ? 5 : 1);
        }
}

TEST_F(CudaRoute, HasTheCpusBitsAtEveryNumberOfRowsAndWidth) {
  for (int rows : {1, 2, 3, 4, 7, 8, 9, 15, 16, 17, 33, 100}) check({Type::F32, 200, 60, 4}, rows);
  for (int64_t hidden : {33, 512, 513, 768, 2048, 2304}) {
    check({Type::F32, hidden, 128, 8}, 1);
    check({Type::F32, hidden, 16, 4, RouterKind::softmax_all}, 3);
    check({Type::BF16, hidden, 24, 4, RouterKind::softmax_selected, false, true}, 17);
  }
}

TEST_F(CudaRoute, TiesGoToTheLowerIdAndNaNToTheEnd) {
  for (const auto& [rows, hidden] :
       std::vector<std::pair<int, int64_t>>{{1, 64}, {1, 512}, {6, 64}, {20, 64}})
    for (int top_k : {1, 3, 8}) {
      RouteCase c;
      c.hidden = hidden, c.experts = 40, c.top_k = top_k;
      std::vector<uint8_t> router = bytes_of(RandomMatrix(Type::F32, c.hidden, c.experts, 3));
      auto* row = reinterpret_cast<float*>(router.data());
      for (int64_t e : {3, 20, 21, 22, 35, 39})  // equal rows, equal logits
        std::copy_n(row, c.hidden, row + e * c.hidden);
      row[7 * c.hidden] = kNaN;
      Floats x = random_floats(static_cast<size_t>(rows * c.hidden), 4);
      if (rows > 1) {
        std::fill_n(x.begin(), c.hidden, 0.0f);                // every logit ties
        x[static_cast<size_t>(c.hidden) + 5] = kNaN;           // every logit is NaN
        x[static_cast<size_t>(2 * c.hidden) + 5] = kInfinity;  // and infinite of either sign
      }
      for (bool norm : {false, true}) {
        c.norm = norm;
        check(c, router, x, rows);
        c.kind = RouterKind::softmax_all;
        check(c, router, x, rows);
        if (rows > 1) continue;
        Floats other = x;
        other[5] = kInfinity;  // logits of either sign
        check(c, router, other, rows);
        std::fill(other.begin(), other.end(), 0.0f);  // every logit ties but the one that is NaN
        check(c, router, other, rows);
      }
    }
}

}  // namespace
}  // namespace weir
