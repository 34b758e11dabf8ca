// What the emulation offers in the place of CUDA's own header: the words of CUDA C++ as macros, the built-in
// types and functions, and as much of the runtime API as the CUDA device calls. First on the include path of
// emulated files, so that kernels and the device's host code compile unchanged with g++
// (tests/emulation/emulation.h says how).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <tuple>
#include <type_traits>

#include "emulation/include/vector_types.h"

// --- the words of CUDA C++
#define __global__
#define __device__
#define __host__
#define __constant__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __maxnreg__(...)
#define __grid_constant__
#define __align__(n) __attribute__((aligned(n)))
// One block runs at a time, so that a block's shared memory can be static. thread_local, so that its symbols
// tell it from other statics and the emulator can poison it (symbols.h).
#define __shared__ static thread_local

#include "emulation/include/cuda_runtime_api.h"
#include "emulation/intrinsics.h"
