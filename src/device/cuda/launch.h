// How kernels are launched: one stream, programmatic dependent launch always, every failure an Error with the
// call and the operation. Owns the count of launches and the stamp that the next launch carries. For .cu
// files and the device's own; no one outside device/cuda.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
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
  size_t shared_bytes = 0;           ///< of a multiprocessor
  std::set<const void*> prepared{};  ///< kernels that launch() has set up
  uint64_t* take_stamp() {
    uint64_t* s = stamp;
    stamp = nullptr;
    return s;
  }
};

/// What holds for a kernel on this GPU from here on, whoever launches it. All of a block's shared memory may
/// be asked for: recordings, and other devices of the process on this GPU, keep launches larger than the
/// next. And there is one division of a multiprocessor's memory for all kernels: changing it drains the
/// multiprocessor, and the next kernel could not start early.
inline void prepare(const void* function, const char* operation) {
  constexpr int most_shared = 227 << 10;  // of a block, what the kernel declares by itself included
  cudaFuncAttributes own;
  check(cudaFuncGetAttributes(&own, function), "cudaFuncGetAttributes", operation);
  check(cudaFuncSetAttribute(function, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             most_shared - static_cast<int>(own.sharedSizeBytes)),
        "cudaFuncSetAttribute", operation);
  check(cudaFuncSetAttribute(function, cudaFuncAttributePreferredSharedMemoryCarveout, 100),
        "cudaFuncSetAttribute", operation);
}

/// Launches `kernel` as a programmatic dependent of the launch before it: every kernel calls
/// wait_for_previous() (ptx.cuh) before it touches what an earlier kernel wrote, or writes; it may read ahead
/// of that what is complete behind a kernel that settles (kernels.h).
template <typename... P, typename... A>
void launch(Stream& s, const char* operation, void (*kernel)(P...), dim3 grid, dim3 block,
            size_t shared_bytes, A&&... args) {
  WEIR_CHECK(s.stamp == nullptr, "{} begins a role but does not stamp", operation);
  const auto* function = reinterpret_cast<const void*>(kernel);
  if (s.prepared.insert(function).second) prepare(function, operation);
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

/// Dynamic shared memory for blocks that have work for `bytes` and come in one wave: as much more as keeps
/// each multiprocessor at its even share of them. They start while the kernel before them ends, and where
/// that ends first more of them would be packed than the others wait for.
inline size_t evenly_spread(const Stream& s, size_t bytes, int64_t blocks) {
  constexpr size_t reserved = 1 << 10;  // the system's, of every block
  const auto share = static_cast<size_t>((blocks + s.multiprocessors - 1) / s.multiprocessors);
  const size_t too_many = s.shared_bytes / (share + 1);
  return too_many < reserved ? bytes : std::max(bytes, (too_many - reserved + 128) / 128 * 128);
}

}  // namespace weir::cuda
