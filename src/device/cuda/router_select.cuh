// From router logits to experts: ranks, ids, weights, and the batch's pairs by expert; docs/arithmetic.md,
// router. One block works through up to small_rows rows. Knows nothing of where logits come from.
#pragma once

#include "base/arithmetic.h"
#include "device/cuda/kernels.h"
#include "device/cuda/segment.cuh"
#include "device/gpu_limits.h"

namespace weir::cuda {

inline constexpr int most_chunks = most_experts / 32;  ///< of 32 experts, a lane each
inline constexpr int most_select_warps = 16;

struct SelectShared {
  uint32_t chosen[small_rows][most_chunks];  ///< bit e % 32 of chunk e / 32
  uint32_t nan[small_rows][most_chunks];     ///< logits that are not numbers, likewise
  uint16_t before[small_rows][most_chunks];  ///< chosen in earlier chunks
  float largest[small_rows];                 ///< logit
  uint16_t id[most_select_warps][most_selected];
  uint32_t chunk_total[most_chunks];  ///< pairs | active << 16
};

WEIR_BOTH_SIDES inline int chunks_of(int experts) { return (experts + 31) / 32; }
/// Of the logits in shared memory that select_experts() wants.
inline size_t select_logit_bytes(int rows, int experts) {
  return static_cast<size_t>(rows) * static_cast<size_t>(chunks_of(experts)) * 32 * sizeof(float);
}

/// How many of the row's experts come before expert 32 chunk + lane: larger logits, and equal ones of lower
/// ids. `logits` are padded with -inf to whole chunks.
__device__ __forceinline__ int rank_of(const float* logits, int chunks, int chunk, int lane) {
  const auto* fours = reinterpret_cast<const float4*>(logits);
  const float mine = logits[32 * chunk + lane];
  int rank = 0;
  for (int c = 0; c < chunk; ++c) {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const float4 v = fours[8 * c + i];
      rank += (v.x >= mine) + (v.y >= mine) + (v.z >= mine) + (v.w >= mine);
    }
  }
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const float4 v = fours[8 * chunk + i];
    rank += (4 * i < lane ? v.x >= mine : v.x > mine) + (4 * i + 1 < lane ? v.y >= mine : v.y > mine) +
            (4 * i + 2 < lane ? v.z >= mine : v.z > mine) + (4 * i + 3 < lane ? v.w >= mine : v.w > mine);
  }
  for (int c = chunk + 1; c < chunks; ++c) {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const float4 v = fours[8 * c + i];
      rank += (v.x > mine) + (v.y > mine) + (v.z > mine) + (v.w > mine);
    }
  }
  return rank;
}

/// exp(l - M) of the values 0..n - 1 that lanes give by `logit(i)`, summed in order; in every lane.
template <typename F>
__device__ __forceinline__ float exp_sum(int n, float largest, int lane, F&& logit) {
  float sum = 0;
  for (int base = 0; base < n; base += 32) {
    const float e = base + lane < n ? exp_f32(logit(base + lane) - largest) : 0.0f;
    const int here = n - base < 32 ? n - base : 32;
#pragma unroll 8
    for (int j = 0; j < here; ++j) sum = sum + __shfl_sync(whole_warp, e, j);
  }
  return sum;
}

/// A warp writes one row's ids and weights: `row` of the block's, `global_row` of the batch. kAlone: the row
/// is the batch, and its pairs by expert are its choices.
template <bool kAlone>
__device__ __forceinline__ void write_row(const RouteArgs& a, int64_t global_row, int row,
                                          const float* logits, SelectShared& s, const ExpertGroups& g,
                                          int lane) {
  const int experts = static_cast<int>(a.router.out), chunks = chunks_of(experts), k = a.top_k;
  uint16_t(&id)[most_selected] = s.id[threadIdx.x / 32];
  int count = 0;
  uint32_t nan = 0;
#pragma unroll 4
  for (int c = 0; c < chunks; ++c) {
    const uint32_t chosen = s.chosen[row][c];
    nan |= s.nan[row][c];
    if (chosen >> lane & 1u)
      id[count + __popc(chosen & ((1u << lane) - 1))] = static_cast<uint16_t>(32 * c + lane);
    if (lane == 0) s.before[row][c] = static_cast<uint16_t>(count);
    count += __popc(chosen);
  }
  __syncwarp();  // id is written
  const float largest = s.largest[row];
  const float sum = a.kind == RouterKind::softmax_selected
                        ? exp_sum(k, largest, lane, [&](int j) { return logits[id[j]]; })
                        : exp_sum(experts, largest, lane, [&](int e) { return logits[e]; });
  for (int j = lane; j < k; j += 32) {
    const float weight = exp_f32(logits[id[j]] - largest) / sum;
    a.ids[global_row * k + j] = id[j];
    // A logit that is not a number makes the row's weights NaN, whichever experts were chosen.
    a.weights[global_row * k + j] = nan ? __uint_as_float(0x7fc00000u) : weight;
    if constexpr (kAlone) g.expert[j] = id[j], g.begin[j] = j, g.pairs[j] = j;
  }
  if (kAlone && lane == 0) {
    g.begin[k] = k;
    *g.active = k;
    if (g.visits) *g.visits += static_cast<uint64_t>(k);
  }
  __syncwarp();  // id is read
}

/// The pairs of rows 0..rows - 1 by expert. All threads of the block.
__device__ __forceinline__ void group_selected(const RouteArgs& a, int rows, SelectShared& s,
                                               const ExpertGroups& g) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
  const int chunks = chunks_of(static_cast<int>(a.router.out));
  // Lane: an expert. Pairs in the low half, one if there are any in the high half.
  const auto count_of = [&](int c) {
    uint32_t pairs = 0;
    for (int r = 0; r < rows; ++r) pairs += s.chosen[r][c] >> lane & 1u;
    return pairs | (pairs ? 1u << 16 : 0u);
  };
  for (int c = warp; c < chunks; c += warps) {
    const uint32_t total = __reduce_add_sync(whole_warp, count_of(c));
    if (lane == 0) s.chunk_total[c] = total;
  }
  __syncthreads();  // totals, and write_row()'s `before`
  for (int c = warp; c < chunks; c += warps) {
    uint32_t at = 0;
    for (int i = 0; i < c; ++i) at += s.chunk_total[i];
    const uint32_t mine = count_of(c);
    uint32_t upto = mine;
#pragma unroll
    for (int d = 1; d < 32; d *= 2) {
      const uint32_t below = __shfl_up_sync(whole_warp, upto, d);
      if (lane >= d) upto += below;
    }
    at += upto - mine;
    if (mine != 0) {
      const uint32_t index = at >> 16;
      uint32_t pair = at & 0xffffu;
      g.expert[index] = 32 * c + lane;
      g.begin[index] = static_cast<int32_t>(pair);
      for (int r = 0; r < rows; ++r) {
        const uint32_t chosen = s.chosen[r][c];
        if (chosen >> lane & 1u)
          g.pairs[pair++] = r * a.top_k + s.before[r][c] + __popc(chosen & ((1u << lane) - 1));
      }
    }
    if (c == chunks - 1 && lane == 31) {
      const uint32_t active = (at + mine) >> 16;
      g.begin[active] = static_cast<int32_t>((at + mine) & 0xffffu);
      *g.active = static_cast<int32_t>(active);
      if (g.visits) *g.visits += active;
    }
  }
}

/// Selects for rows row0..row0 + rows - 1 of the batch. All threads of the block; `in_shared` is shared
/// memory of select_logit_bytes(). kGroups: row0 is 0, and these rows are the batch.
template <bool kGroups>
__device__ __forceinline__ void select_experts(const RouteArgs& a, const float* logits, int64_t row0,
                                               int rows, float* in_shared, SelectShared& s,
                                               const ExpertGroups& groups) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
  const int experts = static_cast<int>(a.router.out), chunks = chunks_of(experts);
  const float negative_infinity = -__uint_as_float(0x7f800000u);
  for (int item = warp; item < rows * chunks; item += warps) {
    const int row = item / chunks, chunk = item % chunks, e = 32 * chunk + lane;
    float v = negative_infinity;
    if (e < experts) {
      // Volatile: other blocks of this kernel wrote it, so the first cache must not answer.
      v = *static_cast<const volatile float*>(logits + (row0 + row) * experts + e);
      if (a.bias) v = v + a.bias[e];
    }
    const uint32_t nan = __ballot_sync(whole_warp, v != v);
    if (lane == 0) s.nan[row][chunk] = nan;
    in_shared[32 * item + lane] = v != v ? negative_infinity : v;
  }
  __syncthreads();  // in_shared and nan
  for (int item = warp; item < rows * chunks; item += warps) {
    const int row = item / chunks, chunk = item % chunks, e = 32 * chunk + lane;
    const int rank = rank_of(in_shared + 32 * chunks * row, chunks, chunk, lane);
    const uint32_t chosen = __ballot_sync(whole_warp, rank < a.top_k && e < experts);
    if (lane == 0) s.chosen[row][chunk] = chosen;
    if (rank == 0) s.largest[row] = in_shared[32 * item + lane];
  }
  __syncthreads();  // chosen and largest
  if (kGroups && rows == 1 && groups.active) {
    if (warp == 0) write_row<true>(a, row0, 0, in_shared, s, groups, lane);
    return;
  }
  for (int row = warp; row < rows; row += warps)
    write_row<false>(a, row0 + row, row, in_shared + 32 * chunks * row, s, groups, lane);
  if constexpr (kGroups)
    if (groups.active) group_selected(a, rows, s, groups);
}

}  // namespace weir::cuda
