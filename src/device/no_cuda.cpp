// Stands for the CUDA device in a build without it (CMake compiles one or the other).
#include "device/device.h"

namespace weir {

std::unique_ptr<Device> make_cuda_device(const CudaOptions& options) {
  throw input_error(
      "--device cuda:{}: this build has no CUDA: nvcc was not found when it was configured (PATH, "
      "/usr/local/cuda/bin), or WEIR_CUDA is OFF",
      options.index);
}

bool built_with_cuda() { return false; }

int cuda_device_count() { return 0; }

}  // namespace weir
