// small_gate_up(), small_down_sum() and small_down(): how their tiles are spread over the multiprocessors.
#include "device/cuda/small_experts.h"

#include <algorithm>

#include "quant/codecs.h"

namespace weir::cuda {
namespace {

constexpr int soft_limit = 120 * 1024;
/// Tiles of a block with more than one row: their integers take room.
constexpr int most_tiles = 4;

int tiles_of(int64_t outs) { return static_cast<int>((outs + tile_rows - 1) / tile_rows); }

template <typename F>
void with_codec(Type type, F&& f) {
  bool found = false;
  const auto visit = [&]<typename Codec>() {
    if constexpr (Codec::act != ActFormat::none)
      if (Codec::type == type) f.template operator()<Codec>(), found = true;
  };
  quant::Codecs::each(visit);
  WEIR_CHECK(found, "no small expert kernel for {}", type_name(static_cast<uint32_t>(type)));
}

/// Tiles for each block so that `total` of them make about one block a multiprocessor.
int share(const Stream& s, int64_t total, int most) {
  return static_cast<int>(std::clamp<int64_t>((total + s.multiprocessors - 1) / s.multiprocessors, 1, most));
}

}  // namespace

void small_gate_up(Stream& s, const ExpertBank& bank, const ExpertGroups& groups, const float* x,
                   const Acts& acts, int rows, int top_k, float* act) {
  WEIR_CHECK(bank.gate.type == bank.up.type, "gate {} and up {}",
             type_name(static_cast<uint32_t>(bank.gate.type)),
             type_name(static_cast<uint32_t>(bank.up.type)));
  WEIR_CHECK(rows >= 1 && rows <= small_rows, "small_gate_up of {} rows", rows);
  const bool one_row = rows == 1;
  const int experts = std::min(bank.experts, rows * top_k), pairs = tiles_of(bank.gate.out);
  GateUpTask task;
  SmallNeeds needs;
  needs.type = bank.gate.type, needs.in = bank.gate.in, needs.one_row = one_row, needs.rows = rows;
  needs.tile_multiple = 2;
  needs.tiles = 2 * share(s, static_cast<int64_t>(pairs) * experts, one_row ? 4 : 1);
  needs.soft_limit = soft_limit;
  task.shape = plan_small(needs);
  task.gate = static_cast<const uint8_t*>(bank.gate.data),
  task.up = static_cast<const uint8_t*>(bank.up.data);
  task.gate_stride = bank.gate_stride, task.up_stride = bank.up_stride, task.slot_of = bank.slot_of;
  task.groups = groups, task.x = x, task.acts = acts;
  task.top_k = top_k, task.ff = static_cast<int>(bank.gate.out), task.act = act;
  const int each = task.shape.tiles / 2;
  with_codec(bank.gate.type, [&]<typename Codec>() {
    launch_gate_up<Codec>(s, task, one_row, (pairs + each - 1) / each, experts);
  });
}

void small_down_sum(Stream& s, const ExpertBank& bank, const int32_t* ids, const float* weights, int top_k,
                    const float* act, float* h) {
  DownTask task;
  SmallNeeds needs;
  needs.type = bank.down.type, needs.in = bank.down.in, needs.one_row = true, needs.rows = top_k;
  needs.tiles = top_k;
  needs.block_stages = top_k;  // where tiles are given up
  needs.extra_bytes = top_k * (8 + tile_rows * 4);
  needs.soft_limit = soft_limit;
  task.shape = plan_small(needs);
  task.down = static_cast<const uint8_t*>(bank.down.data), task.down_stride = bank.down_stride;
  task.slot_of = bank.slot_of, task.hidden = static_cast<int>(bank.down.out);
  // One layer's kernels are launched in order: small_gate_up() came before, unless its format has float dots.
  task.after_gate_up = type_info(bank.gate.type).act != ActFormat::none;
  task.ids = ids, task.weights = weights, task.top_k = top_k, task.act = act, task.h = h;
  with_codec(bank.down.type,
             [&]<typename Codec>() { launch_down_sum<Codec>(s, task, tiles_of(bank.down.out)); });
}

void small_down(Stream& s, const ExpertBank& bank, const ExpertGroups& groups, const Acts& acts, int rows,
                int top_k, float* parts) {
  WEIR_CHECK(rows >= 1 && rows <= small_rows, "small_down of {} rows", rows);
  const int experts = std::min(bank.experts, rows * top_k), tiles = tiles_of(bank.down.out);
  DownTask task;
  SmallNeeds needs;
  needs.type = bank.down.type, needs.in = bank.down.in, needs.one_row = false, needs.rows = rows;
  needs.tiles = share(s, static_cast<int64_t>(tiles) * experts, most_tiles);
  needs.soft_limit = soft_limit;
  task.shape = plan_small(needs);
  task.down = static_cast<const uint8_t*>(bank.down.data), task.down_stride = bank.down_stride;
  task.slot_of = bank.slot_of, task.hidden = static_cast<int>(bank.down.out);
  task.groups = groups, task.acts = acts, task.parts = parts;
  const int each = task.shape.tiles;
  with_codec(bank.down.type,
             [&]<typename Codec>() { launch_down<Codec>(s, task, (tiles + each - 1) / each, experts); });
}

}  // namespace weir::cuda
