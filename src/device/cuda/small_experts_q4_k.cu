#include "device/cuda/fragments_q4_k.cuh"
#include "device/cuda/small_experts.cuh"

namespace weir::cuda {
template void launch_gate_up<quant::Q4_K>(Stream& s, const GateUpTask& task, int blocks, int pairs);
template void launch_down_sum<quant::Q4_K>(Stream& s, const DownTask& task, int blocks);
}  // namespace weir::cuda
