// What the CUDA device's kernels are made for at most. Here and not beside them, because builds without CUDA
// know it too (device.h: cuda_refusal).
#pragma once

namespace weir::cuda {

inline constexpr int max_head_dim = 256, head_dim_multiple = 8;
inline constexpr int most_experts = 512, most_selected = 128;

}  // namespace weir::cuda
