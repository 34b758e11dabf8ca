// small_gate_up() and small_down_sum(): how their tiles are spread over the multiprocessors.
#include "device/cuda/small_experts.h"

#include <algorithm>

#include "quant/codecs.h"

namespace weir::cuda {
namespace {

constexpr int soft_limit = 120 * 1024;

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

SmallNeeds gate_up_needs(const Stream& s, const ExpertBank& bank, int top_k) {
  SmallNeeds needs;
  needs.type = bank.gate.type, needs.in = bank.gate.in, needs.one_row = true, needs.rows = 1;
  needs.tile_multiple = 2;
  needs.tiles = 2 * share(s, int64_t{tiles_of(bank.gate.out)} * top_k, 4);
  needs.soft_limit = soft_limit;
  return needs;
}

SmallNeeds down_needs(const ExpertBank& bank, int top_k) {
  SmallNeeds needs;
  needs.type = bank.down.type, needs.in = bank.down.in, needs.one_row = true, needs.rows = top_k;
  needs.tiles = top_k;
  needs.block_stages = top_k;  // where tiles are given up
  needs.extra_bytes = top_k * (8 + tile_rows * 4);
  needs.soft_limit = soft_limit;
  return needs;
}

}  // namespace

bool small_gate_up_fits(const Stream& s, const ExpertBank& bank, int top_k) {
  return small_fits(gate_up_needs(s, bank, top_k));
}

bool small_down_fits(const ExpertBank& bank, int top_k) { return small_fits(down_needs(bank, top_k)); }

void small_gate_up(Stream& s, const ExpertBank& bank, const int32_t* ids, const float* x, int top_k,
                   float* act) {
  WEIR_CHECK(bank.gate.type == bank.up.type, "gate {} and up {}",
             type_name(static_cast<uint32_t>(bank.gate.type)),
             type_name(static_cast<uint32_t>(bank.up.type)));
  const int tile_pairs = tiles_of(bank.gate.out);
  GateUpTask task;
  task.shape = plan_small(gate_up_needs(s, bank, top_k));
  task.gate = static_cast<const uint8_t*>(bank.gate.data),
  task.up = static_cast<const uint8_t*>(bank.up.data);
  task.gate_stride = bank.gate_stride, task.up_stride = bank.up_stride, task.slot_of = bank.slot_of;
  task.ids = ids, task.x = x;
  task.ff = static_cast<int>(bank.gate.out), task.act = act;
  const int each = task.shape.tiles / 2;
  with_codec(bank.gate.type, [&]<typename Codec>() {
    launch_gate_up<Codec>(s, task, (tile_pairs + each - 1) / each, top_k);
  });
}

void small_down_sum(Stream& s, const ExpertBank& bank, const int32_t* ids, const float* weights, int top_k,
                    bool ids_are_final, const float* act, float* h) {
  DownTask task;
  task.shape = plan_small(down_needs(bank, top_k));
  task.down = static_cast<const uint8_t*>(bank.down.data), task.down_stride = bank.down_stride;
  task.slot_of = bank.slot_of, task.hidden = static_cast<int>(bank.down.out);
  task.after_gate_up = ids_are_final;
  task.ids = ids, task.weights = weights, task.top_k = top_k, task.act = act, task.h = h;
  with_codec(bank.down.type,
             [&]<typename Codec>() { launch_down_sum<Codec>(s, task, tiles_of(bank.down.out)); });
}

}  // namespace weir::cuda
