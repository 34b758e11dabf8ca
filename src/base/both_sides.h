// WEIR_BOTH_SIDES marks a function that kernels call as well as the host: nothing where no GPU is compiled
// for.
#pragma once

#if defined(__CUDACC__)
#define WEIR_BOTH_SIDES __host__ __device__
#else
#define WEIR_BOTH_SIDES
#endif
