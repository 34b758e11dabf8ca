// How kernels are launched: one stream, programmatic dependent launch always, every failure an Error with the
// call and the operation. Owns the count of launches and the stamp that the next launch carries. For .cu
// files and the device's own; no one outside device/cuda.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <set>

#include "base/error.h"

namespace weir::cuda {

/// Throws Error (failure): the call, the operation and what the driver says.
inline void check(cudaError_t result, const char* call, const char* operation) {
  if (result != cudaSuccess)
    throw failure("cuda: {} failed for {}: {} ({})", call, operation, cudaGetErrorString(result),
                  cudaGetErrorName(result));
}

/// Where launches go.
struct Stream {
  cudaStream_t handle = nullptr;
  int multiprocessors = 1;
  /// Where the next launch writes the time at its start, in device memory; null: nothing. Only kernels that
  /// can be the first of a role take it (take_stamp).
  uint64_t* stamp = nullptr;
  uint64_t launches = 0;
  uint64_t failing_launch = 0;       ///< test: the how many-th from now fails, 1 the next; 0: none
  std::set<const void*> prepared{};  ///< kernels that launch() has set up
  uint64_t* take_stamp() {
    uint64_t* s = stamp;
    stamp = nullptr;
    return s;
  }
};

/// Launches `kernel` as a programmatic dependent of the launch before it: every kernel calls
/// wait_for_previous() (stamp.cuh) before it touches what an earlier kernel wrote, or writes.
template <typename... P, typename... A>
void launch(Stream& s, const char* operation, void (*kernel)(P...), dim3 grid, dim3 block,
            size_t shared_bytes, A&&... args) {
  WEIR_CHECK(s.stamp == nullptr, "{} begins a role but does not stamp", operation);
  const auto* function = reinterpret_cast<const void*>(kernel);
  // One division of a multiprocessor's memory for all: changing it drains the multiprocessor, and the next
  // kernel could not start early.
  if (s.prepared.insert(function).second)
    check(cudaFuncSetAttribute(function, cudaFuncAttributePreferredSharedMemoryCarveout, 100),
          "cudaFuncSetAttribute", operation);
  cudaLaunchAttribute attribute[1];
  attribute[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute[0].val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = grid, config.blockDim = block, config.dynamicSmemBytes = shared_bytes;
  config.stream = s.handle, config.attrs = attribute, config.numAttrs = 1;
  const bool fails = s.failing_launch != 0 && --s.failing_launch == 0;
  check(fails ? cudaErrorLaunchFailure : cudaLaunchKernelEx(&config, kernel, static_cast<P>(args)...),
        "cudaLaunchKernelEx", operation);
  ++s.launches;
}

/// Lets a kernel use more than 48 KiB of dynamic shared memory; call before its first launch.
template <typename K>
void allow_shared(K* kernel, size_t bytes, const char* operation) {
  check(cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                             cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)),
        "cudaFuncSetAttribute", operation);
}

}  // namespace weir::cuda
