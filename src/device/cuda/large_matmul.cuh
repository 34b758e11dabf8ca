// The kernels of many rows and their launchers, by block format: dense, gate and up of experts, down of
// experts. They say which weight rows meet which activation rows, and where the outputs go; the product is
// large_tile.cuh's. Included by the formats' own .cu files.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/arithmetic.h"
#include "device/cuda/large_tile.cuh"
#include "device/cuda/parameters.cuh"

namespace weir::cuda::large {

// --- kernels
// -------------------------------------------------------------------------------------------------------

/// grid: (tiles of `rows_a_block` activation rows, tiles of 128 weight rows).
template <typename Codec>
__global__ void __launch_bounds__(threads, 2) matmul(LargeMatmul args, int rows_a_block) {
  WEIR_DYNAMIC_SHARED(shared);
  __shared__ int row_of[act_rows];
  allow_next();
  const int first_row = static_cast<int>(blockIdx.x) * rows_a_block;
  if (threadIdx.x < act_rows) row_of[threadIdx.x] = first_row + static_cast<int>(threadIdx.x);
  __syncthreads();
  Product<Codec> p;
  p.acts = args.acts, p.shared = shared, p.row_of = row_of;
  p.rows = min(rows_a_block, args.rows - first_row);
  const int g = p.lane() / 4, t = p.lane() % 4;
  const int64_t row_bytes = args.in / Codec::block_elements * Codec::block_bytes;
  const int64_t first_out = int64_t{blockIdx.y} * weight_rows + 16 * p.warp() + g;
  for (int row = 0; row < 2; ++row)
    p.weight[row] = weight_row(args.weight, first_out + 8 * row, args.out_rows, row_bytes);
  p.begin();
  fetch_parameters(args);
  wait_for_previous();
  p.finish();
  float* out = args.out + (first_row + 2 * t) * args.out_rows + first_out;
  const auto exists = [&](int n, int i) {
    return 8 * n + 2 * t + i % 2 < p.rows && first_out + 8 * (i / 2) < args.out_rows;
  };
  const auto at = [&](int n, int i) { return (8 * n + i % 2) * args.out_rows + 8 * (i / 2); };
  if (args.add) {
    float before[row_tiles][4];  // all loads leave before the first is waited for
#pragma unroll
    for (int n = 0; n < row_tiles; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) before[n][i] = exists(n, i) ? out[at(n, i)] : 0;
#pragma unroll
    for (int n = 0; n < row_tiles; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) p.acc[n][i] = before[n][i] + p.acc[n][i];
  }
#pragma unroll
  for (int n = 0; n < row_tiles; ++n)
#pragma unroll
    for (int i = 0; i < 4; ++i)
      if (exists(n, i)) out[at(n, i)] = p.acc[n][i];
}

/// One expert's pairs.
struct Group {
  int expert;      ///< -1: there are fewer groups
  int begin, end;  ///< in ExpertGroups::pairs
};
/// Volatile, so that the loads leave together instead of each behind a test of the one before.
__device__ __forceinline__ Group find_group(const ExpertGroups& groups, unsigned index) {
  const volatile int32_t *active = groups.active, *expert = groups.expert + index,
                         *begin = groups.begin + index;
  const int n = *active;
  Group group{*expert, begin[0], begin[1]};
  if (static_cast<int>(index) >= n) group.expert = -1;
  return group;
}
/// pair_of and row_of ([64] each, shared memory) become the group's pairs from `first` on and their rows of
/// acts; how many there are. Meets a barrier.
__device__ __forceinline__ int gather(const ExpertGroups& groups, const Group& group, int first, int top_k,
                                      int* pair_of, int* row_of) {
  const int count = min(act_rows, group.end - first), i = static_cast<int>(threadIdx.x);
  if (i < count) {
    const int pair = groups.pairs[first + i];
    pair_of[i] = pair, row_of[i] = pair / top_k;
  }
  __syncthreads();
  return count;
}

/// grid: (tiles of 64 rows of gate and of up, experts). A warp's rows are eight of gate and the same of up,
/// so that one lane receives both.
template <typename Codec>
__global__ void __launch_bounds__(threads, 2)
    gate_up(ExpertBank bank, ExpertGroups groups, Acts acts, int top_k, float* act) {
  WEIR_DYNAMIC_SHARED(shared);
  __shared__ int pair_of[act_rows], row_of[act_rows];
  allow_next();
  fetch_parameters(bank, groups, acts);
  wait_for_previous();
  const Group work = find_group(groups, blockIdx.y);
  if (work.expert < 0) return;
  const int slot = bank.slot_of ? bank.slot_of[work.expert] : work.expert;
  Product<Codec> p;
  p.acts = acts, p.shared = shared, p.row_of = row_of;
  const int g = p.lane() / 4, t = p.lane() % 4;
  const int64_t row_bytes = acts.in / Codec::block_elements * Codec::block_bytes;
  const int64_t ff = bank.gate.out, o = int64_t{blockIdx.x} * (weight_rows / 2) + 8 * p.warp() + g;
  p.weight[0] =
      weight_row(static_cast<const uint8_t*>(bank.gate.data) + slot * bank.gate_stride, o, ff, row_bytes);
  p.weight[1] =
      weight_row(static_cast<const uint8_t*>(bank.up.data) + slot * bank.up_stride, o, ff, row_bytes);
  for (int first = work.begin; first < work.end; first += act_rows) {
    p.rows = gather(groups, work, first, top_k, pair_of, row_of);
    p.begin();
    p.finish();
#pragma unroll
    for (int n = 0; n < row_tiles; ++n)
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int r = 8 * n + 2 * t + i;
        if (r < p.rows && o < ff) act[pair_of[r] * ff + o] = silu_f32(p.acc[n][i]) * p.acc[n][i + 2];
      }
    __syncthreads();  // pair_of is read above and written by the next tile
  }
}

/// grid: (tiles of 128 rows of down, experts).
template <typename Codec>
__global__ void __launch_bounds__(threads, 2)
    down(ExpertBank bank, ExpertGroups groups, Acts acts, float* parts) {
  WEIR_DYNAMIC_SHARED(shared);
  __shared__ int pair_of[act_rows], row_of[act_rows];
  allow_next();
  fetch_parameters(bank, groups, acts);
  wait_for_previous();
  const Group work = find_group(groups, blockIdx.y);
  if (work.expert < 0) return;
  const int slot = bank.slot_of ? bank.slot_of[work.expert] : work.expert;
  Product<Codec> p;
  p.acts = acts, p.shared = shared, p.row_of = row_of;
  const int g = p.lane() / 4, t = p.lane() % 4;
  const int64_t row_bytes = acts.in / Codec::block_elements * Codec::block_bytes;
  const int64_t hidden = bank.down.out, first_out = int64_t{blockIdx.x} * weight_rows + 16 * p.warp() + g;
  const uint8_t* weight = static_cast<const uint8_t*>(bank.down.data) + slot * bank.down_stride;
  for (int row = 0; row < 2; ++row)
    p.weight[row] = weight_row(weight, first_out + 8 * row, hidden, row_bytes);
  for (int first = work.begin; first < work.end; first += act_rows) {
    p.rows = gather(groups, work, first, 1, pair_of, row_of);
    p.begin();
    p.finish();
#pragma unroll
    for (int n = 0; n < row_tiles; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int r = 8 * n + 2 * t + i % 2;
        const int64_t o = first_out + 8 * (i / 2);
        if (r < p.rows && o < hidden) parts[pair_of[r] * hidden + o] = p.acc[n][i];
      }
    __syncthreads();  // pair_of is read above and written by the next tile
  }
}

// --- launchers, one set a format
// ----------------------------------------------------------------------------------

inline int64_t tiles(int64_t n, int64_t tile) { return (n + tile - 1) / tile; }

/// Q4_K is copied from whole 16 bytes on: rows that begin elsewhere would be read shifted.
template <typename Codec>
void check_aligned(const void* weight, uint64_t stride, const char* operation) {
  if constexpr (Fragments<Codec>::block_bytes % 16 == 0 && Codec::block_elements == 256)
    WEIR_CHECK(reinterpret_cast<uintptr_t>(weight) % 16 == 0 && stride % 16 == 0,
               "{}: weights at {}, {} apart", operation, weight, stride);
}

/// Fewer activation rows a block where there are too few blocks for the device.
template <typename Codec>
void launch_matmul(Stream& s, const LargeMatmul& args) {
  check_aligned<Codec>(args.weight, 0, "large_matmul");
  const auto out_tiles = static_cast<unsigned>(tiles(args.out_rows, weight_rows));
  int rows_a_block = act_rows;
  while (rows_a_block > 16 && tiles(args.rows, rows_a_block) * out_tiles < s.multiprocessors)
    rows_a_block /= 2;
  constexpr size_t bytes = size_t{Stage<Codec>::count} * Stage<Codec>::bytes;
  launch(s, "large_matmul", matmul<Codec>,
         dim3(static_cast<unsigned>(tiles(args.rows, rows_a_block)), out_tiles), dim3(threads), bytes, args,
         rows_a_block);
}

template <typename Codec>
void launch_gate_up(Stream& s, const ExpertBank& bank, const ExpertGroups& groups, const Acts& acts, int rows,
                    int top_k, float* act) {
  constexpr size_t bytes = size_t{Stage<Codec>::count} * Stage<Codec>::bytes;
  check_aligned<Codec>(bank.gate.data, bank.gate_stride, "large_gate_up");
  check_aligned<Codec>(bank.up.data, bank.up_stride, "large_gate_up");
  const auto experts = static_cast<unsigned>(std::min<int64_t>(bank.experts, int64_t{rows} * top_k));
  launch(s, "large_gate_up", gate_up<Codec>,
         dim3(static_cast<unsigned>(tiles(bank.gate.out, weight_rows / 2)), experts), dim3(threads), bytes,
         bank, groups, acts, top_k, act);
}

template <typename Codec>
void launch_down(Stream& s, const ExpertBank& bank, const ExpertGroups& groups, const Acts& acts, int rows,
                 int top_k, float* parts) {
  constexpr size_t bytes = size_t{Stage<Codec>::count} * Stage<Codec>::bytes;
  check_aligned<Codec>(bank.down.data, bank.down_stride, "large_down");
  const auto experts = static_cast<unsigned>(std::min<int64_t>(bank.experts, int64_t{rows} * top_k));
  launch(s, "large_down", down<Codec>,
         dim3(static_cast<unsigned>(tiles(bank.down.out, weight_rows)), experts), dim3(threads), bytes, bank,
         groups, acts, parts);
}

}  // namespace weir::cuda::large

/// In a format's .cu file, once, after its fragments.
#define WEIR_LARGE_MATMUL(Codec)                                                                           \
  namespace weir::cuda::large {                                                                            \
  template void launch_matmul<Codec>(Stream&, const LargeMatmul&);                                         \
  template void launch_gate_up<Codec>(Stream&, const ExpertBank&, const ExpertGroups&, const Acts&, int,   \
                                      int, float*);                                                        \
  template void launch_down<Codec>(Stream&, const ExpertBank&, const ExpertGroups&, const Acts&, int, int, \
                                   float*);                                                                \
  }
