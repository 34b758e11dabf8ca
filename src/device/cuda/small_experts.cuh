// The kernels of small_gate_up() and small_down_sum(), one template each for all formats.
#pragma once

#include "base/arithmetic.h"
#include "device/cuda/parameters.cuh"
#include "device/cuda/small_experts.h"
#include "device/cuda/small_stages.cuh"
#include "device/cuda/stamp.cuh"

namespace weir::cuda {

/// One row. blockIdx.y: the pair.
template <typename Codec>
__global__ void __launch_bounds__(32 * most_warps(true), blocks_at_once<Codec, true>)
    gate_up_kernel(const GateUpTask task, uint64_t* stamp_slot) {
  constexpr bool per256 = Codec::act == ActFormat::per256, has_sums = Codec::has_minimum;
  WEIR_DYNAMIC_SHARED(shared);
  const SmallShape& shape = task.shape;
  const Stages<Codec, true> stages{shared, shape, shape.parts};
  stages.init();
  fetch_parameters(task);
  wait_and_stamp(stamp_slot);
  // Only now: what is launched after this kernel starts when all that came before it is complete, the router
  // included, and may read the ids ahead of its own wait (small_down_sum).
  allow_next();
  const int pair = static_cast<int>(blockIdx.y), expert = __ldcg(task.ids + pair);
  const auto slot = static_cast<uint64_t>(task.slot_of ? task.slot_of[expert] : expert);
  const uint8_t* gate = task.gate + slot * task.gate_stride;
  const uint8_t* up = task.up + slot * task.up_stride;
  const int first_pair = static_cast<int>(blockIdx.x) * (shape.tiles / 2);
  const auto tile_at = [&](int, int tile) {
    const int first = (first_pair + tile / 2) * tile_rows, left = task.ff - first;
    return TileRows{(tile % 2 ? up : gate) + static_cast<int64_t>(first) * shape.row_bytes, left < 0 ? 0
                                                                                            : left < tile_rows
                                                                                                ? left
                                                                                                : tile_rows};
  };
  const StageAt ahead = stages.prefetch(tile_at);

  quantise_rows<per256, has_sums, 1>(shared, shape, task.x);
  stages.run(
      ahead, 1, shape.tiles / 2 * tile_rows, tile_at, [](int, int) { return 0; },
      [&](const StageAt& at) {
        if (at.index == 0) __syncthreads();  // the activations are there
      },
      [&](const StageAt& at, int item) {
        const int out = item % tile_rows, pair_tile = item / tile_rows;
        const int o = (first_pair + pair_tile) * tile_rows + out;
        if (o >= task.ff) return;
        const float g = stages.chain(at, 2 * pair_tile, 0, out);
        const float u = stages.chain(at, 2 * pair_tile + 1, 0, out);
        if (at.part + 1 < shape.parts) return;
        task.act[static_cast<int64_t>(pair) * task.ff + o] = silu_f32(g) * u;
      });
}

/// One row. A tile is 16 outputs of one expert; a block has the same 16 of all experts, as tiles side by side
/// and groups of tiles one after another.
template <typename Codec>
__global__ void __launch_bounds__(32 * most_warps(true), blocks_at_once<Codec, true>)
    down_sum_kernel(const DownTask task) {
  constexpr bool per256 = Codec::act == ActFormat::per256, has_sums = Codec::has_minimum;
  allow_next();
  WEIR_DYNAMIC_SHARED(shared);
  const SmallShape& shape = task.shape;
  const int groups = (task.top_k + shape.tiles - 1) / shape.tiles;
  const Stages<Codec, true> stages{shared, shape, groups * shape.parts};
  const int first = static_cast<int>(blockIdx.x) * tile_rows, thread = static_cast<int>(threadIdx.x);
  const int left = task.hidden - first, valid = left < tile_rows ? left : tile_rows;
  // [top_k]: slot, weight; [top_k, 16]: part
  auto* slots = reinterpret_cast<int32_t*>(shared + shape.extra_at);
  auto* weights = reinterpret_cast<float*>(slots + task.top_k);
  float* parts = weights + task.top_k;
  fetch_parameters(task);
  // After gate_up_kernel the router is complete (see its allow_next()). Read past the first-level cache,
  // which may hold an earlier layer's ids.
  if (!task.after_gate_up) wait_for_previous();
  for (int j = thread; j < task.top_k; j += static_cast<int>(blockDim.x)) {
    const int expert = __ldcg(task.ids + j);
    slots[j] = task.slot_of ? __ldcg(task.slot_of + expert) : expert;
    weights[j] = __ldcg(task.weights + j);
  }
  stages.init();  // and the slots are there
  const auto tile_at = [&](int group, int tile) {
    const int j = group * shape.tiles + tile;
    if (j >= task.top_k) return TileRows{};
    return TileRows{task.down + static_cast<uint64_t>(slots[j]) * task.down_stride +
                        static_cast<int64_t>(first) * shape.row_bytes,
                    valid};
  };
  const StageAt ahead = stages.prefetch(tile_at);
  wait_for_previous();
  float before = 0;
  if (thread < valid) before = task.h[first + thread];
  quantise_rows<per256, has_sums, 2>(shared, shape, task.act);
  stages.run(
      ahead, 1, shape.tiles * tile_rows, tile_at,
      [&](int group, int tile) { return group * shape.tiles + tile; },
      [&](const StageAt& at) {
        if (at.index == 0) __syncthreads();  // the activations are there
      },
      [&](const StageAt& at, int item) {
        const int tile = item / tile_rows, out = item % tile_rows, j = at.group * shape.tiles + tile;
        if (j >= task.top_k || out >= valid) return;
        const float y = stages.chain(at, tile, 0, out);
        if (at.part + 1 == shape.parts) parts[j * tile_rows + out] = y;
      });
  __syncthreads();  // all experts' parts are there
  if (thread < valid) {
    float sum = 0;
#pragma unroll 8
    for (int j = 0; j < task.top_k; ++j) sum = std::fma(weights[j], parts[j * tile_rows + thread], sum);
    task.h[first + thread] = before + sum;
  }
}

template <typename Codec>
void launch_gate_up(Stream& s, const GateUpTask& task, int blocks, int pairs) {
  uint64_t* slot = s.take_stamp();
  launch_small(s, "small_gate_up", gate_up_kernel<Codec>,
               dim3(static_cast<unsigned>(blocks), static_cast<unsigned>(pairs)), task.shape, task, slot);
}

template <typename Codec>
void launch_down_sum(Stream& s, const DownTask& task, int blocks) {
  launch_small(s, "small_down_sum", down_sum_kernel<Codec>, dim3(static_cast<unsigned>(blocks)), task.shape,
               task);
}

}  // namespace weir::cuda
