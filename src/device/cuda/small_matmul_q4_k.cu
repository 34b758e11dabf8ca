#include "device/cuda/fragments_q4_k.cuh"
#include "device/cuda/small_matmul.cuh"

namespace weir::cuda {
template void launch_small_matmul<quant::Q4_K>(Stream& s, const SmallMatmulTask& task, int blocks);
}  // namespace weir::cuda
