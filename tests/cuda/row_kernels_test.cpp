// The kernels on rows, the router's and the float matmuls, launched one by one and held to the bits of the
// scalar CPU device: shapes with tails, values that are not finite, ties, every format.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "../device/cpu_cases.h"
#include "cuda/on_device.h"
#include "device/cpu/matmul_tables.h"
#include "device/cuda/kernels.h"
#include "device/cuda/route_one.h"
#if defined(WEIR_CUDA_EMULATION)
#include "emulation/emulation.h"
#endif

namespace weir::cuda {
namespace {

constexpr float nan = std::numeric_limits<float>::quiet_NaN(), inf = std::numeric_limits<float>::infinity();

OnDevice<uint8_t> bytes_of(const Matrix& m) {
  const auto* begin = static_cast<const uint8_t*>(m.data);
  return OnDevice<uint8_t>(std::vector<uint8_t>(begin, begin + m.bytes()));
}

class CudaRows : public testing::TestWithParam<int> {
 protected:
  CudaRows() {
#if defined(WEIR_CUDA_EMULATION)
    emulation::options().order = static_cast<emulation::Order>(GetParam());
#else
    if (cuda_device_count() == 0) skip_ = true;
#endif
    ScratchNeeds needs{};
    needs.rows = 40, needs.max_in = 9216, needs.hidden = 9216, needs.top_k = 17, needs.experts = 512;
    needs.expert_ff = 512, needs.heads = 1, needs.head_dim = 64;
    cpu_->reserve(needs);
  }
  ~CudaRows() override {
#if defined(WEIR_CUDA_EMULATION)
    emulation::options().order = emulation::Order::forward;
#endif
  }
  void SetUp() override {
    if (skip_) GTEST_SKIP() << "no GPU that this build can use";
  }
  std::unique_ptr<Device> cpu_ = make_cpu_device(1, Isa::scalar);
  Stream s_{nullptr, 8};
  bool skip_ = false;
};

#if defined(WEIR_CUDA_EMULATION)
INSTANTIATE_TEST_SUITE_P(Orders, CudaRows, testing::Values(0, 1, 2));
#else
INSTANTIATE_TEST_SUITE_P(Orders, CudaRows, testing::Values(0));  // a GPU has its own
#endif

TEST_P(CudaRows, EmbedDecodesEveryFormat) {
  for (Type type : {Type::F32, Type::F16, Type::BF16, Type::Q8_0, Type::Q5_0, Type::Q4_K, Type::Q6_K}) {
    const RandomMatrix table(type, 512, 9, 5);
    const std::vector<int32_t> token = {8, 0, 3};
    const OnDevice<uint8_t> weights = bytes_of(table.matrix());
    const OnDevice<int32_t> device_token(token);
    const OnDevice<float> out(3 * 512);
    EmbedArgs args{table.matrix(), {}, out.data()};
    args.table.data = weights.data();
    args.rows.count = 3, args.rows.token = device_token.data();
    embed(s_, args);
    const Floats all = table.decoded();
    Floats expected;
    for (int32_t t : token) expected.insert(expected.end(), &all[t * 512ull], &all[t * 512ull] + 512);
    expect_same(out.host(), expected, type_info(type).name);
  }
}

TEST_P(CudaRows, RmsNormKeepsItsBitsForAnyWidth) {
  for (int64_t n : {1, 31, 96, 512, 2048, 2880, 8193, 9216})
    for (bool weighted : {true, false}) {
      const Floats x = random_floats(static_cast<size_t>(2 * n), 7),
                   w = random_floats(static_cast<size_t>(n), 8);
      Floats expected(x.size());
      cpu_->rms_norm({x.data(), weighted ? w.data() : nullptr, expected.data(), 2, n, 1e-6f});
      const OnDevice<float> dx(x), dw(w);
      rms_norm(s_, {dx.data(), weighted ? dw.data() : nullptr, dx.data(), 2, n, 1e-6f});
      expect_same(dx.host(), expected, std::to_string(n));
    }
}

TEST_P(CudaRows, QuantisedBlocksAreTheHosts) {
  for (ActFormat format : {ActFormat::per256, ActFormat::per32})
    for (int64_t in : {256, 768, 1280, 9216, 96})
      for (bool normed : {false, true}) {
        if (format == ActFormat::per256 && in % 256 != 0) continue;
        const int rows = 3;
        const auto n = static_cast<size_t>(rows * in);
        Floats x = random_floats(n, 11);
        const Floats w = random_floats(static_cast<size_t>(in), 12);
        if (!normed) {
          x[5] = nan;  // row 0's first block
          for (size_t i = 0; i < std::min<size_t>(in, 256); ++i) x[in + i] *= i < 32 ? 1e-43f : 0.0f;
          x[in + 3] = 2.5e-43f, x[in + 4] = -2.5e-43f;  // 178 steps of a coarse scale: clamped
          x[2 * in + 40] = -inf;
          x[2 * in + 1] = 0.5f, x[2 * in] = 127.0f;  // ties: 0.5 / 1
        }
        Floats normed_x = x;
        if (normed) cpu_->rms_norm({x.data(), w.data(), normed_x.data(), rows, in, 1e-5f});
        const size_t block = format == ActFormat::per256 ? 256 : 32;
        std::vector<int8_t> q(n);
        Floats scale(n / block);
        std::vector<int16_t> sums(n / 32);
        cpu::QuantizeTask task;
        task.x = normed_x.data(), task.x_stride = in, task.in = in;
        task.q = q.data(), task.scale = scale.data(), task.sums = sums.data();
        task.row_begin = 0, task.row_end = rows;
        format == ActFormat::per256 ? cpu::quantize256_scalar(task) : cpu::quantize32_scalar(task);
        const OnDevice<float> dx(x), dw(w), dscale(n / block);
        const OnDevice<int8_t> dq(n);
        const OnDevice<int16_t> dsums(n / 32);
        quantise(s_, dx.data(), normed ? dw.data() : nullptr, 1e-5f, rows, in,
                 {dq.data(), dscale.data(), dsums.data(), in, format});
        EXPECT_EQ(dq.host(), q) << in;
        expect_same(dscale.host(), scale, std::to_string(in));
        if (format == ActFormat::per256) {
          EXPECT_EQ(dsums.host(), sums) << in;
        }
      }
}

TEST_P(CudaRows, ElementwiseOperationsKeepTheirBits) {
  for (int64_t n : {256, 77}) {
    const int rows = 3, k = 5;
    const auto size = static_cast<size_t>(rows * n);
    const Floats a = random_floats(size, 1), b = random_floats(size, 2), parts = random_floats(size * k, 3),
                 w = random_floats(rows * k, 4);
    const OnDevice<float> da(a), db(b), dparts(parts), dw(w), out(size), dh(b), sum(b);
    Floats expected(size);
    cpu_->gated({a.data(), b.data(), expected.data(), rows, n});
    gated(s_, {da.data(), db.data(), out.data(), rows, n});
    expect_same(out.host(), expected, "gated");
    Floats h = b;
    cpu_->combine({parts.data(), w.data(), h.data(), rows, k, n});
    combine(s_, {dparts.data(), dw.data(), dh.data(), rows, k, n});
    expect_same(dh.host(), h, "combine");
    h = b;
    cpu_->add(h.data(), a.data(), rows * n);
    add(s_, sum.data(), da.data(), rows * n);
    expect_same(sum.host(), h, "add");
    const OnDevice<int32_t> index(std::vector<int32_t>{2, 0});
    const OnDevice<float> gathered(static_cast<size_t>(2 * n));
    gather_rows(s_, da.data(), index.data(), 2, n, gathered.data());
    Floats rows_of(a.begin() + 2 * n, a.end());
    rows_of.insert(rows_of.end(), a.begin(), a.begin() + n);
    expect_same(gathered.host(), rows_of, "gather_rows");
  }
}

TEST_P(CudaRows, ChoosesTheLargestAndTheFirstThatIsNotFinite) {
  for (int64_t n : {1, 33, 5003, 30000}) {
    const int rows = 6;
    Floats x = random_floats(static_cast<size_t>(rows * n), 21);
    const auto row = [&](int r) { return x.data() + r * n; };
    if (n > 100) {
      row(0)[n - 1] = row(0)[77] = 3;  // a tie
      row(1)[40] = 5;                  // banned
      row(2)[41] = nan, row(2)[n - 2] = inf;
      for (int64_t i = 0; i < n; ++i) row(3)[i] = i % 2 ? -0.0f : 0.0f;
      for (int64_t i = 0; i < n; ++i) row(4)[i] = -inf;
      row(5)[40] = inf;  // banned, and to be reported
    }
    const std::vector<int32_t> banned = {40, 3};
    std::vector<Choice> expected(rows);
    const OnDevice<float> dx(x);
    const OnDevice<int32_t> dbanned(banned);
    const OnDevice<Choice> choice(rows);
    const OnDevice<uint8_t> partial(choose_partial_bytes(rows));
    for (int64_t choosable : {int64_t{0}, n, (n + 1) / 2}) {
      cpu_->choose({x.data(), rows, n, banned.data(), 2, expected.data(), choosable});
      choose(s_, {dx.data(), rows, n, dbanned.data(), 2, choice.data(), choosable}, partial.data());
      const auto got = choice.host();
      for (size_t r = 0; r < rows; ++r) {
        EXPECT_EQ(got[r].token, expected[r].token) << n << " " << r;
        EXPECT_EQ(got[r].first_not_finite, expected[r].first_not_finite) << n << " " << r;
        if (choosable > 0) {
          EXPECT_LT(got[r].token, choosable) << n << " " << r;
        }
      }
    }
  }
}

TEST_P(CudaRows, ARoundEndsWithItsStampsAndItsTicket) {
  const OnDevice<uint32_t> ticket(1), flag(1);
  const OnDevice<uint64_t> stamps(std::vector<uint64_t>(300, 9)), out(300);
  finish(s_, {ticket.data(), flag.data(), stamps.data(), out.data(), 300});
  EXPECT_EQ(out.host()[0], 9u);
  EXPECT_EQ(out.host()[298], 9u);
  EXPECT_GT(out.host()[299], 9u);
  finish(s_, {ticket.data(), flag.data(), nullptr, nullptr, 0});
  EXPECT_EQ(flag.host()[0], 2u);
  EXPECT_EQ(ticket.host()[0], 2u);
  const OnDevice<uint32_t> from(std::vector<uint32_t>{1, 2, 3, 4, 5}), to(5);
  s_.stamp = stamps.data();
  copy_mapped(s_, to.data(), from.data(), 20);
  EXPECT_EQ(s_.stamp, nullptr);
  EXPECT_EQ(to.host(), from.host());
  EXPECT_NE(stamps.host()[0], 9u);
  spin(s_, 1000);
  measure_tick(s_, out.data());
  EXPECT_GT(out.host()[0], 0u);
}

struct RouteCase {
  int rows;
  int64_t hidden;
  int experts, top_k;
  Type type = Type::F32;
  RouterKind kind = RouterKind::softmax_selected;
  bool norm = true, bias = false, ties = false;
};

void expect_groups(const std::vector<int32_t>& ids, int experts, int active,
                   const std::vector<int32_t>& expert, const std::vector<int32_t>& begin,
                   const std::vector<int32_t>& pairs) {
  std::vector<int32_t> want_expert, want_begin = {0}, want_pairs;
  for (int32_t e = 0; e < experts; ++e) {
    for (size_t p = 0; p < ids.size(); ++p)
      if (ids[p] == e) want_pairs.push_back(static_cast<int32_t>(p));
    if (static_cast<int32_t>(want_pairs.size()) == want_begin.back()) continue;
    want_expert.push_back(e);
    want_begin.push_back(static_cast<int32_t>(want_pairs.size()));
  }
  ASSERT_EQ(active, static_cast<int>(want_expert.size()));
  const auto n = static_cast<std::ptrdiff_t>(active);
  EXPECT_EQ(std::vector(expert.begin(), expert.begin() + n), want_expert);
  EXPECT_EQ(std::vector(begin.begin(), begin.begin() + n + 1), want_begin);
  EXPECT_EQ(pairs, want_pairs);
}

TEST_P(CudaRows, RoutesAsTheHostDoes) {
  const RouteCase cases[] = {
      {1, 2048, 128, 8},
      {1, 2048, 128, 8, Type::F16, RouterKind::softmax_all},
      {1, 64, 5, 5, Type::BF16, RouterKind::softmax_all, false, true},
      {1, 700, 40, 1, Type::F32, RouterKind::softmax_selected, true, true, true},
      {1, 2880, 512, 10},
      {1, 512, 3, 3, Type::F16, RouterKind::softmax_all, false, true},
      {1, 4096, 5, 2},
      {1, 512, 256, 16, Type::BF16, RouterKind::softmax_all, true, true},
      {1, 1024, 129, 11, Type::F32, RouterKind::softmax_selected, false},
      {1, 8192, 60, 6, Type::BF16},
      {1, 512, 256, 9, Type::F32, RouterKind::softmax_selected, true, true, true},
      {1, 512, 100, 12, Type::F32, RouterKind::softmax_all, false, true, true},
      {1, 512, 40, 17},
      {2, 2048, 128, 8},
      {16, 1024, 64, 8, Type::F32, RouterKind::softmax_all},
      {7, 96, 70, 2, Type::F16, RouterKind::softmax_selected, true, true, true},
      {5, 8192, 160, 6, Type::BF16},
      {3, 9216, 40, 4},
      {19, 2048, 130, 8},
      {40, 700, 40, 2, Type::F16, RouterKind::softmax_all, false, true, true},
  };
  for (const RouteCase& c : cases) {
    const auto size = static_cast<size_t>(c.rows * c.hidden), pairs = static_cast<size_t>(c.rows * c.top_k);
    RandomMatrix router(c.type, c.hidden, c.experts, 31);
    Floats x = random_floats(size, 32);
    const Floats w = random_floats(static_cast<size_t>(c.hidden), 33);
    Floats bias = random_floats(static_cast<size_t>(c.experts), 34);
    if (c.ties) {  // the logits are the bias, whose largest lie in several chunks of 32
      std::fill(x.begin(), x.end(), 0.0f);
      for (size_t e = 0; e < bias.size(); ++e) bias[e] = e % 16 == 4 ? (e % 32 == 4 ? 0.0f : -0.0f) : -1.0f;
      bias[2] = nan;
    } else if (c.rows > 1) {
      x[3] = nan;  // row 0
    }
    // The host's kernels take any address; a float tensor of the device's is aligned to its elements.
    RouteArgs args;
    args.x = x.data(), args.norm = c.norm ? w.data() : nullptr, args.eps = 1e-6f;
    Floats normed(size), weights(pairs);
    std::vector<int32_t> ids(pairs);
    args.normed = normed.data(), args.router = router.matrix(), args.bias = c.bias ? bias.data() : nullptr;
    args.rows = c.rows, args.top_k = c.top_k, args.kind = c.kind, args.ids = ids.data();
    args.weights = weights.data();
    cpu_->route(args);
    const OnDevice<uint8_t> drouter = bytes_of(args.router);
    const OnDevice<float> dx(x), dw(w), dbias(bias), dnormed(size), dweights(pairs),
        logits(static_cast<size_t>(c.rows * c.experts)), dscale(size / 32), want_scale(size / 32);
    const OnDevice<int8_t> dq(size), want_q(size);
    const OnDevice<int16_t> dsums(size / 32), want_sums(size / 32);
    const OnDevice<int32_t> dids(pairs), active(1), expert(pairs), begin(pairs + 1), dpairs(pairs);
    const OnDevice<uint32_t> tickets(small_rows * route_ticket_words);
    const OnDevice<uint64_t> visits(1), slot(1);
    args.x = dx.data(), args.normed = dnormed.data(), args.router.data = drouter.data();
    if (c.norm) args.norm = dw.data();
    if (c.bias) args.bias = dbias.data();
    args.ids = dids.data(), args.weights = dweights.data();
    const std::string what = std::to_string(c.rows) + " x " + std::to_string(c.hidden);
    for (int again = 0; again < 2; ++again) {
      s_.stamp = again ? slot.data() : nullptr;
      // per32 first, so that its sums, which are none, stay zero.
      const ActFormat format = again && c.hidden % 256 == 0 ? ActFormat::per256
                               : c.hidden % 32 == 0         ? ActFormat::per32
                                                            : ActFormat::none;
      route(s_, args, logits.data(), tickets.data(),
            {active.data(), expert.data(), begin.data(), dpairs.data(), visits.data()},
            {dq.data(), dscale.data(), dsums.data(), c.hidden, format});
      EXPECT_EQ(dids.host(), ids) << what;
      expect_same(dweights.host(), weights, what);
      if (c.norm) expect_same(dnormed.host(), normed, what);
      EXPECT_EQ(tickets.host(), std::vector<uint32_t>(small_rows * route_ticket_words, 0));
      if (format == ActFormat::none) continue;
      quantise(s_, c.norm ? args.normed : args.x, nullptr, 0, c.rows, c.hidden,
               {want_q.data(), want_scale.data(), want_sums.data(), c.hidden, format});
      EXPECT_EQ(dq.host(), want_q.host()) << what;
      expect_same(dscale.host(), want_scale.host(), what);
      EXPECT_EQ(dsums.host(), want_sums.host()) << what;
    }
    EXPECT_NE(slot.host()[0], 0u);
    if (c.rows > small_rows || (c.rows > 1 && takes_route_one(args))) continue;  // no groups
    expect_groups(ids, c.experts, active.host()[0], expert.host(), begin.host(), dpairs.host());
    EXPECT_EQ(visits.host()[0], 2u * static_cast<uint64_t>(active.host()[0]));
  }
}

TEST_P(CudaRows, FloatMatmulsKeepTheirBits) {
  for (Type type : {Type::F32, Type::F16, Type::BF16})
    for (int rows : {1, 2, 19})
      for (int64_t in : {31, 512, 1100}) {
        const int64_t out = 70;
        const RandomMatrix weight(type, in, out, 41);
        const Floats x = random_floats(static_cast<size_t>(rows * in), 42);
        Floats expected(static_cast<size_t>(rows * out));
        const MatmulTarget target{weight.matrix(), expected.data()};
        MatmulArgs args;
        args.x = x.data(), args.rows = rows, args.targets = {&target, 1};
        cpu_->matmul(args);
        const OnDevice<uint8_t> dw = bytes_of(weight.matrix());
        const OnDevice<float> dx(x), y(expected.size());
        Matrix m = weight.matrix();
        m.data = dw.data();
        float_matmul(s_, m, dx.data(), rows, y.data(), false);
        expect_same(y.host(), expected, "float_matmul");
        for (float& v : expected) v = v + v;
        float_matmul(s_, m, dx.data(), rows, y.data(), true);
        expect_same(y.host(), expected, "float_matmul, added");
      }
}

TEST_P(CudaRows, ExpertsInFloatFormatsKeepTheirBits) {
  for (Type type : {Type::F32, Type::F16, Type::BF16})
    for (int rows : {1, 13}) {
      const int64_t hidden = 96, ff = 45;
      const int experts = 4, k = 2;
      const RandomMatrix gate(type, hidden, ff * experts, 51), up(type, hidden, ff * experts, 52),
          down(type, ff, hidden * experts, 53);
      const Floats x = random_floats(static_cast<size_t>(rows * hidden), 54);
      // Expert 3 takes every row, expert 1 or 2 the others: one group is one pair.
      std::vector<int32_t> pairs, begin = {0}, expert;
      std::vector<std::vector<int32_t>> of(experts);
      for (int32_t r = 0; r < rows; ++r) of[r == 5 ? 1 : 2].push_back(r * k), of[3].push_back(r * k + 1);
      std::vector<ExpertWork> work;
      const auto slice = [](const RandomMatrix& m, int e, int64_t out) {
        Matrix s = m.matrix();
        s.out = out;
        s.data = static_cast<const uint8_t*>(s.data) + static_cast<uint64_t>(e) * s.bytes();
        return s;
      };
      for (int e = 0; e < experts; ++e) {
        if (of[static_cast<size_t>(e)].empty()) continue;
        const auto& list = of[static_cast<size_t>(e)];
        expert.push_back(e);
        pairs.insert(pairs.end(), list.begin(), list.end());
        begin.push_back(static_cast<int32_t>(pairs.size()));
        work.push_back({slice(gate, e, ff), slice(up, e, ff), slice(down, e, hidden), list});
      }
      Floats expected(static_cast<size_t>(rows * k * hidden));
      ExpertsArgs args;
      args.work = work, args.x = x.data(), args.top_k = k, args.parts = expected.data();
      cpu_->experts(args);
      const OnDevice<uint8_t> dgate = bytes_of(gate.matrix()), dup = bytes_of(up.matrix()),
                              ddown = bytes_of(down.matrix());
      ExpertBank bank;
      bank.gate = slice(gate, 0, ff), bank.up = slice(up, 0, ff), bank.down = slice(down, 0, hidden);
      bank.gate_stride = bank.up_stride = bank.gate.bytes(), bank.down_stride = bank.down.bytes();
      bank.gate.data = dgate.data(), bank.up.data = dup.data(), bank.down.data = ddown.data();
      bank.experts = experts;
      const OnDevice<int32_t> dactive(std::vector<int32_t>{static_cast<int32_t>(expert.size())}),
          dexpert(expert), dbegin(begin), dpairs(pairs);
      const ExpertGroups groups{dactive.data(), dexpert.data(), dbegin.data(), dpairs.data(), nullptr};
      const OnDevice<float> dx(x), act(static_cast<size_t>(rows * k * ff)), parts(expected.size());
      float_gate_up(s_, bank, groups, dx.data(), rows, k, act.data());
      float_down(s_, bank, groups, act.data(), rows, k, parts.data());
      expect_same(parts.host(), expected, type_info(type).name);
    }
}

}  // namespace
}  // namespace weir::cuda
