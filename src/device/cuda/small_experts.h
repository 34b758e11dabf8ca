// Between small_experts.cu, which shapes the work, and the formats' files, which hold the kernels.
#pragma once

#include "device/cuda/kernels.h"
#include "device/cuda/small_shape.h"

namespace weir::cuda {

struct GateUpTask {
  SmallShape shape;  ///< tiles alternate: 16 rows of gate, the same 16 of up
  const uint8_t* gate = nullptr;
  const uint8_t* up = nullptr;
  uint64_t gate_stride = 0, up_stride = 0;
  const int32_t* slot_of = nullptr;
  const int32_t* ids = nullptr;
  const float* x = nullptr;
  int ff = 0;
  float* act = nullptr;
};

struct DownTask {
  SmallShape shape;
  const uint8_t* down = nullptr;
  uint64_t down_stride = 0;
  const int32_t* slot_of = nullptr;
  int hidden = 0;
  bool after_gate_up = false;  ///< gate_up_kernel was launched just before: ids are final before the wait
  const int32_t* ids = nullptr;
  const float* weights = nullptr;
  int top_k = 0;
  const float* act = nullptr;
  float* h = nullptr;
};

// One each for a format, in small_experts_<format>.cu.
template <typename Codec>
void launch_gate_up(Stream& s, const GateUpTask& task, int blocks, int pairs);
template <typename Codec>
void launch_down_sum(Stream& s, const DownTask& task, int blocks);

}  // namespace weir::cuda
