// A host emulator of CUDA kernels: the .cu files compile as C++ and run bit for bit without a GPU. What tests
// may set and ask is here; what kernels see is in include/cuda_runtime.h, intrinsics.h and ptx.h.
//
// A block's threads are fibers (fiber.h) under one scheduler (block.h); blocks run one after another.
// Reported as an Error of the launch, with the kernel, block and thread: barriers and warp-wide operations
// that some threads never reach, accesses outside device memory (memory.h), misaligned accesses and indices
// outside arrays (traps of -fsanitize), bulk copies and barriers misused, and memory that kernels write
// touched before wait_for_previous(). Shared memory is NaNs when a block starts, and so is what a copy in
// flight will write. Not emulated: races that no order of threads shows, the time anything takes, more than
// one block at once.
//
// Emulated objects: g++ -x c++ -std=c++20 -include cuda_runtime.h -DWEIR_CUDA_EMULATION -ffp-contract=off
// -fno-strict-aliasing
//   -Itests/emulation/include -Itests -Isrc, with checks: -fsanitize=alignment,bounds,shift
//   -fsanitize-undefined-trap-on-error
// One operation's tests: ninja -C build test_cuda && build/tests/test_cuda --gtest_filter='*Matmul*'
#pragma once

#include <cstdint>
#include <string>

namespace weir::emulation {

/// In which order ready threads, and blocks, run. Results must not depend on it.
enum class Order : uint8_t { forward, backward, shuffled };

struct Options {
  Order order = Order::forward;
  uint64_t seed = 1;        ///< of `shuffled`
  int multiprocessors = 4;  ///< what the emulated GPU says it has
  int devices = 1;
  uint64_t memory_bytes = 4ull << 30;
  /// Keeps memory that earlier launches may still write out of reach until wait_for_previous(), in this many
  /// blocks of about every other launch.
  int guarded_blocks = 1;
  bool poison_shared = true;
};
Options& options();

/// What is counted since the program's start.
struct Counts {
  uint64_t launches = 0, blocks = 0, switches = 0;
  uint64_t allocations = 0;  ///< live ones: of memory, streams and instantiated graphs
  uint64_t graph_launches = 0;
  uint64_t clock_reads = 0;  ///< by kernels
};
const Counts& counts();

/// What the last failed launch said.
const std::string& last_failure();

}  // namespace weir::emulation
