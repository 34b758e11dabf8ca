// The (row, slot) pairs of a batch by expert. One launch, one block an expert: every block counts all ids, so
// that it knows where its own pairs begin, and places them in increasing order by ballots. No block waits for
// another, and no order of atomics reaches the result.
#include "device/cuda/kernels.h"
#include "device/cuda/ptx.cuh"

namespace weir::cuda {
namespace {

constexpr int threads = 512, warps = threads / 32;
constexpr int batch = 8;  ///< loads in flight

/// What the pairs say about the block's expert and those before it.
struct Place {
  int before;         ///< pairs of lower experts
  int active_before;  ///< lower experts with pairs
};

/// Sums over the block of the two values; `scratch` [2 * warps]. Meets two barriers.
__device__ Place block_sum(Place p, int* scratch) {
  p.before = __reduce_add_sync(~0u, p.before);
  p.active_before = __reduce_add_sync(~0u, p.active_before);
  const int warp = static_cast<int>(threadIdx.x) / 32;
  if (threadIdx.x % 32 == 0) scratch[2 * warp] = p.before, scratch[2 * warp + 1] = p.active_before;
  __syncthreads();
  p = {0, 0};
  for (int w = 0; w < warps; ++w) p.before += scratch[2 * w], p.active_before += scratch[2 * w + 1];
  __syncthreads();  // scratch may be written again
  return p;
}

__global__ void __launch_bounds__(threads) group(const int32_t* ids, int n, int experts, ExpertGroups out) {
  WEIR_DYNAMIC_SHARED(shared);
  auto* counts = reinterpret_cast<int*>(shared);  // [experts]
  __shared__ int scratch[2 * warps], in_warp[warps];
  const int tid = static_cast<int>(threadIdx.x), lane = tid % 32, warp = tid / 32;
  const int expert = static_cast<int>(blockIdx.x);
  allow_next();
  for (int e = tid; e < experts; e += threads) counts[e] = 0;
  __syncthreads();
  wait_for_previous();
  // A warp has a run of pairs, so that warps in order are pairs in order.
  const int run = (n + 32 * warps - 1) / (32 * warps) * 32;
  const int begin = min(n, warp * run), end = min(n, begin + run);
  int mine = 0;
  for (int first = begin; first < end; first += 32 * batch) {
    int id[batch];
#pragma unroll
    for (int i = 0; i < batch; ++i) {
      const int pair = first + 32 * i + lane;
      id[i] = pair < end ? ids[pair] : -1;
    }
#pragma unroll
    for (int i = 0; i < batch; ++i) {
      if (id[i] >= 0) atomicAdd(&counts[id[i]], 1);
      mine += id[i] == expert;
    }
  }
  mine = __reduce_add_sync(~0u, mine);
  if (lane == 0) in_warp[warp] = mine;
  __syncthreads();  // counts and in_warp are complete

  Place p{0, 0};
  int active = 0;
  for (int e = tid; e < experts; e += threads) {
    if (e < expert) p.before += counts[e], p.active_before += counts[e] > 0;
    active += counts[e] > 0;
  }
  p = block_sum(p, scratch);
  if (expert == 0) {
    active = block_sum({0, active}, scratch).active_before;
    if (tid == 0) {
      *out.active = active;
      out.begin[active] = n;
      *out.visits += static_cast<uint64_t>(active);
    }
  }
  if (counts[expert] == 0) return;
  if (tid == 0) {
    out.expert[p.active_before] = expert;
    out.begin[p.active_before] = p.before;
  }
  if (mine == 0) return;
  int at = p.before;
  for (int w = 0; w < warp; ++w) at += in_warp[w];
  for (int first = begin; first < end; first += 32) {
    const int pair = first + lane;
    const bool is_mine = pair < end && ids[pair] == expert;
    const unsigned all = __ballot_sync(~0u, is_mine);
    if (is_mine) out.pairs[at + __popc(all & ((1u << lane) - 1))] = pair;
    at += __popc(all);
  }
}

}  // namespace

void group_pairs(Stream& s, const int32_t* ids, int rows, int top_k, int experts, const ExpertGroups& out) {
  launch(s, "group_pairs", group, dim3(static_cast<unsigned>(experts)), dim3(threads),
         static_cast<size_t>(experts) * sizeof(int), ids, rows * top_k, experts, out);
}

}  // namespace weir::cuda
