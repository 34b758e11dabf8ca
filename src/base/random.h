// Counter-based random numbers: draw i of stream s is a pure function of (s, i), so no order of work can
// change it.
#pragma once

#include <cstdint>

namespace weir {

/// SplitMix64's finaliser over a combined counter (Steele, Lea, Flood 2014).
inline uint64_t random_u64(uint64_t seed, uint64_t counter) {
  uint64_t z = seed * 0x9e3779b97f4a7c15ull + (counter + 1) * 0xd1b54a32d192ed03ull;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  z ^= z >> 31;
  z = (z + 0x9e3779b97f4a7c15ull) * 0xbf58476d1ce4e5b9ull;
  return z ^ (z >> 29);
}

/// Uniform in [0, 1) with 53 bits.
inline double random_unit(uint64_t seed, uint64_t counter) {
  return static_cast<double>(random_u64(seed, counter) >> 11) * 0x1p-53;
}

}  // namespace weir
