// The kernel of small_matmul(), one template for all formats.
#pragma once

#include "device/cuda/parameters.cuh"
#include "device/cuda/small_matmul.h"
#include "device/cuda/small_stages.cuh"
#include "device/cuda/stamp.cuh"

namespace weir::cuda {

/// A tile, and where its outputs go.
struct MatmulTile {
  const uint8_t* weight = nullptr;  ///< of its first row
  float* out = nullptr;             ///< [rows, out_rows], from its first row on
  int out_rows = 0, valid = 0;
  bool add = false;
};

__device__ __forceinline__ MatmulTile matmul_tile(const SmallMatmulTask& task, int group, int tile) {
  const int stage_group = static_cast<int>(blockIdx.x) + group * static_cast<int>(gridDim.x);
  const int index = stage_group * task.shape.tiles + tile;
  MatmulTile m;
  if (index >= task.tiles) return m;
  int k = 0;
  if (task.targets > 1 && index >= task.target[1].first_tile) k = 1;
  if (task.targets > 2 && index >= task.target[2].first_tile) k = 2;
  const SmallMatmulTask::Target& target = task.target[k];
  const int first = (index - target.first_tile) * tile_rows, left = target.out_rows - first;
  m.weight = target.weight + static_cast<int64_t>(first) * task.shape.row_bytes;
  m.out = target.out + first;
  m.out_rows = target.out_rows;
  m.valid = left < tile_rows ? left : tile_rows;
  m.add = target.add != 0;
  return m;
}

template <typename Codec, bool kOneRow>
__global__ void __launch_bounds__(32 * most_warps(kOneRow), kOneRow&& Fragments<Codec>::integer_scale
                                                                ? 2
                                                                : blocks_at_once<Codec, kOneRow>)
    small_matmul_kernel(const SmallMatmulTask task, uint64_t* stamp_slot) {
  constexpr bool per256 = Codec::act == ActFormat::per256, has_sums = Codec::has_minimum;
  allow_next();
  WEIR_DYNAMIC_SHARED(shared);
  const SmallShape& shape = task.shape;
  const int block = static_cast<int>(blockIdx.x), blocks = static_cast<int>(gridDim.x);
  const Stages<Codec, kOneRow> stages{shared, shape,
                                      (task.groups - block + blocks - 1) / blocks * shape.parts};
  const auto tile_at = [&](int group, int tile) {
    const MatmulTile m = matmul_tile(task, group, tile);
    return TileRows{m.weight, m.valid};
  };
  stages.init();
  const StageAt ahead = stages.prefetch(tile_at);
  auto* scratch = reinterpret_cast<float*>(shared + shape.extra_at);
  if (kOneRow && task.norm) stage_norm(scratch, task.norm, shape.in);
  fetch_parameters(task);
  if constexpr (kOneRow)
    wait_and_stamp(stamp_slot);
  else
    wait_for_previous();

  const auto row_of = [](int row) { return row; };
  if constexpr (kOneRow) {
    if (task.norm)
      norm_and_quantise<per256, has_sums>(shared, shape, scratch, task.x, task.eps);
    else
      quantise_rows<per256, has_sums, 1>(shared, shape, task.x);
  } else {
    stage_rows<per256, has_sums>(shared, shape, task.acts, 0, 0, task.rows, row_of);
  }
  float before = 0;  // one row: what the thread's output is added to, loaded ahead of the products
  stages.run(
      ahead, task.rows, shape.tiles * tile_rows * task.rows, tile_at, [](int, int) { return 0; },
      [&](const StageAt& at) {
        if constexpr (kOneRow) {
          if (at.index == 0) __syncthreads();  // the activations are there
          const int item = stages.first_item(at);
          if (at.part + 1 < shape.parts || item >= shape.tiles * tile_rows) return;
          const MatmulTile m = matmul_tile(task, at.group, item / tile_rows);
          if (m.add && item % tile_rows < m.valid) before = m.out[item % tile_rows];
        } else {
          cp_wait<0>();
          __syncthreads();  // this part's activations are there, and the last stage's chains are done
          if (shape.parts > 1 && at.index + 1 < stages.count)
            stage_rows<per256, has_sums>(shared, shape, task.acts,
                                         at.part + 1 == shape.parts ? 0 : at.part + 1, (at.index + 1) % 2,
                                         task.rows, row_of);
        }
      },
      [&](const StageAt& at, int item) {
        const int out = item % tile_rows, row = kOneRow ? 0 : item / tile_rows % task.rows;
        const int tile = kOneRow ? item / tile_rows : item / tile_rows / task.rows;
        const MatmulTile m = matmul_tile(task, at.group, tile);
        if (out >= m.valid) return;
        const float y = stages.chain(at, tile, row, out);
        if (at.part + 1 < shape.parts) return;
        float* to = m.out + static_cast<int64_t>(row) * m.out_rows + out;
        if constexpr (kOneRow)
          *to = m.add ? before + y : y;
        else
          *to = m.add ? *to + y : y;
      });
}

template <typename Codec>
void launch_small_matmul(Stream& s, const SmallMatmulTask& task, int blocks) {
  uint64_t* slot = s.take_stamp();
  auto* kernel = task.rows > 1 ? small_matmul_kernel<Codec, false> : small_matmul_kernel<Codec, true>;
  WEIR_CHECK(task.rows == 1 || !slot, "small_matmul of {} rows does not stamp", task.rows);
  launch_small(s, "small_matmul", kernel, dim3(static_cast<unsigned>(blocks)), task.shape, task, slot);
}

}  // namespace weir::cuda
