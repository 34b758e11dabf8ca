// One head's norm and rotation by a warp (docs/arithmetic.md: norms, rotary embedding): what rope.cu and the
// attention kernels that rotate for themselves share. Lane j holds elements j, j + 32, ... of the head.
#pragma once

#include <cmath>

#include "device/device.h"

namespace weir::cuda::rope {

/// A float dot of x with itself (one segment): p[j] is lane j's.
template <int kEach>
__device__ __forceinline__ float square(const float (&x)[kEach], int lane, int n) {
  float p = 0;
#pragma unroll
  for (int i = 0; i < kEach; ++i)
    if (lane + 32 * i < n) p = fmaf(x[i], x[i], p);
#pragma unroll
  for (int width = 16; width > 0; width /= 2) p = p + __shfl_xor_sync(0xffffffffu, p, width);
  return p;
}

__device__ __forceinline__ void rotate(float& x0, float& x1, float c, float s) {
  const float y0 = fmaf(x0, c, -(x1 * s));
  const float y1 = fmaf(x0, s, x1 * c);
  x0 = y0, x1 = y1;
}

/// cos and sin of pairs lane, lane + 32, ... at one position.
template <int kEach>
struct Turn {
  float cos[kEach / 2], sin[kEach / 2];
};

template <int kEach>
__device__ __forceinline__ Turn<kEach> load_turn(const RopeTable& table, int position, int lane) {
  Turn<kEach> turn;
  const int half = table.n_rot / 2;
  const int64_t at = static_cast<int64_t>(position) * half + lane;
#pragma unroll
  for (int i = 0; i < kEach / 2; ++i) {
    const bool used = lane + 32 * i < half;
    turn.cos[i] = used ? table.cos[at + 32 * i] : 0.0f;
    turn.sin[i] = used ? table.sin[at + 32 * i] : 0.0f;
  }
  return turn;
}

/// weight[i] is the norm's of element lane + 32 i, or 1 where there is none.
template <int kEach>
__device__ __forceinline__ void load_weight(float (&weight)[kEach], const float* norm, int lane, int n) {
#pragma unroll
  for (int i = 0; i < kEach; ++i) weight[i] = norm && lane + 32 * i < n ? norm[lane + 32 * i] : 1.0f;
}

template <int kEach>
__device__ __forceinline__ void apply_norm(float (&x)[kEach], const float (&weight)[kEach], float eps,
                                           int lane, int n) {
  const float inv = 1.0f / sqrtf(square(x, lane, n) / static_cast<float>(n) + eps);
#pragma unroll
  for (int i = 0; i < kEach; ++i) x[i] = (x[i] * inv) * weight[i];
}

/// `scratch` is n floats of the warp's own in shared memory: pairs are of different lanes in general.
template <int kEach>
__device__ __forceinline__ void turn_head(float (&x)[kEach], const Turn<kEach>& turn, const RopeTable& table,
                                          float* scratch, int lane, int n) {
  const bool neox = table.style == RopeStyle::neox;
  if (neox && n == 32 * kEach && table.n_rot == n) {  // both of a pair are the lane's own
#pragma unroll
    for (int i = 0; i < kEach / 2; ++i) rotate(x[i], x[i + kEach / 2], turn.cos[i], turn.sin[i]);
    return;
  }
  const int half = table.n_rot / 2;
#pragma unroll
  for (int i = 0; i < kEach; ++i)
    if (lane + 32 * i < n) scratch[lane + 32 * i] = x[i];
  __syncwarp();
#pragma unroll
  for (int i = 0; i < kEach / 2; ++i) {
    const int pair = lane + 32 * i;
    if (pair < half)
      rotate(scratch[neox ? pair : 2 * pair], scratch[neox ? pair + half : 2 * pair + 1], turn.cos[i],
             turn.sin[i]);
  }
  __syncwarp();
#pragma unroll
  for (int i = 0; i < kEach; ++i)
    if (lane + 32 * i < n) x[i] = scratch[lane + 32 * i];
}

}  // namespace weir::cuda::rope
