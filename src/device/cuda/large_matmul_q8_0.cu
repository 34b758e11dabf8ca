// The large tiles of Q8_0.
#include <cuda_runtime.h>

#include "device/cuda/fragments_q8_0.cuh"
#include "device/cuda/large_matmul.cuh"

WEIR_LARGE_MATMUL(quant::Q8_0)
