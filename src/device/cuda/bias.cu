// Biases of matmuls: a launch of their own behind the matmul's, so that weights without them run the kernels
// that they always ran.
#include <algorithm>

#include "device/cuda/kernels.h"
#include "device/cuda/parameters.cuh"
#include "device/cuda/ptx.cuh"

namespace weir::cuda {
namespace {

constexpr int threads = 256;

/// blockIdx.x: the row; blockIdx.y: `threads` outputs of target blockIdx.z.
__global__ void __launch_bounds__(threads) add_bias_kernel(AddBias a) {
  allow_next();
  // Indices that the compiler knows: it would copy the parameters to a stack for others.
  const BiasTarget t = blockIdx.z == 0 ? a.target[0] : blockIdx.z == 1 ? a.target[1] : a.target[2];
  const int64_t o = int64_t{blockIdx.y} * threads + threadIdx.x;
  const float bias = o < t.out ? t.bias[o] : 0.0f;
  fetch_parameters(a);
  wait_for_previous();
  if (o >= t.out) return;
  const int64_t at = blockIdx.x * t.out + o;
  const float y = t.y[at] + bias;
  if (t.sum)
    t.sum[at] = t.sum[at] + y;
  else
    t.y[at] = y;
}

}  // namespace

void add_bias(Stream& s, const AddBias& args) {
  if (args.rows == 0 || args.targets == 0) return;
  int64_t widest = 0;
  for (int i = 0; i < args.targets; ++i) widest = std::max(widest, args.target[i].out);
  launch(s, "add_bias", add_bias_kernel,
         dim3(static_cast<unsigned>(args.rows), static_cast<unsigned>((widest + threads - 1) / threads),
              static_cast<unsigned>(args.targets)),
         dim3(threads), 0, args);
}

}  // namespace weir::cuda
