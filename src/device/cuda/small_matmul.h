// Between small_matmul.cu, which shapes the work, and the formats' files, which hold the kernels.
#pragma once

#include "device/cuda/kernels.h"
#include "device/cuda/small_shape.h"

namespace weir::cuda {

/// SmallMatmul with its tiles numbered through: target k's begin at first_tile.
struct SmallMatmulTask {
  struct Target {
    const uint8_t* weight = nullptr;
    float* out = nullptr;
    int out_rows = 0, first_tile = 0, add = 0;
  };
  SmallShape shape;
  Target target[3];
  int targets = 0, tiles = 0, groups = 0;
  const float* x = nullptr;
  const float* norm = nullptr;
  float eps = 0;
  Acts acts;
  int rows = 0;
};

/// One for each format, in small_matmul_<format>.cu: `blocks` blocks.
template <typename Codec>
void launch_small_matmul(Stream& s, const SmallMatmulTask& task, int blocks);

}  // namespace weir::cuda
