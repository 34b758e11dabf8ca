// The large tiles of Q4_K.
#include <cuda_runtime.h>

#include "device/cuda/fragments_q4_k.cuh"
#include "device/cuda/large_matmul.cuh"

WEIR_LARGE_MATMUL(quant::Q4_K)
