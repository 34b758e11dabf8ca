// Attention cases: random caches of several lanes, and rows at given places in them.
#pragma once

#include <set>

#include "cuda/conformance.h"

namespace weir {

struct Place {
  int32_t lane, position;
};

struct AttentionCase {
  int heads = 4, kv_heads = 2, head_dim = 64;
  int window = 0;
  bool sinks = false;
  int lanes = 1, capacity = 0;  ///< positions in the cache, a lane
  std::vector<Place> rows;
  float score_scale = 1;  ///< larger: the softmax is more decided

  int64_t row_stride() const { return int64_t{kv_heads} * head_dim; }
  int64_t lane_stride() const { return capacity * row_stride() + 128; }
  size_t cache_size() const { return static_cast<size_t>(lanes * lane_stride()); }
  size_t q_size() const { return rows.size() * static_cast<size_t>(heads * head_dim); }
  int longest() const {
    int n = 0;
    for (const Place& p : rows) n = std::max(n, p.position + 1);
    return n;
  }
  ScratchNeeds needs() const {
    ScratchNeeds n;
    n.rows = static_cast<int>(rows.size()), n.heads = heads, n.head_dim = head_dim, n.longest = longest();
    return n;
  }
  /// Rows at positions first .. first + count - 1 of one lane.
  void add_rows(int lane, int first, int count) {
    for (int i = 0; i < count; ++i) rows.push_back({lane, first + i});
    capacity = std::max(capacity, first + count);
    lanes = std::max(lanes, lane + 1);
  }

  Floats q() const { return random_floats(q_size(), 61); }
  Floats sink_logits() const { return sinks ? random_floats(static_cast<size_t>(heads), 62) : Floats{}; }
  float scale() const { return score_scale / std::sqrt(static_cast<float>(head_dim)); }
  /// Halves; NaN where no row of the lane looks.
  std::vector<uint16_t> cache(uint64_t seed) const {
    std::vector<uint16_t> c(cache_size(), 0x7fff);
    for (int lane = 0; lane < lanes; ++lane) {
      int last = -1;
      for (const Place& p : rows)
        if (p.lane == lane) last = std::max(last, p.position);
      for (int64_t i = 0; i < (last + 1) * row_stride(); ++i) {
        const auto at = static_cast<size_t>(lane * lane_stride() + i);
        c[at] = f32_to_f16(static_cast<float>(4 * random_unit(seed, at) - 2));
      }
    }
    return c;
  }
};

inline Rows put_rows(Bench& bench, const std::vector<Place>& places) {
  std::vector<int32_t> position, lane;
  Rows rows;
  for (const Place& p : places) {
    position.push_back(p.position), lane.push_back(p.lane);
    rows.longest = std::max(rows.longest, p.position + 1);
  }
  rows.count = static_cast<int>(places.size());
  rows.lone = std::set<int32_t>(lane.begin(), lane.end()).size() == places.size();
  rows.position = bench.put(position), rows.lane = bench.put(lane);
  return rows;
}

/// The case's rows first .. first + count - 1 in one call, with Rows::longest of the call or as given.
inline Floats attend(Device& device, const AttentionCase& c, size_t first, size_t count, int longest = 0) {
  Bench bench(device);
  const size_t row = static_cast<size_t>(c.heads * c.head_dim);
  const Floats q = c.q();
  AttendArgs args;
  args.q = bench.put(Floats(q.begin() + static_cast<long>(first * row),
                            q.begin() + static_cast<long>((first + count) * row)));
  args.out = bench.poisoned(count * row);
  args.heads = c.heads, args.kv_heads = c.kv_heads, args.head_dim = c.head_dim;
  args.scale = c.scale(), args.window = c.window, args.sinks = bench.put_if(c.sink_logits());
  args.rows = put_rows(
      bench, {c.rows.begin() + static_cast<long>(first), c.rows.begin() + static_cast<long>(first + count)});
  if (longest > 0) args.rows.longest = longest;
  args.kv = {bench.put(c.cache(63)), bench.put(c.cache(64)), c.lane_stride(), c.row_stride()};
  device.attend(args);
  return bench.get(args.out, count * row);
}
inline Floats attend(Device& device, const AttentionCase& c) { return attend(device, c, 0, c.rows.size()); }

}  // namespace weir
