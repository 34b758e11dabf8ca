// The kernels of small_gate_up(), small_down_sum() and small_down(), one template each for all formats.
#pragma once

#include "base/arithmetic.h"
#include "device/cuda/small_experts.h"
#include "device/cuda/small_stages.cuh"
#include "device/cuda/stamp.cuh"

namespace weir::cuda {

/// The pairs of expert group blockIdx.y.
struct GroupPairs {
  int begin = 0, count = 0, slot = 0;
};

/// False where there is no such group: the block has nothing to do. The loads do not wait for each other.
__device__ __forceinline__ bool group_pairs_of(const ExpertGroups& groups, const int32_t* slot_of,
                                               GroupPairs& g) {
  const int y = static_cast<int>(blockIdx.y), active = *groups.active;
  const int expert = groups.expert[y], begin = groups.begin[y], end = groups.begin[y + 1];
  if (y >= active) return false;
  g.begin = begin, g.count = end - begin;
  g.slot = slot_of ? slot_of[expert] : expert;
  return true;
}

template <typename Codec, bool kOneRow, bool kStamp>
__global__ void __launch_bounds__(32 * most_warps(kOneRow), blocks_at_once<Codec, kOneRow>)
    gate_up_kernel(const GateUpTask task, uint64_t* stamp_slot) {
  constexpr bool per256 = Codec::act == ActFormat::per256, has_sums = Codec::has_minimum;
  WEIR_DYNAMIC_SHARED(shared);
  const SmallShape& shape = task.shape;
  const Stages<Codec, kOneRow> stages{shared, shape, shape.parts};
  stages.init();
  wait_and_stamp<kStamp>(stamp_slot);
  // Only now: what is launched after this kernel starts when all that came before it is complete, the router
  // included, and may read the ids ahead of its own wait (small_down_sum).
  allow_next();
  GroupPairs pairs;
  if (!group_pairs_of(task.groups, task.slot_of, pairs)) return;  // the whole block
  const uint8_t* gate = task.gate + static_cast<uint64_t>(pairs.slot) * task.gate_stride;
  const uint8_t* up = task.up + static_cast<uint64_t>(pairs.slot) * task.up_stride;
  const int first_pair = static_cast<int>(blockIdx.x) * (shape.tiles / 2);
  const auto tile_at = [&](int, int tile) {
    const int first = (first_pair + tile / 2) * tile_rows, left = task.ff - first;
    return TileRows{(tile % 2 ? up : gate) + static_cast<int64_t>(first) * shape.row_bytes, left < 0 ? 0
                                                                                            : left < tile_rows
                                                                                                ? left
                                                                                                : tile_rows};
  };
  const StageAt ahead = stages.prefetch(tile_at);

  const auto row_of = [&](int i) { return task.groups.pairs[pairs.begin + i] / task.top_k; };
  if constexpr (kOneRow)
    quantise_rows<per256, has_sums, 1>(shared, shape, task.x);
  else
    stage_rows<per256, has_sums>(shared, shape, task.acts, 0, 0, pairs.count, row_of);
  const int rows = kOneRow ? 1 : pairs.count;
  stages.run(
      ahead, rows, shape.tiles / 2 * tile_rows * rows, tile_at, [](int, int) { return 0; },
      [&](const StageAt& at) {
        if constexpr (kOneRow) {
          if (at.index == 0) __syncthreads();  // the activations are there
        } else {
          cp_wait<0>();
          __syncthreads();  // this part's activations are there, and the last stage's chains are done
          if (at.index + 1 < stages.count)
            stage_rows<per256, has_sums>(shared, shape, task.acts, at.part + 1, (at.index + 1) % 2, rows,
                                         row_of);
        }
      },
      [&](const StageAt& at, int item) {
        const int out = item % tile_rows, row = kOneRow ? 0 : item / tile_rows % rows;
        const int pair_tile = kOneRow ? item / tile_rows : item / tile_rows / rows;
        const int o = (first_pair + pair_tile) * tile_rows + out;
        if (o >= task.ff) return;
        const float g = stages.chain(at, 2 * pair_tile, row, out);
        const float u = stages.chain(at, 2 * pair_tile + 1, row, out);
        if (at.part + 1 < shape.parts) return;
        // One row: its pairs are in the order of the groups.
        const int pair = kOneRow ? pairs.begin : task.groups.pairs[pairs.begin + row];
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
__global__ void __launch_bounds__(32 * most_warps(false), blocks_at_once<Codec, false>)
    down_kernel(const DownTask task) {
  constexpr bool per256 = Codec::act == ActFormat::per256, has_sums = Codec::has_minimum;
  allow_next();
  WEIR_DYNAMIC_SHARED(shared);
  const SmallShape& shape = task.shape;
  const Stages<Codec, false> stages{shared, shape, shape.parts};
  stages.init();
  wait_for_previous();
  GroupPairs pairs;
  if (!group_pairs_of(task.groups, task.slot_of, pairs)) return;  // the whole block
  const uint8_t* down = task.down + static_cast<uint64_t>(pairs.slot) * task.down_stride;
  const int first_tile = static_cast<int>(blockIdx.x) * shape.tiles;
  const auto tile_at = [&](int, int tile) {
    const int first = (first_tile + tile) * tile_rows, left = task.hidden - first;
    return TileRows{down + static_cast<int64_t>(first) * shape.row_bytes, left < 0           ? 0
                                                                          : left < tile_rows ? left
                                                                                             : tile_rows};
  };
  const StageAt ahead = stages.prefetch(tile_at);
  const auto row_of = [&](int i) { return task.groups.pairs[pairs.begin + i]; };
  stage_rows<per256, has_sums>(shared, shape, task.acts, 0, 0, pairs.count, row_of);
  stages.run(
      ahead, pairs.count, shape.tiles * tile_rows * pairs.count, tile_at, [](int, int) { return 0; },
      [&](const StageAt& at) {
        cp_wait<0>();
        __syncthreads();  // this part's activations are there, and the last stage's chains are done
        if (at.index + 1 < stages.count)
          stage_rows<per256, has_sums>(shared, shape, task.acts, at.part + 1, (at.index + 1) % 2, pairs.count,
                                       row_of);
      },
      [&](const StageAt& at, int item) {
        const int out = item % tile_rows, row = item / tile_rows % pairs.count;
        const int tile = item / tile_rows / pairs.count, o = (first_tile + tile) * tile_rows + out;
        if (o >= task.hidden) return;
        const float y = stages.chain(at, tile, row, out);
        if (at.part + 1 == shape.parts) task.parts[static_cast<int64_t>(row_of(row)) * task.hidden + o] = y;
      });
}

template <typename Codec>
void launch_gate_up(Stream& s, const GateUpTask& task, bool one_row, int blocks, int experts) {
  uint64_t* slot = s.take_stamp();
  auto* kernel = one_row ? (slot ? gate_up_kernel<Codec, true, true> : gate_up_kernel<Codec, true, false>)
                         : (slot ? gate_up_kernel<Codec, false, true> : gate_up_kernel<Codec, false, false>);
  launch_small(s, "small_gate_up", kernel,
               dim3(static_cast<unsigned>(blocks), static_cast<unsigned>(experts)), task.shape, task, slot);
}

template <typename Codec>
void launch_down_sum(Stream& s, const DownTask& task, int blocks) {
  launch_small(s, "small_down_sum", down_sum_kernel<Codec>, dim3(static_cast<unsigned>(blocks)), task.shape,
               task);
}

template <typename Codec>
void launch_down(Stream& s, const DownTask& task, int blocks, int experts) {
  launch_small(s, "small_down", down_kernel<Codec>,
               dim3(static_cast<unsigned>(blocks), static_cast<unsigned>(experts)), task.shape, task);
}

}  // namespace weir::cuda
