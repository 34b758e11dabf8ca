// The large tiles of Q5_0.
#include <cuda_runtime.h>

#include "device/cuda/fragments_q5_0.cuh"
#include "device/cuda/large_matmul.cuh"

WEIR_LARGE_MATMUL(quant::Q5_0)
