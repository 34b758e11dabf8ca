// One block of threads: who runs, who waits for what, and what is said when no one can go on. Owns the order
// of threads, barriers, warp-wide operations and the block's shared memory; what the operations mean is the
// callers' (intrinsics.h, ptx.cpp).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "emulation/emulation.h"
#include "emulation/fiber.h"
#include "emulation/include/vector_types.h"

// CUDA's built-in variables: of the thread that runs.
inline uint3 threadIdx, blockIdx;
inline dim3 blockDim, gridDim;
inline constexpr int warpSize = 32;

namespace weir::emulation {

/// What a lane brings to a warp-wide operation, by lane; null for lanes that do not take part.
using LaneArguments = std::array<void*, 32>;
/// Does the operation for all lanes at once: called when the last of them has arrived.
using WarpOperation = void (*)(const LaneArguments& arguments);

/// Blocks the thread until every lane of `mask` that has not ended is at the same operation. `name` is a
/// literal.
void warp_operation(uint32_t mask, const char* name, WarpOperation operation, void* arguments);
/// As warp_operation over all 32 lanes, none of which may have ended.
void whole_warp_operation(const char* name, WarpOperation operation, void* arguments);
/// __syncthreads(): the number of threads whose `predicate` was true.
int block_barrier(bool predicate);
/// Blocks the thread until ready() is true. It is asked only when no thread can run.
void wait_until(const char* name, const std::function<bool()>& ready);
/// Blocks the thread until no other can go on without it (once a block; see memory.h).
void wait_for_earlier_kernels();
/// allow_next()
void allow_later_kernels();
/// Ends the launch with this message. Callable from kernels, and from a signal handler that returns into it.
[[noreturn]] void fail(const std::string& message);

int lane();
/// 0..blockDim.x * y * z - 1
int thread_number();
/// Lanes of this warp that have not ended.
uint32_t live_lanes();
/// The block's dynamic shared memory; ends at a guard page.
uint8_t* dynamic_shared();
size_t dynamic_shared_bytes();
/// Whether `address` may be shared memory (it is not device memory).
bool in_kernel();
/// "kernel: block (0, 0, 0), thread (1, 0, 0)"
std::string where();
bool is_stack_guard(const void* address);

/// Adds one to a count.
void note(uint64_t Counts::*count);

/// What a launch does to the start of the next one: it may start at any time, after this one's
/// wait_for_previous(), or after its end.
enum class NextStarts : uint8_t { early, after_wait, after_end };
NextStarts next_starts();

/// Runs every thread of every block. Returns an empty string, or what went wrong.
std::string run_grid(const std::string& kernel, dim3 grid, dim3 block, size_t shared_bytes,
                     const std::function<void()>& body);

}  // namespace weir::emulation
