// Emulated device memory. Every allocation ends at a guard page and begins behind another, is NaNs when new,
// and is checked around its edges when freed. Knows which launch wrote an allocation last, and keeps what may
// still be written out of reach of kernels that have not waited for it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace weir::emulation::memory {

/// 256-byte aligned; null where `bytes` is more than is left.
void* allocate(size_t bytes);
/// False where `data` is no allocation. Throws Error where the bytes around it were written.
bool free(void* data);
/// Bytes of all live allocations.
uint64_t allocated();
/// Whether [data, data + bytes) is inside one allocation.
bool contains(const void* data, size_t bytes);
/// Whether `data` is inside some allocation.
bool is_device(const void* data);

/// Lets the host write an allocation, for the runtime's copies.
void open_for_host(void* data);
void close_for_host(void* data);

// --- the order of kernels. A launch may start before the one before it is complete: what it reads before
// wait_for_previous() must be of kernels known to be complete by then, or of none.

/// The next launch; `complete` is the last one known to be complete when it starts. Launches count from 1.
void begin_launch(uint64_t complete);
uint64_t current_launch();
/// Between guard() and unguard() memory that launches after `complete` wrote cannot be touched, and none can
/// be written.
void guard();
void unguard();

/// "4 bytes past the end of an allocation of 64 bytes"
std::string describe(const void* address);

}  // namespace weir::emulation::memory
