#include "device/cuda/fragments_q6_k.cuh"
#include "device/cuda/small_experts.cuh"

namespace weir::cuda {
template void launch_gate_up<quant::Q6_K>(Stream& s, const GateUpTask& task, bool one_row, int blocks,
                                          int experts);
template void launch_down_sum<quant::Q6_K>(Stream& s, const DownTask& task, int blocks);
template void launch_down<quant::Q6_K>(Stream& s, const DownTask& task, int blocks, int experts);
}  // namespace weir::cuda
