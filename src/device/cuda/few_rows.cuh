// The throughput path of Q4_K experts for a few rows: a warp streams several tiles of weight rows through a
// ring of its own in shared memory, so that what it does once (parameters, addresses, activations) is paid
// for by more products.
#pragma once

#include <algorithm>

#include "device/cuda/launch.h"
#include "device/cuda/one_row.cuh"

namespace weir::cuda::few_rows {

/// Tiles of a warp's ring: one is multiplied while the next is on its way.
inline constexpr int stages = 2;

/// A warp's ring. All lanes call everything together.
struct Ring {
  uint64_t* barriers;  ///< [stages], 8-byte aligned
  uint8_t* memory;     ///< [stages, tile_bytes]
  int tile_bytes;      ///< a multiple of 16
  uint32_t asked = 0, taken = 0;

  /// The block synchronises afterwards.
  __device__ __forceinline__ void init() const {
    if (threadIdx.x % 32 == 0)
      for (int i = 0; i < stages; ++i) barrier_init(barriers + i, 1);
  }
  /// The next tile will be of `bytes`, in copies by copy(). At most `stages` are asked for and not let go.
  __device__ __forceinline__ void ask(uint32_t bytes) {
    if (threadIdx.x % 32 == 0) {
      fence_async();
      arrive_expecting(barriers + asked % stages, bytes);
    }
  }
  /// A part of it, `at` bytes from its begin; after the last, asked_all().
  __device__ __forceinline__ void copy(int at, const uint8_t* from, uint32_t bytes) const {
    if (threadIdx.x % 32 == 0)
      bulk_copy(memory + asked % stages * tile_bytes + at, from, bytes, barriers + asked % stages);
  }
  __device__ __forceinline__ void asked_all() { ++asked; }
  /// Waits for the oldest tile.
  __device__ __forceinline__ const uint8_t* take() const {
    barrier_wait(barriers + taken % stages, taken / stages % 2);
    return memory + taken % stages * tile_bytes;
  }
  __device__ __forceinline__ void let_go() {
    ++taken;
    __syncwarp();  // all lanes have read it
  }
};
inline constexpr int barrier_bytes = stages * static_cast<int>(sizeof(uint64_t));

/// Blocks of `bytes` of shared memory and `threads` threads of at most `registers` that a GPU runs at once.
inline int blocks_at_once(const Stream& s, int bytes, int threads, int registers) {
  constexpr int reserved = 1 << 10, all_registers = 64 << 10, most_threads = 2048;
  const int by_memory = static_cast<int>(s.shared_bytes) / (bytes + reserved);
  return s.multiprocessors *
         std::max(1, std::min({by_memory, all_registers / (registers * threads), most_threads / threads}));
}

}  // namespace weir::cuda::few_rows
