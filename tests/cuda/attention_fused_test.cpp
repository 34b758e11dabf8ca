// Attention of rows that it rotates and stores on the way, and quantises behind: the bits of the steps by
// themselves.
#include <algorithm>
#include <set>
#include <tuple>

#include "cuda/attention_batch.h"

namespace weir::cuda {
namespace {

using namespace attention_test;

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
