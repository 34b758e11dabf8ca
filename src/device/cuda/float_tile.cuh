// A warp's tile of float dots: kRows activation rows times kOuts weight rows, each dot in the order of
// docs/arithmetic.md. Operands come through the first cache, where the warps of a block meet. Knows no
// operation.
#pragma once

#include "device/cuda/segment.cuh"

namespace weir::cuda {

/// The lanes' partial sums a[v] of kN dots (a power of two up to 32) to their totals: lane l gets that of dot
/// l / (32 / kN). The additions are butterfly()'s: at each width a lane keeps half of its dots and sends the
/// other half.
template <int kN, int kWidth = 16>
__device__ __forceinline__ float butterfly_all(const float (&a)[kN], int lane) {
  if constexpr (kWidth == 0) {
    return a[0];
  } else if constexpr (kN == 1) {
    const float b[1] = {a[0] + __shfl_xor_sync(whole_warp, a[0], kWidth)};
    return butterfly_all<1, kWidth / 2>(b, lane);
  } else {
    const bool upper = (lane & kWidth) != 0;
    float b[kN / 2];
#pragma unroll
    for (int v = 0; v < kN / 2; ++v) {
      const float keep = upper ? a[v + kN / 2] : a[v], send = upper ? a[v] : a[v + kN / 2];
      b[v] = keep + __shfl_xor_sync(whole_warp, send, kWidth);
    }
    return butterfly_all<kN / 2, kWidth / 2>(b, lane);
  }
}

/// dot(x[r], w[o]) over n values, in the lanes l with l / (32 / (kRows * kOuts)) == r * kOuts + o.
template <int kRows, int kOuts, typename W>
__device__ __forceinline__ float dot_tile(const float* const (&x)[kRows], const W* const (&w)[kOuts],
                                          int64_t n, int lane) {
  float y = 0;
  for (int64_t begin = 0; begin < n; begin += segment_values) {
    const int count = n - begin < segment_values ? static_cast<int>(n - begin) : segment_values;
    float p[kRows * kOuts] = {};
    const auto step = [&](int64_t at) {
      float a[kRows], b[kOuts];
#pragma unroll
      for (int o = 0; o < kOuts; ++o) b[o] = to_float(w[o][at]);
#pragma unroll
      for (int r = 0; r < kRows; ++r) a[r] = x[r][at];
#pragma unroll
      for (int r = 0; r < kRows; ++r)
#pragma unroll
        for (int o = 0; o < kOuts; ++o) p[r * kOuts + o] = std::fma(b[o], a[r], p[r * kOuts + o]);
    };
    if (count == segment_values) {
#pragma unroll kRows == 1 ? 16 : 2
      for (int i = 0; i < segment_steps; ++i) step(begin + 32 * i + lane);
    } else {
      for (int i = lane; i < count; i += 32) step(begin + i);
    }
    __syncwarp();  // lanes without a last value rejoin
    const float sum = butterfly_all(p, lane);
    y = begin == 0 ? sum : y + sum;
  }
  return y;
}

}  // namespace weir::cuda
