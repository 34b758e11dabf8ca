// Rotary embedding and the store of keys and values: a warp for each head of each row, queries, keys and
// values side by side.
#include <cuda_fp16.h>

#include "device/cuda/kernels.h"
#include "device/cuda/parameters.cuh"
#include "device/cuda/ptx.cuh"
#include "device/cuda/rope.cuh"
#include "device/gpu_limits.h"

namespace weir::cuda {
namespace {

constexpr int warps = 4;
constexpr int per_lane = max_head_dim / 32;

__global__ void __launch_bounds__(32 * warps) rope_and_store_kernel(RopeStoreArgs args) {
  __shared__ float shared[warps][max_head_dim];
  allow_next();
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int heads = args.heads + 2 * args.kv_heads;  // q, then k, then v
  const int head = static_cast<int>(blockIdx.x) * warps + warp, row = blockIdx.y;
  const int n = args.head_dim;
  if (head >= heads) return;
  const bool is_q = head < args.heads, is_v = head >= args.heads + args.kv_heads;
  const int kv_head = is_v ? head - args.heads - args.kv_heads : head - args.heads;
  const float* norm = is_v ? nullptr : is_q ? args.q_norm : args.k_norm;
  float weight[per_lane];
  rope::load_weight(weight, norm, lane, n);
  fetch_parameters(args);
  wait_for_previous();

  const int position = args.rows.position[row];
  const int kv_lane = is_q ? 0 : args.rows.lane[row];
  float* const q = args.q + (static_cast<int64_t>(row) * args.heads + head) * n;
  const float* const source =
      is_q ? q : (is_v ? args.v : args.k) + (static_cast<int64_t>(row) * args.kv_heads + kv_head) * n;
  float x[per_lane];
#pragma unroll
  for (int i = 0; i < per_lane; ++i) x[i] = lane + 32 * i < n ? source[lane + 32 * i] : 0.0f;

  if (!is_v) {
    // The tables' loads are under way while the norm's sum is formed.
    const auto turn = rope::load_turn<per_lane>(args.rope, position, lane);
    if (norm) rope::apply_norm(x, weight, args.eps, lane, n);
    rope::turn_head(x, turn, args.rope, shared[warp], lane, n);
  }

  if (is_q) {
#pragma unroll
    for (int i = 0; i < per_lane; ++i)
      if (lane + 32 * i < n) q[lane + 32 * i] = x[i];
    return;
  }
  uint16_t* const store = (is_v ? args.kv.v : args.kv.k) + kv_lane * args.kv.lane_stride +
                          position * args.kv.row_stride + static_cast<int64_t>(kv_head) * n;
#pragma unroll
  for (int i = 0; i < per_lane; ++i)
    if (lane + 32 * i < n) store[lane + 32 * i] = __half_as_ushort(__float2half_rn(x[i]));
}

}  // namespace

void rope_and_store(Stream& s, const RopeStoreArgs& args) {
  if (args.rows.count == 0) return;
  WEIR_CHECK(args.head_dim <= max_head_dim && args.rope.n_rot <= args.head_dim && args.rope.n_rot % 2 == 0,
             "rope_and_store: head_dim {} and n_rot {}", args.head_dim, args.rope.n_rot);
  const int heads = args.heads + 2 * args.kv_heads;
  // Rows lie in y, which ends at 65,535.
  constexpr int most = 65535;
  for (int begin = 0; begin < args.rows.count; begin += most) {
    RopeStoreArgs part = args;
    part.rows.count = std::min(most, args.rows.count - begin);
    part.rows.position += begin, part.rows.lane += begin;
    part.q += static_cast<int64_t>(begin) * args.heads * args.head_dim;
    part.k += static_cast<int64_t>(begin) * args.kv_heads * args.head_dim;
    part.v += static_cast<int64_t>(begin) * args.kv_heads * args.head_dim;
    launch(s, "rope_and_store", rope_and_store_kernel,
           dim3(static_cast<unsigned>((heads + warps - 1) / warps), static_cast<unsigned>(part.rows.count)),
           dim3(32 * warps), 0, part);
  }
}

}  // namespace weir::cuda
