#include "device/cuda/fragments_q8_0.cuh"
#include "device/cuda/small_experts.cuh"

namespace weir::cuda {
template void launch_gate_up<quant::Q8_0>(Stream& s, const GateUpTask& task, int blocks, int pairs);
template void launch_down_sum<quant::Q8_0>(Stream& s, const DownTask& task, int blocks);
}  // namespace weir::cuda
