// What a kernel does about its parameters before it waits for the kernel before it.
#pragma once

#include <cstdint>
#include <cstring>

#include "device/cuda/ptx.cuh"

namespace weir::cuda {

/// Brings the kernel's parameters into the multiprocessor's constant caches, a word of every line of 64
/// bytes: a launch's parameters are in none of them, and a kernel that first reads them after its wait for
/// the one before waits for each line again. What the words hold makes no difference.
template <typename... P>
__device__ __forceinline__ void fetch_parameters(const P&... parameters) {
  constexpr uint32_t hardly_ever = 0x80000001u;  // then a line more is asked for
  const auto fetch_word = [](const void* at) {
    uint32_t word;
    memcpy(&word, at, sizeof word);
    if (word == hardly_ever) prefetch(nullptr);
  };
  const auto fetch = [&](const auto& parameter) {
    const auto* bytes = reinterpret_cast<const unsigned char*>(&parameter);
#pragma unroll
    for (size_t at = 0; at < sizeof parameter; at += 64) fetch_word(bytes + at);
    fetch_word(bytes + sizeof parameter - sizeof(uint32_t));
  };
  (fetch(parameters), ...);
}

/// The address is in registers here, ahead of the wait for the kernel before: what follows the wait is
/// otherwise as much of the arithmetic as the compiler likes to put there, in one variant of a kernel more
/// than in the other.
__device__ __forceinline__ void have_ready(const void* address) {
  if (reinterpret_cast<uintptr_t>(address) == 1) prefetch(nullptr);  // no address is
}

}  // namespace weir::cuda
