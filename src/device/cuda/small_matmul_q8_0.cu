#include "device/cuda/fragments_q8_0.cuh"
#include "device/cuda/small_matmul.cuh"

namespace weir::cuda {
template void launch_small_matmul<quant::Q8_0>(Stream& s, const SmallMatmulTask& task, int blocks);
}  // namespace weir::cuda
