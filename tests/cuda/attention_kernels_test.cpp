// Attention's launchers by themselves: the portable arithmetic against the scalar kernels' bits, the fast one
// against double, and that neither batch, slices nor the choice of kernels changes a bit of a row.
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <set>
#include <tuple>
#include <vector>

#include "base/half.h"
#include "cuda/on_device.h"
#include "device/cpu/kernels.h"
#include "device/cuda/kernels.h"

namespace weir::cuda {
namespace {

struct Shape {
  int heads, kv_heads, head_dim;
  int window = 0;
  bool sinks = false;
};

struct Row {
  int lane, position;
};

/// A batch, its cache of `positions` positions a lane, and what calls need beside them.
struct Batch {
  Shape shape;
  std::vector<Row> rows;
  int positions, lanes = 3;
  std::vector<float> q, sinks;
  std::vector<uint16_t> k, v;

  Batch(const Shape& with, std::vector<Row> of, unsigned seed) : shape(with), rows(std::move(of)) {
    positions = 0;
    for (const Row& r : rows)
      positions = std::max(positions, r.position + 1), lanes = std::max(lanes, r.lane + 1);
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    const auto fill = [&](std::vector<float>& x, size_t n, float by) {
      x.resize(n);
      for (float& value : x) value = by * normal(random);
    };
    const auto fill16 = [&](std::vector<uint16_t>& x, size_t n) {
      x.resize(n);
      for (uint16_t& value : x) value = f32_to_f16(normal(random));
    };
    fill(q, rows.size() * row_floats(), 3);
    fill(sinks, static_cast<size_t>(shape.heads), 2);
    fill16(k, static_cast<size_t>(lanes * lane_stride()));
    fill16(v, static_cast<size_t>(lanes * lane_stride()));
  }
  size_t row_floats() const { return static_cast<size_t>(shape.heads * shape.head_dim); }
  int64_t row_stride() const { return static_cast<int64_t>(shape.kv_heads) * shape.head_dim; }
  int64_t lane_stride() const { return positions * row_stride(); }
  float scale() const { return 1.0f / std::sqrt(static_cast<float>(shape.head_dim)); }
  int first(const Row& r) const { return shape.window > 0 ? std::max(0, r.position - shape.window + 1) : 0; }

  struct How {
    Arithmetic arithmetic = Arithmetic::portable;
    int multiprocessors = 132;  ///< fewer: more work a block
    size_t partial_bytes = 0;   ///< 0: as attend_partial_bytes says
    uint64_t kv_positions = 0;
  };
  std::vector<float> attend(const How& how) const {
    std::vector<int32_t> position, lane;
    for (const Row& r : rows) position.push_back(r.position), lane.push_back(r.lane);
    const OnDevice<float> on_q(q), on_sinks(sinks), out(std::vector<float>(q.size(), NAN));
    const OnDevice<uint16_t> on_k(k), on_v(v);
    const OnDevice<int32_t> on_position(position), on_lane(lane);
    const size_t bytes = how.partial_bytes ? how.partial_bytes
                                           : attend_partial_bytes(static_cast<int>(rows.size()), shape.heads,
                                                                  shape.head_dim, positions);
    const OnDevice<uint8_t> partials(std::vector<uint8_t>(bytes, 0xff));
    AttendArgs args;
    args.q = on_q.data(), args.out = out.data();
    args.heads = shape.heads, args.kv_heads = shape.kv_heads, args.head_dim = shape.head_dim;
    args.scale = scale(), args.window = shape.window;
    args.sinks = shape.sinks ? on_sinks.data() : nullptr;
    args.rows.count = static_cast<int>(rows.size()), args.rows.position = on_position.data();
    args.rows.lane = on_lane.data(), args.rows.longest = positions;
    args.rows.kv_positions = how.kv_positions;
    args.kv = {on_k.data(), on_v.data(), lane_stride(), row_stride()};
    Stream s;
    s.multiprocessors = how.multiprocessors;
    cuda::attend(s, args, how.arithmetic, partials.data(), bytes);
    return out.host();
  }

  Batch alone(size_t row) const {
    Batch b = *this;
    b.rows = {rows[row]};
    b.q.assign(q.begin() + static_cast<ptrdiff_t>(row * row_floats()),
               q.begin() + static_cast<ptrdiff_t>((row + 1) * row_floats()));
    return b;
  }

  std::vector<float> scalar() const {
    std::vector<float> out(q.size());
    const int ratio = shape.heads / shape.kv_heads;
    std::vector<float> scratch(static_cast<size_t>(cpu::attend_scratch_floats(ratio, shape.head_dim)));
    for (size_t r = 0; r < rows.size(); ++r)
      for (int kv = 0; kv < shape.kv_heads; ++kv) {
        const size_t at = r * row_floats() + static_cast<size_t>(kv * ratio * shape.head_dim);
        const int64_t base = rows[r].lane * lane_stride() + kv * shape.head_dim;
        cpu::AttendTask t;
        t.q = q.data() + at, t.out = out.data() + at;
        t.k = k.data() + base, t.v = v.data() + base, t.stride = row_stride();
        t.first = first(rows[r]), t.last = rows[r].position;
        t.heads = ratio, t.head_dim = shape.head_dim, t.scale = scale();
        t.sinks = shape.sinks ? sinks.data() + kv * ratio : nullptr;
        t.scratch = scratch.data();
        cpu::scalar_float_kernels().attend_heads(t);
      }
    return out;
  }

  std::vector<double> exact() const {
    std::vector<double> out(q.size());
    const int n = shape.head_dim, ratio = shape.heads / shape.kv_heads;
    for (size_t r = 0; r < rows.size(); ++r)
      for (int h = 0; h < shape.heads; ++h) {
        const float* query = q.data() + r * row_floats() + h * n;
        double* y = out.data() + r * row_floats() + h * n;
        double sum = shape.sinks ? std::exp(static_cast<double>(sinks[static_cast<size_t>(h)])) : 0;
        for (int j = first(rows[r]); j <= rows[r].position; ++j) {
          const int64_t at = rows[r].lane * lane_stride() + j * row_stride() + h / ratio * n;
          double s = 0;
          for (int d = 0; d < n; ++d)
            s += static_cast<double>(query[d]) * f16_to_f32(k[static_cast<size_t>(at + d)]);
          const double p = std::exp(s * scale());
          sum += p;
          for (int d = 0; d < n; ++d) y[d] += p * f16_to_f32(v[static_cast<size_t>(at + d)]);
        }
        for (int d = 0; d < n; ++d) y[d] /= sum;
      }
    return out;
  }
};

std::vector<Row> prompt(int lane, int first, int count) {
  std::vector<Row> rows;
  for (int i = 0; i < count; ++i) rows.push_back({lane, first + i});
  return rows;
}

/// Rows of several lanes, some of them neighbours in a lane, at and around the ends of chunks.
const std::vector<Row> mixed = {{0, 62}, {0, 63}, {0, 64}, {1, 3}, {2, 255}, {2, 256}, {2, 300}, {1, 130}};

class AttentionShape : public testing::TestWithParam<Shape> {};

TEST_P(AttentionShape, PortableHasTheBitsOfTheScalarKernels) {
  const Batch b(GetParam(), mixed, 1);
  expect_same_bits(b.attend({}), b.scalar());
}

TEST_P(AttentionShape, PortableRowsThatShareABlockHaveTheSameBits) {
  std::vector<Row> rows = prompt(0, 250, 10);
  while (rows.size() < 64) rows.push_back({1, static_cast<int>(rows.size()) - 10});
  const Batch b(GetParam(), rows, 2);
  expect_same_bits(b.attend({.multiprocessors = 1}), b.scalar());
}

TEST_P(AttentionShape, FastIsNearTheExactResult) {
  const Batch b(GetParam(), mixed, 3);
  const std::vector<double> exact = b.exact();
  for (const int multiprocessors : {1, 1000}) {
    const std::vector<float> y =
        b.attend({.arithmetic = Arithmetic::fast, .multiprocessors = multiprocessors});
    for (size_t i = 0; i < y.size(); ++i)
      ASSERT_NEAR(y[i], exact[i], 2e-3) << "element " << i << ", " << multiprocessors << " multiprocessors";
  }
}

TEST_P(AttentionShape, FastHasTheSameBitsWalkedAndInChunks) {
  const Batch b(GetParam(), mixed, 4);
  const auto walked = b.attend({.arithmetic = Arithmetic::fast, .multiprocessors = 1});
  expect_same_bits(walked, b.attend({.arithmetic = Arithmetic::fast, .multiprocessors = 1000}));
  // Lanes of their own: a row a block.
  expect_same_bits(
      walked, b.attend({.arithmetic = Arithmetic::fast, .multiprocessors = 1000, .kv_positions = 1u << 20}));
}

TEST_P(AttentionShape, FastRowsAloneHaveTheBitsOfTheBatch) {
  const Batch b(GetParam(), mixed, 5);
  const auto batch = b.attend({.arithmetic = Arithmetic::fast, .multiprocessors = 1});
  for (size_t r = 0; r < b.rows.size(); ++r)
    expect_same_bits(batch, b.alone(r).attend({.arithmetic = Arithmetic::fast}), r * b.row_floats());
}

TEST_P(AttentionShape, SlicesChangeNothing) {
  const Batch b(GetParam(), mixed, 6);
  const size_t one_row = attend_partial_bytes(1, b.shape.heads, b.shape.head_dim, b.positions);
  for (const Arithmetic arithmetic : {Arithmetic::portable, Arithmetic::fast})
    expect_same_bits(
        b.attend({.arithmetic = arithmetic, .multiprocessors = 1000, .partial_bytes = one_row * 3}),
        b.attend({.arithmetic = arithmetic, .multiprocessors = 1000}));
}

TEST_P(AttentionShape, WhatLiesBehindALanesLastPositionDoesNotMatter) {
  Batch b(GetParam(), {{0, 70}, {1, 200}, {0, 100}}, 7);
  for (const Arithmetic arithmetic : {Arithmetic::portable, Arithmetic::fast})
    for (const int multiprocessors : {1, 1000}) {
      const auto before = b.attend({.arithmetic = arithmetic, .multiprocessors = multiprocessors});
      Batch stale = b;
      for (int64_t i = 101 * b.row_stride(); i < b.lane_stride(); ++i)
        stale.k[static_cast<size_t>(i)] = stale.v[static_cast<size_t>(i)] = 0x7e00;  // NaN
      expect_same_bits(stale.attend({.arithmetic = arithmetic, .multiprocessors = multiprocessors}), before);
    }
}

TEST_P(AttentionShape, ALaneThatIsNotFiniteTouchesNoOther) {
  const Batch sound(GetParam(), {{0, 70}, {0, 71}, {1, 200}, {1, 201}, {2, 30}}, 11);
  Batch damaged = sound;
  for (int64_t i = 0; i < sound.lane_stride(); ++i) damaged.v[static_cast<size_t>(i)] = 0x7e00;  // NaN
  const auto others = [&](std::vector<float> out) {
    out.erase(out.begin(), out.begin() + static_cast<std::ptrdiff_t>(2 * sound.row_floats()));
    return out;
  };
  for (const Arithmetic arithmetic : {Arithmetic::portable, Arithmetic::fast})
    for (const int multiprocessors : {1, 1000}) {
      const Batch::How how{.arithmetic = arithmetic, .multiprocessors = multiprocessors};
      expect_same_bits(others(damaged.attend(how)), others(sound.attend(how)));
    }
}

INSTANTIATE_TEST_SUITE_P(Shapes, AttentionShape,
                         testing::Values(Shape{16, 2, 128}, Shape{4, 4, 64, 0, true},
                                         Shape{6, 2, 128, 100, true}, Shape{4, 2, 256, 65}, Shape{16, 1, 64},
                                         Shape{20, 1, 64}, Shape{5, 1, 80}, Shape{4, 2, 96, 64, true},
                                         Shape{2, 1, 8}),
                         [](const auto& test) {
                           const Shape& s = test.param;
                           return fmt::format("h{}of{}d{}w{}{}", s.heads, s.kv_heads, s.head_dim, s.window,
                                              s.sinks ? "sinks" : "");
                         });

TEST(Attention, JoinsMoreChunksThanABlockHolds) {
  // 64 * 512 positions are one pass of the joining kernel.
  const Batch b({1, 1, 64, 0, true}, {{0, 64 * 514 + 5}}, 8);
  const auto walked = b.attend({.arithmetic = Arithmetic::fast, .multiprocessors = 1});
  expect_same_bits(b.attend({.arithmetic = Arithmetic::fast, .multiprocessors = 1000}), walked);
}

TEST(Attention, LoadsOfAWindowBeginAtAnOddChunk) {
  const Batch b({2, 1, 64, 100, false}, {{0, 64 * 70 + 5}, {0, 64 * 71 + 5}}, 9);
  const auto walked = b.attend({.arithmetic = Arithmetic::fast, .multiprocessors = 1});
  expect_same_bits(b.attend({.arithmetic = Arithmetic::fast, .multiprocessors = 1000}), walked);
  expect_same_bits(b.attend({}), b.scalar());
}

TEST(Attention, PartialsAreBounded) {
  EXPECT_LE(attend_partial_bytes(4096, 32, 128, 4096), size_t{64} << 20);
  EXPECT_GE(attend_partial_bytes(1, 32, 128, 32768), size_t{32} * 512 * (128 * 4 + 8));
  EXPECT_LE(attend_partial_bytes(4096, 32, 128, 1 << 20), size_t{96} << 20);
}

// --- rows that are rotated and stored on the way
// -----------------------------------------------------------------------------

bool are_lone(const std::vector<Row>& rows) {
  std::set<int> seen;
  return std::all_of(rows.begin(), rows.end(), [&](const Row& r) { return seen.insert(r.lane).second; });
}

/// What the host knows of them.
Rows lone_of(const std::vector<Row>& rows) {
  Rows known;
  known.count = static_cast<int>(rows.size()), known.lone = are_lone(rows);
  return known;
}

/// `count` rows, 16 at most, each alone in its lane: lanes in no order, positions from one to many chunks.
std::vector<Row> lone_rows(int count) {
  constexpr int position[] = {300, 0, 64, 17, 255, 63, 1, 128, 65, 299, 190, 5, 127, 256, 32, 96};
  std::vector<Row> rows;
  for (int i = 0; i < count; ++i) rows.push_back({(5 * i + 2) % 16, position[i]});
  return rows;
}

struct FusedCase {
  Shape shape;
  int n_rot;
  RopeStyle style;
  bool norm;
};

/// Everything a call reads and writes; each run begins with the same contents.
class FusedAttention : public testing::TestWithParam<FusedCase> {
 protected:
  struct Result {
    std::vector<float> out;
    std::vector<uint16_t> k, v;
    bool operator==(const Result&) const = default;
  };
  struct How {
    Arithmetic arithmetic;
    int longest;
    bool fused;
    ActFormat acts = ActFormat::none;
    int multiprocessors = 1000;
    bool settled = false;
    bool just_written = false;  ///< a kernel right before the call writes the cache
    int slice_rows = 0;         ///< memory for the chunks of so many rows; 0: of all
  };

  Result run(int position, const How& how) { return run({{1, position}}, how); }
  Result run(const std::vector<Row>& rows, const How& how) {
    const auto& [shape, n_rot, style, norm] = GetParam();
    const int n = shape.head_dim, count = static_cast<int>(rows.size());
    Batch b(shape, rows, 20);
    std::vector<int32_t> position, lane;
    for (const Row& r : rows) {
      position.push_back(r.position), lane.push_back(r.lane);
      // The row's own place in the cache and what is behind it hold NaNs.
      for (int64_t i = r.lane * b.lane_stride() + r.position * b.row_stride();
           i < (r.lane + 1) * b.lane_stride(); ++i)
        b.k[static_cast<size_t>(i)] = b.v[static_cast<size_t>(i)] = 0x7e00;
    }
    std::mt19937 random(21);
    std::normal_distribution<float> normal;
    const auto floats = [&](int how_many) {
      std::vector<float> x(static_cast<size_t>(how_many));
      for (float& value : x) value = normal(random);
      return x;
    };
    const OnDevice<float> q(b.q), k(floats(count * shape.kv_heads * n)),
        v(floats(count * shape.kv_heads * n)), q_norm(floats(n)), k_norm(floats(n)),
        cos(floats(b.positions * n_rot / 2)), sin(floats(b.positions * n_rot / 2)), sinks(b.sinks);
    const OnDevice<float> out(std::vector<float>(b.q.size(), NAN));
    const OnDevice<uint16_t> k_cache(b.k), v_cache(b.v);
    const OnDevice<int32_t> on_position(position), on_lane(lane);
    const size_t bytes =
        attend_partial_bytes(how.slice_rows ? how.slice_rows : count, shape.heads, n, how.longest);
    const OnDevice<uint8_t> partials(std::vector<uint8_t>(bytes, 0xff));
    RopeStoreArgs rope;
    rope.q = q.data(), rope.k = k.data(), rope.v = v.data();
    if (norm) rope.q_norm = q_norm.data(), rope.k_norm = k_norm.data();
    rope.eps = 1e-6f, rope.heads = shape.heads, rope.kv_heads = shape.kv_heads, rope.head_dim = n;
    rope.rope = {cos.data(), sin.data(), n_rot, style};
    rope.rows.count = count, rope.rows.position = on_position.data(), rope.rows.lane = on_lane.data();
    rope.rows.longest = how.longest, rope.rows.lone = are_lone(rows);
    rope.kv = {k_cache.data(), v_cache.data(), b.lane_stride(), b.row_stride()};
    AttendArgs args;
    args.q = q.data(), args.out = out.data();
    args.heads = shape.heads, args.kv_heads = shape.kv_heads, args.head_dim = n;
    args.scale = b.scale(), args.window = shape.window, args.sinks = shape.sinks ? sinks.data() : nullptr;
    args.rows = rope.rows, args.kv = rope.kv;
    Stream s;
    s.multiprocessors = how.multiprocessors;
    const QuantisedRows quantised(count, shape.heads * n,
                                  how.acts);  // a copy, which waits for what was launched
    if (!how.fused || how.just_written) rope_and_store(s, rope);
    AttendMore more;
    if (how.fused) more.rope = &rope;
    more.settled = how.settled;
    if (how.acts != ActFormat::none) more.acts = &quantised.acts;
    const bool written = attend(s, args, how.arithmetic, partials.data(), bytes, more);
    if (how.acts != ActFormat::none) expect_acts(s, args, quantised, written, how);
    return {out.host(), k_cache.host(), v_cache.host()};
  }

  static bool has_fast_kernels() {
    const int n = GetParam().shape.head_dim;
    return n == 64 || n == 128 || n == 256;
  }

  /// The rows' activations, poisoned.
  struct QuantisedRows {
    OnDevice<int8_t> q;
    OnDevice<float> scale;
    OnDevice<int16_t> sums;
    Acts acts;
    QuantisedRows(int rows, int in, ActFormat format)
        : q(std::vector<int8_t>(static_cast<size_t>(rows * in), 77)),
          scale(std::vector<float>(static_cast<size_t>(rows * in / 8 + 1), 77.0f)),
          sums(std::vector<int16_t>(static_cast<size_t>(rows * in / 8 + 1), 77)),
          acts{q.data(), scale.data(), sums.data(), in, format} {}
  };
  /// Written where the shape allows it, and then as quantise() writes it.
  void expect_acts(Stream& s, const AttendArgs& args, const QuantisedRows& got, bool written,
                   const How& how) {
    const int n = args.head_dim, outputs = args.heads * n;
    const int chunk = how.arithmetic == Arithmetic::fast && has_fast_kernels() ? 64 : 256;
    const bool walks = how.multiprocessors == 1 && chunk == 64;
    // What the fast arithmetic's chunks take for three rows is enough for all in the portable one's.
    const bool at_once = how.slice_rows == 0 || chunk == 256 || args.rows.count <= how.slice_rows;
    EXPECT_EQ(written, n % 32 == 0 && 256 % n == 0 && outputs % 256 == 0 && how.longest <= 128 * chunk &&
                           !walks && at_once);
    if (!written) return;
    const QuantisedRows want(args.rows.count, outputs, how.acts);
    quantise(s, args.out, nullptr, 0, args.rows.count, outputs, want.acts);
    EXPECT_EQ(got.q.host(), want.q.host());
    EXPECT_EQ(got.scale.host(), want.scale.host());
    EXPECT_EQ(got.sums.host(), want.sums.host());
  }
};

TEST_P(FusedAttention, HasTheBitsOfTwoSteps) {
  for (const Arithmetic arithmetic : {Arithmetic::fast, Arithmetic::portable})
    for (const int position : {0, 1, 17, 63, 64, 65, 255, 256, 300})
      for (const int longest : {position + 1, 700}) {
        const Result apart = run(position, {arithmetic, longest, false});
        for (const bool settled : {false, true}) {
          const Result fused = run(position, {arithmetic, longest, true, ActFormat::none, 1000, settled});
          expect_same_bits(fused.out, apart.out);
          EXPECT_EQ(fused.k, apart.k) << position;
          EXPECT_EQ(fused.v, apart.v) << position;
          ASSERT_FALSE(HasFailure()) << "position " << position << " of " << longest << ", settled "
                                     << settled;
        }
      }
}

#if defined(WEIR_CUDA_EMULATION)
/// What may still be written when the call starts is not settled, and to say so is found out. (Every other
/// launch is watched.)
TEST_P(FusedAttention, ReadsNothingAheadThatIsNotSettled) {
  if (!has_fast_kernels()) return;  // they alone read ahead
  constexpr int position = 40;      // in the first chunk, whose block is the one that is watched
  for (const auto& rows : {std::vector<Row>{{1, position}}, std::vector<Row>{{2, position}, {0, 7}}}) {
    How how{Arithmetic::fast, position + 1, true};
    how.just_written = true;
    for (int i = 0; i < 4; ++i) run(rows, how);
    how.settled = true;
    std::string text;
    for (int i = 0; i < 64 && text.empty(); ++i) try {
        run(rows, how);
      } catch (const Error& e) {
        text = e.what();
      }
    EXPECT_NE(text.find("before wait_for_previous()"), std::string::npos) << text;
  }
}
#endif

TEST_P(FusedAttention, LoneRowsHaveTheBitsOfTwoSteps) {
  if (!has_fast_kernels()) return;
  for (const auto& [count, longest] : {std::pair{2, 700}, {3, 301}, {5, 700}, {16, 301}}) {
    const std::vector<Row> rows = lone_rows(count);
    const Result apart = run(rows, {Arithmetic::fast, longest, false});
    for (const bool settled : {false, true})
      for (const int slice_rows : {0, 3}) {
        if (slice_rows > 0 && count != 5) continue;
        How how{Arithmetic::fast, longest, true};
        how.settled = settled, how.slice_rows = slice_rows;
        const Result fused = run(rows, how);
        expect_same_bits(fused.out, apart.out);
        EXPECT_EQ(fused.k, apart.k);
        EXPECT_EQ(fused.v, apart.v);
        ASSERT_FALSE(HasFailure()) << count << " rows of " << longest << ", settled " << settled
                                   << ", slices of " << slice_rows;
      }
  }
}

TEST_P(FusedAttention, HasTheBitsOfTwoStepsWhereItWalks) {
  for (const auto& rows : {std::vector<Row>{{1, 70}}, lone_rows(5)}) {
    if (rows.size() > 1 && !has_fast_kernels()) continue;
    const Result apart = run(rows, {Arithmetic::fast, 301, false, ActFormat::none, 1});
    const Result fused = run(rows, {Arithmetic::fast, 301, true, ActFormat::per256, 1});
    expect_same_bits(fused.out, apart.out);
    EXPECT_EQ(fused.k, apart.k);
    EXPECT_EQ(fused.v, apart.v);
  }
}

TEST(Attention, RotatesOneRowAndAFewLoneOnesInTheFastArithmetic) {
  const auto rotates = [](int count, bool lone, int head_dim, Arithmetic arithmetic) {
    Rows rows;
    rows.count = count, rows.lone = lone;
    return attend_rotates(rows, head_dim, arithmetic);
  };
  for (const Arithmetic arithmetic : {Arithmetic::fast, Arithmetic::portable})
    for (const bool lone : {false, true}) {
      const bool fast = arithmetic == Arithmetic::fast;
      EXPECT_TRUE(rotates(1, lone, 80, arithmetic));
      for (const int head_dim : {64, 128, 256})
        for (const int count : {2, small_rows})
          EXPECT_EQ(rotates(count, lone, head_dim, arithmetic), lone && fast);
      EXPECT_FALSE(rotates(2, lone, 80, arithmetic));
      EXPECT_FALSE(rotates(small_rows + 1, lone, 128, arithmetic));
    }
}

TEST_P(FusedAttention, QuantisesWhatItWrites) {
  for (const Arithmetic arithmetic : {Arithmetic::fast, Arithmetic::portable})
    for (const ActFormat format : {ActFormat::per256, ActFormat::per32})
      for (const auto& [position, longest] : {std::pair{0, 1}, {300, 301}, {300, 4096}, {2100, 2101}}) {
        const Result plain = run(position, {arithmetic, longest, false});
        for (const bool settled : {false, true})
          expect_same_bits(run(position, {arithmetic, longest, true, format, 1000, settled}).out, plain.out);
        ASSERT_FALSE(HasFailure()) << "position " << position << " of " << longest;
      }
}

TEST_P(FusedAttention, QuantisesAFewRowsThatItWrites) {
  const std::vector<Row> of_one_lane = {{1, 63}, {1, 64}, {0, 130}};
  for (const Arithmetic arithmetic : {Arithmetic::fast, Arithmetic::portable})
    for (const auto& [rows, longest, format] : {std::tuple{lone_rows(2), 301, ActFormat::per32},
                                                {lone_rows(5), 1500, ActFormat::per256},
                                                {lone_rows(16), 301, ActFormat::per256},
                                                {of_one_lane, 700, ActFormat::per256}}) {
      const bool fused = attend_rotates(lone_of(rows), GetParam().shape.head_dim, arithmetic);
      const Result plain = run(rows, {arithmetic, longest, false});
      for (const bool settled : {false, true})
        for (const int slice_rows : {0, 3}) {
          if ((slice_rows > 0 && rows.size() != 5) || (settled && !fused)) continue;
          How how{arithmetic, longest, fused, format, 1000, settled};
          how.slice_rows = slice_rows;
          expect_same_bits(run(rows, how).out, plain.out);
        }
      ASSERT_FALSE(HasFailure()) << rows.size() << " rows of " << longest;
    }
}

INSTANTIATE_TEST_SUITE_P(Cases, FusedAttention,
                         testing::Values(FusedCase{{16, 2, 128}, 128, RopeStyle::neox, true},
                                         FusedCase{{4, 2, 128, 70, true}, 64, RopeStyle::neox, true},
                                         FusedCase{{8, 8, 64, 0, true}, 64, RopeStyle::normal, false},
                                         FusedCase{{40, 2, 64}, 32, RopeStyle::normal, true},
                                         FusedCase{{12, 1, 64}, 64, RopeStyle::neox, false},
                                         FusedCase{{3, 1, 256}, 256, RopeStyle::neox, true},
                                         FusedCase{{2, 1, 256, 65}, 64, RopeStyle::normal, true},
                                         FusedCase{{5, 1, 80}, 40, RopeStyle::neox, true},
                                         FusedCase{{8, 2, 32}, 32, RopeStyle::normal, true}),
                         [](const auto& test) {
                           const FusedCase& c = test.param;
                           return fmt::format("h{}of{}d{}w{}r{}{}{}", c.shape.heads, c.shape.kv_heads,
                                              c.shape.head_dim, c.shape.window, c.n_rot,
                                              c.style == RopeStyle::neox ? "neox" : "normal",
                                              c.norm ? "norms" : "");
                         });

}  // namespace
}  // namespace weir::cuda
