// rope_and_store and attend: heads are the units of work, shared out by the positions they read.
#include <algorithm>

#include "device/cpu/cpu_device.h"
#include "device/cpu/share.h"

namespace weir::cpu {
namespace {

/// First position that a query at `position` sees.
int64_t first_seen(int64_t position, int window) {
  return window > 0 ? std::max<int64_t>(0, position - window + 1) : 0;
}

/// Keys and values that the batch reads at least: once per run of rows of a lane.
uint64_t kv_bytes_read(const AttendArgs& args) {
  uint64_t positions = 0;
  for (int r = 0; r < args.rows.count;) {
    const int32_t lane = args.rows.lane[r];
    const int64_t first = first_seen(args.rows.position[r], args.window);
    while (r + 1 < args.rows.count && args.rows.lane[r + 1] == lane) ++r;
    positions += static_cast<uint64_t>(args.rows.position[r] - first + 1);
    ++r;
  }
  return positions * static_cast<uint64_t>(args.kv_heads) * static_cast<uint64_t>(args.head_dim) * 2 *
         sizeof(uint16_t);
}

}  // namespace

void CpuDevice::rope_and_store(const RopeStoreArgs& args) {
  const int heads = args.heads, kv_heads = args.kv_heads, head_dim = args.head_dim;
  const int units = heads + kv_heads;  // of a row: q heads, then kv heads
  const int pairs = args.rope.n_rot / 2;
  const auto rotate = args.rope.style == RopeStyle::neox ? float_.rope_neox : float_.rope_normal;
  const auto norm_and_rotate = [&](float* head, const float* norm, int64_t position) {
    if (norm) float_.rms_norm(head, norm, head, head_dim, args.eps);
    if (pairs > 0)
      rotate(head, args.rope.cos + position * pairs, args.rope.sin + position * pairs, 2 * pairs);
  };
  team_.run(int64_t{args.rows.count} * units, 16, [&](int64_t begin, int64_t end, int) {
    for (int64_t u = begin; u < end; ++u) {
      const int64_t row = u / units, head = u % units;
      const int64_t position = args.rows.position[row];
      if (head < heads) {
        norm_and_rotate(args.q + (row * heads + head) * head_dim, args.q_norm, position);
        continue;
      }
      const int64_t kv_head = head - heads;
      const int64_t in = (row * kv_heads + kv_head) * head_dim;
      const int64_t out =
          args.rows.lane[row] * args.kv.lane_stride + position * args.kv.row_stride + kv_head * head_dim;
      norm_and_rotate(args.k + in, args.k_norm, position);
      float_.to_f16(args.k + in, args.kv.k + out, head_dim);
      float_.to_f16(args.v + in, args.kv.v + out, head_dim);
    }
  });
}

void CpuDevice::attend(const AttendArgs& args) {
  const int heads = args.heads, head_dim = args.head_dim;
  WEIR_CHECK(head_dim <= layout_.needs.head_dim && heads % args.kv_heads == 0,
             "head_dim {} of {}, heads {} / {}", head_dim, layout_.needs.head_dim, heads, args.kv_heads);
  declare_bytes(kv_bytes_read(args));
  const auto part_of = [&](int64_t row) {
    const int64_t position = args.rows.position[row];
    return SharePart{heads, position - first_seen(position, args.window) + 1};
  };
  const int queries_per_kv = heads / args.kv_heads;
  each_member([&](int member) {
    auto* own = scratch<float>(layout_.attend + layout_.attend_stride * static_cast<size_t>(member));
    for_share(args.rows.count, part_of, member, team_.size(), [&](int64_t row, int64_t begin, int64_t end) {
      AttendTask task;
      task.stride = args.kv.row_stride;
      task.last = args.rows.position[row];
      task.first = first_seen(task.last, args.window);
      task.head_dim = head_dim, task.scale = args.scale, task.scratch = own;
      for (int64_t head = begin; head < end; head += task.heads) {
        const int64_t kv_head = head / queries_per_kv;
        const int64_t kv = args.rows.lane[row] * args.kv.lane_stride + kv_head * head_dim;
        const int64_t at = (row * heads + head) * head_dim;
        task.heads = static_cast<int>(std::min((kv_head + 1) * queries_per_kv, end) - head);
        task.q = args.q + at, task.out = args.out + at;
        task.k = args.kv.k + kv, task.v = args.kv.v + kv;
        task.sinks = args.sinks ? args.sinks + head : nullptr;
        float_.attend_heads(task);
      }
    });
  });
}

}  // namespace weir::cpu
