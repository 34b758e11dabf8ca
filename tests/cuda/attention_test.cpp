// Attention on the CUDA device. Portable: the CPU's bits. Fast: the same bits however rows are batched and
// whatever the grid was made for, and close to double.
#include <fmt/core.h>

#include "cuda/attention_cases.h"
#include "device/cuda/cuda_device.h"

namespace weir {
namespace {

class CudaAttention : public CudaTest {
 protected:
  void SetUp() override {
    CudaTest::SetUp();
    if (IsSkipped()) return;
    // A GPU that is filled by one block takes the kernel for many rows, a large one that for few.
    take_size(1);
    fast_small_ = make_cuda_device({.arithmetic = Arithmetic::fast});
    take_size(132);
    fast_ = make_cuda_device({.arithmetic = Arithmetic::fast});
  }
  void TearDown() override { fast_.reset(), fast_small_.reset(), CudaTest::TearDown(); }

  static std::string describe(const AttentionCase& c) {
    return fmt::format("{} rows to {}, {} / {} heads of {}, window {}{}", c.rows.size(), c.longest(), c.heads,
                       c.kv_heads, c.head_dim, c.window, c.sinks ? ", sinks" : "");
  }
  void expect_portable(const AttentionCase& c) {
    reserve(c.needs());
    expect_cpu_bits(describe(c), [&](Device& device) { return attend(device, c); });
  }

  /// Attention of one row and head in double.
  static std::vector<double> exact(const AttentionCase& c, size_t row, int head) {
    const Floats q = c.q(), sinks = c.sink_logits();
    const std::vector<uint16_t> k = c.cache(63), v = c.cache(64);
    const auto dim = static_cast<size_t>(c.head_dim);
    const Place at = c.rows[row];
    const int first = c.window > 0 ? std::max(0, at.position - c.window + 1) : 0;
    const auto kv =
        static_cast<size_t>(at.lane * c.lane_stride() + head / (c.heads / c.kv_heads) * c.head_dim);
    const float* query = q.data() + (row * static_cast<size_t>(c.heads) + static_cast<size_t>(head)) * dim;
    std::vector<double> s, y(dim, 0.0);
    double most = sinks.empty() ? -1e300 : static_cast<double>(sinks[static_cast<size_t>(head)]);
    for (int p = first; p <= at.position; ++p) {
      double dot = 0;
      for (size_t d = 0; d < dim; ++d)
        dot +=
            static_cast<double>(query[d]) * f16_to_f32(k[kv + static_cast<size_t>(p * c.row_stride()) + d]);
      s.push_back(dot * c.scale()), most = std::max(most, s.back());
    }
    double sum = sinks.empty() ? 0 : std::exp(sinks[static_cast<size_t>(head)] - most);
    for (double x : s) sum += std::exp(x - most);
    for (size_t i = 0; i < s.size(); ++i)
      for (size_t d = 0; d < dim; ++d)
        y[d] +=
            std::exp(s[i] - most) / sum *
            f16_to_f32(v[kv + (static_cast<size_t>(first) + i) * static_cast<size_t>(c.row_stride()) + d]);
    return y;
  }

  /// The relative error over each head's vector, the largest.
  static double worst_error(const AttentionCase& c, const Floats& got) {
    double worst = 0;
    for (size_t row = 0; row < c.rows.size(); row += 1 + c.rows.size() / 7)
      for (int head = 0; head < c.heads; ++head) {
        const std::vector<double> y = exact(c, row, head);
        double error = 0, size = 0;
        for (size_t d = 0; d < y.size(); ++d) {
          const double g =
              got[(row * static_cast<size_t>(c.heads) + static_cast<size_t>(head)) * y.size() + d];
          error += (g - y[d]) * (g - y[d]), size += y[d] * y[d];
        }
        const double relative = std::sqrt(error / size);
        worst = relative > worst || std::isnan(relative) ? relative : worst;
      }
    return worst;
  }

  void expect_fast(const AttentionCase& c) {
    fast_->reserve(c.needs()), fast_small_->reserve(c.needs());
    const Floats whole = attend(*fast_, c);
    expect_same(attend(*fast_small_, c), whole, describe(c) + ", another kernel");
    EXPECT_LT(worst_error(c, whole), 2e-3) << describe(c);
    const size_t row = static_cast<size_t>(c.heads * c.head_dim);
    for (size_t n : {1, 2, 5, 16}) {
      if (n >= c.rows.size()) continue;
      for (size_t first = 0; first < c.rows.size(); first += std::max(n, c.rows.size() / 3)) {
        const size_t count = std::min(n, c.rows.size() - first);
        const auto begin = whole.begin() + static_cast<long>(first * row);
        expect_same(attend(*fast_, c, first, count), {begin, begin + static_cast<long>(count * row)},
                    fmt::format("{}: {} rows from {}", describe(c), count, first));
      }
    }
    // The grid of a recording is made for more positions than a row has.
    AttentionCase longer = c;
    longer.capacity = c.longest() + 300;
    ScratchNeeds needs = c.needs();
    needs.longest = c.longest() + 300;
    fast_->reserve(needs);
    expect_same(attend(*fast_, c, 0, c.rows.size(), c.longest() + 300), whole, describe(c) + ", longer grid");
  }

  std::unique_ptr<Device> fast_, fast_small_;
};

AttentionCase one_row(int position, int heads, int kv_heads, int head_dim) {
  AttentionCase c;
  c.heads = heads, c.kv_heads = kv_heads, c.head_dim = head_dim;
  c.add_rows(0, position, 1);
  return c;
}

/// Rows of several lanes, at the ends of chunks.
AttentionCase lanes_apart() {
  AttentionCase c;
  c.add_rows(2, 255, 3), c.add_rows(0, 0, 1), c.add_rows(1, 63, 2), c.add_rows(3, 700, 1);
  return c;
}

TEST_F(CudaAttention, PortableHasTheCpusBitsAtEveryPosition) {
  for (int position : {0, 1, 31, 255, 256, 257, 511, 512, 700}) expect_portable(one_row(position, 4, 2, 64));
}

TEST_F(CudaAttention, PortableHasTheCpusBitsInEveryShape) {
  for (int head_dim : {64, 128, 256})
    for (int ratio : {1, 2, 4, 8}) {
      const int kv_heads = ratio == 8 ? 1 : 2;
      expect_portable(one_row(300, kv_heads * ratio, kv_heads, head_dim));
      AttentionCase c = one_row(5, kv_heads * ratio, kv_heads, head_dim);
      c.add_rows(1, 254, 4);
      expect_portable(c);
    }
  for (int head_dim : {16, 80, 96}) expect_portable(one_row(270, 4, 2, head_dim));
  expect_portable(one_row(270, 6, 2, 64));
}

TEST_F(CudaAttention, PortableSeesWindowsAndSinks) {
  for (int window : {1, 5, 100, 256, 300})
    for (bool sinks : {false, true})
      for (int position : {0, 4, 255, 256, 600}) {
        AttentionCase c = one_row(position, 4, 2, 64);
        c.window = window, c.sinks = sinks;
        expect_portable(c);
      }
  AttentionCase c = lanes_apart();
  c.sinks = true;
  expect_portable(c);
}

/// What the ledger is told of attention's keys and values.
uint64_t declared_bytes(Device& device, const AttentionCase& c) {
  Ledger ledger({.enabled = true});
  device.set_ledger(&ledger);
  ledger.begin_generation();
  ledger.begin_round(Phase::decode);
  std::vector<LaneSpan> lanes;
  for (size_t i = 0; i < c.rows.size(); ++i) {
    if (i == 0 || c.rows[i].lane != c.rows[i - 1].lane) lanes.push_back({});
    ++lanes.back().rows, lanes.back().last = c.rows[i].position;
  }
  Bench bench(device);
  float* x = bench.put(Floats(32, 1.0f));
  device.synchronize();
  device.begin_batch(lanes);
  device.begin_role(Role::attention);
  device.rms_norm({x, nullptr, x, 1, 32, 0});  // a role's first launch takes its stamp
  attend(device, c);
  ledger.end_round(static_cast<int>(c.rows.size()), static_cast<int>(lanes.size()));
  device.set_ledger(nullptr);
  return ledger.phase(Phase::decode).roles[static_cast<size_t>(Role::attention)].bytes;
}

TEST_F(CudaAttention, AWindowDeclaresTheBytesOfThePositionsInIt) {
  for (int window : {1, 100, 300})
    for (AttentionCase c : {one_row(600, 4, 2, 64), one_row(20, 4, 2, 64), lanes_apart()}) {
      c.window = window;
      reserve(c.needs());
      const uint64_t bytes = declared_bytes(*cpu_, c);
      EXPECT_GT(bytes, 0u);
      EXPECT_EQ(declared_bytes(*cuda_, c), bytes) << describe(c);
    }
}

TEST_F(CudaAttention, PortableHasTheCpusBitsForPrompts) {
  expect_portable(lanes_apart());
  for (int rows : {2, 9, 16, 17, 33, 64, 100})
    for (int first : {0, 230}) {
      if (rows == 100 && first > 0) continue;
      AttentionCase c;
      c.kv_heads = 1;
      c.add_rows(0, first, rows);
      if (rows == 33) c.window = 20, c.sinks = true;
      expect_portable(c);
    }
}

TEST_F(CudaAttention, FastIsCloseToDoubleAndTheSameInEveryBatch) {
  for (int position : {0, 1, 63, 64, 255, 256, 700}) expect_fast(one_row(position, 4, 2, 64));
  for (int head_dim : {64, 128, 256})
    for (int ratio : {1, 4, 8}) {
      AttentionCase c = one_row(5, ratio, 1, head_dim);
      c.add_rows(1, 60, 6);
      expect_fast(c);
    }
  expect_fast(lanes_apart());
  AttentionCase decided = lanes_apart();
  decided.score_scale = 8;
  expect_fast(decided);
}

TEST_F(CudaAttention, FastPromptsEqualTheirRowsAlone) {
  for (int rows : {17, 33, 64, 100}) {
    AttentionCase c;
    c.add_rows(0, rows == 64 ? 190 : 0, rows);
    c.kv_heads = rows == 33 ? 1 : 2;
    if (rows == 33) c.window = 20, c.sinks = true;
    expect_fast(c);
  }
  AttentionCase mixed;  // a prompt and decoding lanes in one batch
  mixed.add_rows(0, 0, 40), mixed.add_rows(1, 333, 1), mixed.add_rows(2, 70, 1);
  expect_fast(mixed);
}

/// So many rows that any GPU takes the kernel for many.
TEST_F(CudaAttention, ALongFastPromptEqualsItsRowsAlone) {
  AttentionCase c;
  c.heads = c.kv_heads = 8;
  c.add_rows(0, 0, 600);
  fast_->reserve(c.needs());
  const Floats whole = attend(*fast_, c);
  const size_t row = static_cast<size_t>(c.heads * c.head_dim);
  for (size_t r : {0, 64, 333, 599})
    expect_same(
        attend(*fast_, c, r, 1),
        {whole.begin() + static_cast<long>(r * row), whole.begin() + static_cast<long>((r + 1) * row)},
        fmt::format("row {}", r));
}

TEST_F(CudaAttention, FastSeesWindowsAndSinks) {
  for (int window : {1, 5, 64, 100})
    for (int position : {0, 63, 64, 300}) {
      AttentionCase c = one_row(position, 4, 2, 64);
      c.window = window, c.sinks = true;
      c.add_rows(1, position, 2);
      expect_fast(c);
    }
}

AttentionCase rows_at(const std::vector<Place>& places, int heads, int kv_heads, int head_dim) {
  AttentionCase c;
  c.heads = heads, c.kv_heads = kv_heads, c.head_dim = head_dim;
  for (const Place& p : places) c.add_rows(p.lane, p.position, 1);
  return c;
}

/// Keys or values of what came before the batch's rows; NaN from each row's own place on.
std::vector<uint16_t> earlier_cache(const AttentionCase& c) {
  std::vector<uint16_t> cache = c.cache(63);
  for (const Place& p : c.rows)
    for (int64_t i = p.position * c.row_stride(); i < c.capacity * c.row_stride(); ++i)
      cache[static_cast<size_t>(p.lane * c.lane_stride() + i)] = 0x7fff;
  return cache;
}

/// What rotates and stores the case's rows; `positions` of its tables.
RopeStoreArgs rope_of(Bench& bench, const AttentionCase& c, int positions) {
  const size_t kv = c.rows.size() * static_cast<size_t>(c.kv_heads * c.head_dim);
  const auto dim = static_cast<size_t>(c.head_dim), table = static_cast<size_t>(positions) * dim / 2;
  RopeStoreArgs rope;
  rope.q = bench.put(c.q()), rope.k = bench.put(random_floats(kv, 1)),
  rope.v = bench.put(random_floats(kv, 2));
  rope.k_norm = bench.put(random_floats(dim, 3));
  rope.eps = 1e-6f, rope.heads = c.heads, rope.kv_heads = c.kv_heads, rope.head_dim = c.head_dim;
  rope.rope = {bench.put(random_floats(table, 4)), bench.put(random_floats(table, 5)), c.head_dim};
  const std::vector<uint16_t> cache = earlier_cache(c);
  rope.kv = {bench.put(cache), bench.put(cache), c.lane_stride(), c.row_stride()};
  return rope;
}

/// The case's rows rotated, stored and attended, with `between` called before the attention.
template <typename Between>
Floats rotate_and_attend(Device& device, const AttentionCase& c, const Between& between) {
  Bench bench(device);
  RopeStoreArgs rope = rope_of(bench, c, c.longest());
  rope.rows = put_rows(bench, c.rows);
  AttendArgs args;
  args.q = rope.q, args.out = bench.poisoned(c.q_size());
  args.heads = c.heads, args.kv_heads = c.kv_heads, args.head_dim = c.head_dim, args.scale = c.scale();
  args.rows = rope.rows, args.kv = rope.kv;
  device.rope_and_store(rope);
  between(bench, args);
  device.attend(args);
  Floats result = bench.get(args.out, c.q_size());
  for (const uint16_t* values : {rope.kv.k, rope.kv.v})
    for (uint16_t h : bench.get(values, c.cache_size())) result.push_back(h);
  return result;
}

TEST_F(CudaAttention, WhatComesBetweenRotationAndAttentionChangesNothing) {
  for (int size = 0; size < 3; ++size, TearDown(), SetUp())  // few and many multiprocessors
    for (const std::vector<Place>& places :
         {std::vector<Place>{{0, 0}}, {{0, 64}}, {{0, 300}}, {{2, 90}, {0, 300}, {1, 64}}}) {
      const AttentionCase c = rows_at(places, 8, 2, 64);
      const auto rows = static_cast<int>(places.size());
      ScratchNeeds needs = c.needs();
      needs.max_in = 512;
      reserve(needs);
      fast_->reserve(needs);
      const auto nothing = [](Bench&, AttendArgs&) {};
      expect_cpu_bits(describe(c), [&](Device& device) { return rotate_and_attend(device, c, nothing); });
      for (Device* device : {cuda_.get(), fast_.get()}) {
        const Floats at_once = rotate_and_attend(*device, c, nothing);
        const auto looked = [&](Bench& bench, AttendArgs& args) { bench.get(args.q, 1); };
        expect_same(rotate_and_attend(*device, c, looked), at_once, "looked at");
        const auto copied = [&](Bench& bench, AttendArgs& args) {
          float* q = bench.poisoned(c.q_size());
          const int32_t* all = bench.put(std::vector<int32_t>{0, 1, 2});
          device->gather_rows(args.q, all, rows, int64_t{c.heads} * c.head_dim, q);
          args.q = q;
        };
        expect_same(rotate_and_attend(*device, c, copied), at_once, "copied");
        const auto elsewhere = [&](Bench& bench, AttendArgs& args) {
          const Floats q = bench.get(args.q, c.q_size());
          args.q = bench.put(q);
        };
        expect_same(rotate_and_attend(*device, c, elsewhere), at_once, "elsewhere");
        if (rows == 1) continue;
        const auto fewer = [&](Bench&, AttendArgs& args) { --args.rows.count; };
        const auto not_said = [&](Bench&, AttendArgs& args) { args.rows.lone = false; };
        expect_same(rotate_and_attend(*device, c, not_said), at_once, "not said to be lone");
        Floats of_fewer = rotate_and_attend(*device, c, fewer), expected = at_once;
        for (size_t i = c.q_size() / places.size() * (places.size() - 1); i < c.q_size(); ++i)
          of_fewer[i] = expected[i] = 0;
        expect_same(of_fewer, expected, "the last row not attended");
      }
    }
}

/// Two rows of a lane, the second of which reads the key of the first, beside one that is alone.
TEST_F(CudaAttention, RowsOfOneLaneSeeEachOther) {
  for (int head_dim : {64, 128}) {
    const AttentionCase c = rows_at({{1, 63}, {1, 64}, {0, 200}}, 4, 2, head_dim);
    reserve(c.needs());
    const auto nothing = [](Bench&, AttendArgs&) {};
    expect_cpu_bits(describe(c), [&](Device& device) { return rotate_and_attend(device, c, nothing); });
    fast_->reserve(c.needs()), fast_small_->reserve(c.needs());
    const Floats fast = rotate_and_attend(*fast_, c, nothing);
    expect_same(rotate_and_attend(*fast_small_, c, nothing), fast, "another kernel");
    const Floats portable = rotate_and_attend(*cuda_, c, nothing);
    for (size_t i = 0; i < c.q_size(); ++i) ASSERT_NEAR(fast[i], portable[i], 2e-3) << i;
  }
}

/// Batches of equally many rows by turns, lone and not: each by its own recording, with what memory holds
/// when that is replayed.
TEST_F(CudaAttention, ARecordingIsOfLoneRowsOrOfOthers) {
  const std::vector<std::vector<Place>> batches = {{{2, 90}, {0, 200}, {1, 64}}, {{2, 90}, {2, 91}, {1, 64}},
                                                   {{1, 63}, {2, 5}, {0, 127}},  {{1, 63}, {1, 64}, {1, 65}},
                                                   {{0, 0}, {1, 200}, {2, 150}}, {{0, 10}, {2, 11}, {2, 12}}};
  AttentionCase all = rows_at(batches[0], 8, 2, 64);
  all.capacity = 256;
  ScratchNeeds needs = all.needs();
  needs.longest = all.capacity;
  fast_->reserve(needs);
  const auto replay = [&](bool recorded) {
    Bench bench(*fast_);
    RopeStoreArgs rope = rope_of(bench, all, all.capacity);
    const Floats q = all.q(), k = random_floats(3 * 128, 1);
    const std::vector<uint16_t> cache(all.cache_size(), 0x3c00);
    Buffer host = fast_->allocate_host(6 * sizeof(int32_t), "a test");
    auto* batch = host.as<int32_t>();
    const int32_t* on_device = bench.put(std::vector<int32_t>(6));
    float* const out = bench.poisoned(all.q_size());
    Floats results;
    for (const std::vector<Place>& places : batches) {
      const bool lone = places[0].lane != places[1].lane && places[1].lane != places[2].lane;
      for (size_t i = 0; i < 3; ++i) batch[i] = places[i].position, batch[3 + i] = places[i].lane;
      fast_->upload(rope.q, q.data(), q.size() * sizeof(float));
      fast_->upload(rope.k, k.data(), k.size() * sizeof(float));
      fast_->upload(rope.kv.k, cache.data(), cache.size() * sizeof(uint16_t));
      fast_->upload(rope.kv.v, cache.data(), cache.size() * sizeof(uint16_t));
      fast_->synchronize();
      const RecordKey key{3, 3, all.capacity, lone ? 4u : 0u};
      rope.rows = {3, nullptr, on_device, on_device + 3, all.capacity, lone};
      if (!recorded || !fast_->replay(key, 0)) {
        if (recorded) fast_->begin_record(key);
        fast_->upload(const_cast<int32_t*>(on_device), batch, 6 * sizeof(int32_t));
        fast_->rope_and_store(rope);
        fast_->attend({rope.q, out, 8, 2, 64, all.scale(), 0, nullptr, rope.rows, rope.kv});
        if (recorded) fast_->end_record();
      }
      append(results, bench.get(out, all.q_size()));
      for (uint16_t h : bench.get(rope.kv.k, all.cache_size())) results.push_back(h);
    }
    return results;
  };
  expect_same(replay(true), replay(false), "recorded");
}

TEST_F(CudaAttention, AMatmulReadsWhatAttentionWroteLast) {
  const std::vector<std::vector<Place>> batches = {
      {{0, 70}}, {{2, 90}, {0, 300}, {1, 64}}, {{0, 5}, {0, 6}}, {{0, 5}, {3, 1}, {3, 2}, {1, 260}}};
  for (int size = 0; size < 3; ++size, TearDown(), SetUp())
    for (size_t i = 0; i < 2 * batches.size(); ++i) {
      const int heads = i % 2 ? 4 : 8;  // 256 and 512 values
      const AttentionCase c = rows_at(batches[i / 2], heads, 2, 64);
      const auto rows = static_cast<int>(c.rows.size());
      ScratchNeeds needs = c.needs();
      needs.max_in = 512, needs.hidden = 64;
      reserve(needs);
      const RandomMatrix weight(Type::Q4_K, heads * 64, 40, 7), other(Type::Q8_0, heads * 64, 24, 8);
      expect_cpu_bits(describe(c), [&](Device& device) {
        Bench bench(device);
        AttendArgs args;
        args.q = bench.put(c.q()), args.out = bench.poisoned(c.q_size());
        args.heads = c.heads, args.kv_heads = c.kv_heads, args.head_dim = c.head_dim, args.scale = c.scale();
        args.rows = put_rows(bench, c.rows);
        args.kv = {bench.put(c.cache(63)), bench.put(c.cache(64)), c.lane_stride(), c.row_stride()};
        const size_t count = 40 * c.rows.size(), other_count = 24 * c.rows.size();
        float *y = bench.put(Floats(count, 0.5f)), *z = bench.put(Floats(other_count, 0.5f));
        const Matrix matrix = bench.put(weight, true);
        const float* const norm = bench.put(random_floats(static_cast<size_t>(heads * 64), 9));
        const MatmulTarget target[] = {{matrix, y, true}};
        const MatmulTarget both[] = {{bench.put(other), z, true}, {matrix, y, true}};
        device.attend(args);
        device.matmul({args.out, rows, target});
        device.attend(args);  // where another format's activations come in between
        device.matmul({args.out, rows, both});
        device.attend(args);  // where there is a norm
        device.matmul({args.out, rows, target, norm, 1e-6f});
        device.attend(args);  // and where another writes the rows in between
        device.add(args.out, args.q, static_cast<int64_t>(c.q_size()));
        device.matmul({args.out, rows, target});
        Floats result = bench.get(y, count);
        append(result, bench.get(z, other_count));
        return result;
      });
    }
}

/// From the rotation to the sum with the residual stream, with weights that take activations of 256 values.
TEST_F(CudaAttention, AFewLoneRowsTakeThreeLaunchesAsOneDoes) {
  const std::vector<Place> lone = {{2, 90}, {0, 200}, {1, 64}}, others = {{2, 90}, {2, 91}, {1, 64}};
  const RandomMatrix weight(Type::Q4_K, 512, 40, 7);
  const auto launches = [&](Arithmetic arithmetic, const std::vector<Place>& places) {
    take_size(132);
    cuda::CudaDevice device({.arithmetic = arithmetic});
    const AttentionCase c = rows_at(places, 8, 2, 64);
    ScratchNeeds needs = c.needs();
    needs.max_in = 512, needs.hidden = 64;
    device.reserve(needs);
    Bench bench(device);
    RopeStoreArgs rope = rope_of(bench, c, c.longest());
    rope.rows = put_rows(bench, c.rows);
    const MatmulTarget target[] = {{bench.put(weight, true), bench.poisoned(40 * c.rows.size()), false}};
    float* const out = bench.poisoned(c.q_size());
    const uint64_t before = device.launches();
    device.rope_and_store(rope);
    device.attend({rope.q, out, 8, 2, 64, c.scale(), 0, nullptr, rope.rows, rope.kv});
    device.matmul({out, rope.rows.count, target});
    return device.launches() - before;
  };
  for (const Arithmetic arithmetic : {Arithmetic::fast, Arithmetic::portable}) {
    const bool fast = arithmetic == Arithmetic::fast;
    EXPECT_EQ(launches(arithmetic, {{1, 100}}), 3u);
    EXPECT_EQ(launches(arithmetic, lone), fast ? 3u : 4u);
    EXPECT_EQ(launches(arithmetic, others), 4u);
  }
}

}  // namespace
}  // namespace weir
