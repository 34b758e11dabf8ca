// The large tiles of Q6_K.
#include <cuda_runtime.h>

#include "device/cuda/fragments_q6_k.cuh"
#include "device/cuda/large_matmul.cuh"

WEIR_LARGE_MATMUL(quant::Q6_K)
