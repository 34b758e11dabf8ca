// Emulated device memory. Every allocation ends at a guard page and begins behind another, is NaNs when new,
// and is checked around its edges when freed. Memory that kernels have written once cannot be touched while
// guarded: before wait_for_previous(), a kernel may read only what no kernel writes.
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

/// Between guard() and unguard() memory that kernels write is out of reach.
void guard();
void unguard();

/// "4 bytes past the end of an allocation of 64 bytes"
std::string describe(const void* address);

}  // namespace weir::emulation::memory
