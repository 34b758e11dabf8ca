// rope_and_store and attend on the CPU: against double precision, on every instruction set and thread count,
// and however the rows of a lane are cut into calls.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "base/rope_table.h"
#include "device/cpu_cases.h"

namespace weir {
namespace {

constexpr float nan = std::numeric_limits<float>::quiet_NaN();

/// One lane or more of random rows through norm, rotation, store and attention.
struct AttentionCase {
  int heads = 4, kv_heads = 2, head_dim = 64, n_rot = 64;
  int lanes = 1, positions = 600, window = 0;
  bool with_sinks = false, with_norms = true;
  RopeStyle style = RopeStyle::neox;

  Floats q, k, v, q_norm, k_norm, sinks, cos, sin;
  std::vector<int32_t> token, position, lane;

  /// Rows of all lanes, lane by lane, positions 0 .. positions - 1.
  void fill() {
    const auto rows = static_cast<size_t>(lanes) * positions, d = static_cast<size_t>(head_dim);
    q = random_floats(rows * heads * d, 1), k = random_floats(rows * kv_heads * d, 2);
    v = random_floats(rows * kv_heads * d, 3), sinks = random_floats(static_cast<size_t>(heads), 4);
    q_norm = random_floats(d, 5), k_norm = random_floats(d, 6);
    for (float& w : q_norm) w *= 4;  // scores far from uniform
    const size_t pairs = static_cast<size_t>(n_rot) / 2;
    cos.resize(static_cast<size_t>(positions) * pairs), sin.resize(cos.size());
    if (n_rot > 0)
      fill_rope_table({plain_rope_frequencies(n_rot, 10'000)}, 0, positions, cos.data(), sin.data());
    for (int l = 0; l < lanes; ++l)
      for (int p = 0; p < positions; ++p) token.push_back(0), position.push_back(p), lane.push_back(l);
  }
  int rows() const { return lanes * positions; }
  ScratchNeeds needs() const { return {.rows = rows(), .heads = heads, .head_dim = head_dim}; }
  Rows span(int first, int count) const {
    return {count, token.data() + first, position.data() + first, lane.data() + first};
  }

  struct Cache {
    std::vector<uint16_t> k, v;
    KvLayer layer;
  };
  /// Filled with NaN: what is not stored must not be read.
  Cache cache() const {
    Cache c;
    c.layer.row_stride = int64_t{kv_heads} * head_dim;
    c.layer.lane_stride = c.layer.row_stride * positions;
    c.k.assign(static_cast<size_t>(c.layer.lane_stride * lanes), f32_to_f16(nan));
    c.v = c.k;
    c.layer.k = c.k.data(), c.layer.v = c.v.data();
    return c;
  }

  /// Stores rows [first, first + count) and attends with them.
  Floats step(Device& device, const KvLayer& kv, int first, int count) const {
    const auto q_width = static_cast<size_t>(heads * head_dim),
               kv_width = static_cast<size_t>(kv_heads * head_dim);
    const auto f = static_cast<size_t>(first), n = static_cast<size_t>(count);
    Floats q_rows(q.data() + f * q_width, q.data() + (f + n) * q_width);
    Floats k_rows(k.data() + f * kv_width, k.data() + (f + n) * kv_width);
    RopeStoreArgs store;
    store.q = q_rows.data(), store.k = k_rows.data(), store.v = v.data() + f * kv_width;
    store.q_norm = with_norms ? q_norm.data() : nullptr, store.k_norm = with_norms ? k_norm.data() : nullptr;
    store.eps = 1e-6f;
    store.heads = heads, store.kv_heads = kv_heads, store.head_dim = head_dim;
    store.rope = {cos.data(), sin.data(), n_rot, style};
    store.rows = span(first, count), store.kv = kv;
    device.rope_and_store(store);
    Floats out(q_rows.size());
    AttendArgs attend;
    attend.q = q_rows.data(), attend.out = out.data();
    attend.heads = heads, attend.kv_heads = kv_heads, attend.head_dim = head_dim;
    attend.scale = 0.125f, attend.window = window, attend.sinks = with_sinks ? sinks.data() : nullptr;
    attend.rows = span(first, count), attend.kv = kv;
    device.attend(attend);
    return out;
  }
  Floats whole(Device& device) const {
    const Cache c = cache();
    return step(device, c.layer, 0, rows());
  }

  // --- the same in double, from the definitions
  std::vector<double> head(const Floats& x, int row, int h, int width, const Floats* norm) const {
    std::vector<double> y(static_cast<size_t>(head_dim));
    double sum = 0;
    for (int d = 0; d < head_dim; ++d) {
      y[static_cast<size_t>(d)] = x[(static_cast<size_t>(row) * width + h) * head_dim + d];
      sum += y[static_cast<size_t>(d)] * y[static_cast<size_t>(d)];
    }
    if (norm)
      for (int d = 0; d < head_dim; ++d)
        y[static_cast<size_t>(d)] *= (*norm)[static_cast<size_t>(d)] / std::sqrt(sum / head_dim + 1e-6);
    const int half = n_rot / 2;
    for (int i = 0; i < half; ++i) {
      const double angle = position[static_cast<size_t>(row)] * std::pow(10000.0, -2.0 * i / n_rot);
      double& a = y[static_cast<size_t>(style == RopeStyle::neox ? i : 2 * i)];
      double& b = y[static_cast<size_t>(style == RopeStyle::neox ? i + half : 2 * i + 1)];
      const double x0 = a, x1 = b;
      a = x0 * std::cos(angle) - x1 * std::sin(angle), b = x0 * std::sin(angle) + x1 * std::cos(angle);
    }
    return y;
  }
  std::vector<double> expected(int row, int h) const {
    const int kv_head = h / (heads / kv_heads), here = position[static_cast<size_t>(row)];
    const auto query = head(q, row, h, heads, with_norms ? &q_norm : nullptr);
    std::vector<double> scores, out(static_cast<size_t>(head_dim));
    const int first = window > 0 ? std::max(0, here - window + 1) : 0;
    double max = with_sinks ? sinks[static_cast<size_t>(h)] : -1e300;
    for (int p = first; p <= here; ++p) {
      const auto key = head(k, row - here + p, kv_head, kv_heads, with_norms ? &k_norm : nullptr);
      double s = 0;
      for (size_t d = 0; d < key.size(); ++d) s += query[d] * key[d];
      scores.push_back(s * 0.125), max = std::max(max, scores.back());
    }
    double sum = with_sinks ? std::exp(sinks[static_cast<size_t>(h)] - max) : 0;
    for (double s : scores) sum += std::exp(s - max);
    for (int p = first; p <= here; ++p)
      for (size_t d = 0; d < out.size(); ++d)
        out[d] += std::exp(scores[static_cast<size_t>(p - first)] - max) / sum *
                  v[(static_cast<size_t>(row - here + p) * kv_heads + kv_head) * head_dim + d];
    return out;
  }
  void expect_close(const Floats& got) const {
    for (int row : {0, 1, 100, 255, 256, 257, 511, 512, rows() - 1}) {
      if (row >= rows()) continue;
      for (int h = 0; h < heads; ++h) {
        const auto exact = expected(row, h);
        for (size_t d = 0; d < exact.size(); ++d)  // f16 keys and values: 2^-11 relative each
          ASSERT_NEAR(got[(static_cast<size_t>(row) * heads + h) * head_dim + d], exact[d], 4e-3)
              << "row " << row << " head " << h << " dim " << d;
      }
    }
  }
};

std::vector<AttentionCase> cases() {
  std::vector<AttentionCase> all(8);
  all[1].window = 100;
  all[2].window = 300, all[2].with_sinks = true;
  all[3].style = RopeStyle::normal, all[3].with_norms = false;
  all[4].head_dim = 128, all[4].n_rot = 64, all[4].heads = 6, all[4].kv_heads = 1, all[4].positions = 270;
  all[5].head_dim = 80, all[5].n_rot = 20, all[5].heads = 2, all[5].kv_heads = 2, all[5].with_sinks = true;
  all[6].lanes = 3, all[6].positions = 90;
  all[7].n_rot = 0, all[7].positions = 300;
  for (AttentionCase& c : all) c.fill();
  return all;
}

TEST(CpuAttentionSlow, AgreesWithDoubleAndBetweenDevices) {
  int index = 0;
  for (const AttentionCase& c : cases()) {
    SCOPED_TRACE(index++);
    c.expect_close(on_all_devices(c.needs(), [&](Device& device) { return c.whole(device); }));
  }
}

// A prompt in chunks of any length, down to token by token, and rolled back and repeated in part.
TEST(CpuAttention, HowRowsAreCutIntoCallsChangesNothing) {
  AttentionCase c;
  c.positions = 530, c.window = 400, c.heads = 2, c.kv_heads = 1, c.head_dim = 32, c.n_rot = 32;
  c.fill();
  const auto device = make_cpu_device(2);
  device->reserve(c.needs());
  const Floats whole = c.whole(*device);
  for (int chunk : {1, 7, 64, 255, 256, 257}) {
    const auto cache = c.cache();
    Floats pieces;
    for (int r = 0; r < c.rows(); r += chunk) {
      const int n = std::min(chunk, c.rows() - r);
      const Floats piece = c.step(*device, cache.layer, r, n);
      if (r == 7 * chunk) expect_same(c.step(*device, cache.layer, r, n), piece, "repeated");
      pieces.insert(pieces.end(), piece.begin(), piece.end());
    }
    expect_same(pieces, whole, "chunks of " + std::to_string(chunk));
  }
}

TEST(CpuAttention, LanesInOneBatchEqualLanesAlone) {
  AttentionCase c;
  c.lanes = 3, c.positions = 40;
  c.fill();
  const auto device = make_cpu_device(2);
  device->reserve(c.needs());
  const Floats together = c.whole(*device);
  Floats alone;
  for (int l = 0; l < c.lanes; ++l) {
    const auto cache = c.cache();
    const Floats one = c.step(*device, cache.layer, l * c.positions, c.positions);
    alone.insert(alone.end(), one.begin(), one.end());
  }
  expect_same(alone, together, "lanes");
}

TEST(CpuAttention, KeysAndValuesAreRoundedToHalf) {
  AttentionCase c;
  c.positions = 3, c.n_rot = 0, c.with_norms = false;
  c.fill();
  c.v[0] = 1.0f + 0x1p-11f, c.v[1] = 1.0f + 0x1.8p-10f;  // ties: to even, down and up
  const auto device = make_cpu_device(1);
  device->reserve(c.needs());
  const auto cache = c.cache();
  c.step(*device, cache.layer, 0, 3);
  EXPECT_EQ(cache.v[0], f32_to_f16(1.0f));
  EXPECT_EQ(cache.v[1], f32_to_f16(1.0f + 0x1p-9f));
  const size_t at = (2 * 2 + 1) * 64 + 5;  // position 2, kv head 1
  EXPECT_EQ(cache.k[at], f32_to_f16(c.k[at]));
}

TEST(CpuAttention, OneNanRowStaysInItsRowsFuture) {
  AttentionCase c;
  c.positions = 20;
  c.fill();
  const auto width = static_cast<size_t>(c.heads * c.head_dim);
  c.q[5 * width] = nan;
  const Floats out = on_all_devices(c.needs(), [&](Device& device) { return c.whole(device); });
  EXPECT_TRUE(std::isnan(out[5 * width]));
  EXPECT_FALSE(std::isnan(out[4 * width]));
  EXPECT_FALSE(std::isnan(out[6 * width])) << "a bad query is nobody else's key";
}

TEST(CpuAttention, DeclaresTheKeysAndValuesOfEachLaneOnce) {
  AttentionCase c;
  c.lanes = 2, c.positions = 10;
  c.fill();
  Ledger ledger({.enabled = true});
  const auto device = make_cpu_device(1);
  device->reserve(c.needs());
  device->set_ledger(&ledger);
  ledger.begin_generation();
  ledger.begin_round(Phase::prefill);
  device->begin_role(Role::attention);
  c.whole(*device);
  ledger.end_round(20, 2);
  const auto& account = ledger.phase(Phase::prefill).roles[static_cast<size_t>(Role::attention)];
  EXPECT_EQ(account.bytes, 2u * 10 * 2 * 64 * 2 * 2) << "lanes, positions, kv heads, dims, k and v, f16";
}

}  // namespace
}  // namespace weir
