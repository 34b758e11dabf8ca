// Loads and packed arithmetic that the formats' fragments share: blocks whose size is not a multiple of four
// bytes lie at either alignment of a 32-bit word.
#pragma once

#include <cuda_fp16.h>

#include <cstdint>

namespace weir::cuda {

__device__ __forceinline__ uint32_t load_half_bits(const uint8_t* bytes) {
  return *reinterpret_cast<const uint16_t*>(bytes);
}

/// Four bytes at base + offset + moved, where base is 4-byte aligned (kAligned) or 2 bytes past that, and
/// `moved` is a multiple of four.
template <bool kAligned>
__device__ __forceinline__ uint32_t load_word(const uint8_t* base, int offset, int moved) {
  const uint8_t* bytes = base + offset + moved;
  if ((offset + (kAligned ? 0 : 2)) % 4 == 0) return *reinterpret_cast<const uint32_t*>(bytes);
  return load_half_bits(bytes) | load_half_bits(bytes + 2) << 16;
}

/// Whether a pointer is 4-byte aligned.
__device__ __forceinline__ bool word_aligned(const uint8_t* bytes) {
  return (reinterpret_cast<uintptr_t>(bytes) & 2) == 0;
}

__device__ __forceinline__ float half_bits_to_float(uint32_t bits) {
  return __half2float(__ushort_as_half(static_cast<unsigned short>(bits)));
}

/// Four bytes that each have their top bit set: (byte & 127) - less for each, as s8; no byte borrows.
__device__ __forceinline__ uint32_t minus_packed(uint32_t top_bits_set, uint32_t less) {
  return (top_bits_set - less) ^ 0x80808080u;
}

}  // namespace weir::cuda
