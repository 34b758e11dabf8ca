// CUDA's device functions as the emulation gives them: barriers, exchanges within a warp, atomics, loads, bit
// and float arithmetic. Exact but for the approximate ones (__expf and the like), which are the host's.
#pragma once

#include <math.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "emulation/block.h"

// --- barriers and fences

inline void __syncthreads() { weir::emulation::block_barrier(false); }
inline int __syncthreads_count(int p) { return weir::emulation::block_barrier(p != 0); }
inline int __syncthreads_or(int p) { return weir::emulation::block_barrier(p != 0) != 0; }
inline int __syncthreads_and(int p) { return weir::emulation::block_barrier(p == 0) == 0; }
inline void __syncwarp(unsigned mask = ~0u) {
  int nothing = 0;
  weir::emulation::warp_operation(
      mask, "__syncwarp", [](const weir::emulation::LaneArguments&) {}, &nothing);
}
inline void __threadfence() {}
inline void __threadfence_block() {}
inline void __threadfence_system() {}
inline void __nanosleep(unsigned) {}
[[noreturn]] inline void __trap() { weir::emulation::fail("__trap"); }
inline unsigned __activemask() { return weir::emulation::live_lanes(); }
inline long long clock64() { return static_cast<long long>(__builtin_ia32_rdtsc()); }

// --- exchanges within a warp

namespace weir::emulation {

template <typename T>
struct Shuffle {
  T value, result;
  int from;
};
/// Every lane gets the value of lane `from`; NaNs where that lane is not there.
template <typename T>
T shuffle(unsigned mask, const char* name, T value, int from) {
  static_assert(std::is_trivially_copyable_v<T>);
  Shuffle<T> own{value, value, from};
  warp_operation(
      mask, name,
      [](const LaneArguments& lanes) {
        for (void* p : lanes) {
          if (!p) continue;
          auto& to = *static_cast<Shuffle<T>*>(p);
          const auto* from_lane = static_cast<const Shuffle<T>*>(lanes[static_cast<size_t>(to.from)]);
          if (from_lane)
            to.result = from_lane->value;
          else
            memset(static_cast<void*>(&to.result), 0xff, sizeof(T));
        }
      },
      &own);
  return own.result;
}

template <typename T>
struct Reduction {
  T value, result;
};
template <typename T, typename F>
T reduce(unsigned mask, const char* name, T value, F) {
  Reduction<T> own{value, value};
  warp_operation(
      mask, name,
      [](const LaneArguments& lanes) {
        bool first = true;
        T total{};
        for (void* p : lanes) {
          if (!p) continue;
          const T v = static_cast<Reduction<T>*>(p)->value;
          total = first ? v : F()(total, v);
          first = false;
        }
        for (void* p : lanes)
          if (p) static_cast<Reduction<T>*>(p)->result = total;
      },
      &own);
  return own.result;
}

}  // namespace weir::emulation

template <typename T>
T __shfl_sync(unsigned mask, T value, int from, int width = 32) {
  const int lane = weir::emulation::lane();
  return weir::emulation::shuffle(mask, "__shfl_sync", value, (lane & ~(width - 1)) + (from & (width - 1)));
}
template <typename T>
T __shfl_xor_sync(unsigned mask, T value, int with, int width = 32) {
  const int lane = weir::emulation::lane(), from = lane ^ with;
  const bool outside = (from & ~(width - 1)) > (lane & ~(width - 1));
  return weir::emulation::shuffle(mask, "__shfl_xor_sync", value, outside ? lane : from);
}
template <typename T>
T __shfl_down_sync(unsigned mask, T value, unsigned by, int width = 32) {
  const int lane = weir::emulation::lane(), from = lane + static_cast<int>(by);
  return weir::emulation::shuffle(mask, "__shfl_down_sync", value,
                                  (lane & (width - 1)) + static_cast<int>(by) < width ? from : lane);
}
template <typename T>
T __shfl_up_sync(unsigned mask, T value, unsigned by, int width = 32) {
  const int lane = weir::emulation::lane(), from = lane - static_cast<int>(by);
  return weir::emulation::shuffle(mask, "__shfl_up_sync", value,
                                  (lane & (width - 1)) >= static_cast<int>(by) ? from : lane);
}
inline unsigned __ballot_sync(unsigned mask, int predicate) {
  const unsigned bit = predicate ? 1u << weir::emulation::lane() : 0;
  return weir::emulation::reduce(mask, "__ballot_sync", bit, [](unsigned a, unsigned b) { return a | b; });
}
inline int __any_sync(unsigned mask, int predicate) {
  return weir::emulation::reduce(mask, "__any_sync", predicate != 0, [](bool a, bool b) { return a || b; });
}
inline int __all_sync(unsigned mask, int predicate) {
  return weir::emulation::reduce(mask, "__all_sync", predicate != 0, [](bool a, bool b) { return a && b; });
}
#define WEIR_REDUCE(name, T, expression)                                                 \
  inline T __reduce_##name##_sync(unsigned mask, T value) {                              \
    return weir::emulation::reduce(mask, "__reduce_" #name "_sync", value,               \
                                   [](T a, T b) { return static_cast<T>(expression); }); \
  }
WEIR_REDUCE(add, unsigned, a + b)
WEIR_REDUCE(add, int, static_cast<unsigned>(a) + static_cast<unsigned>(b))
WEIR_REDUCE(min, unsigned, a < b ? a : b)
WEIR_REDUCE(min, int, a < b ? a : b)
WEIR_REDUCE(max, unsigned, a > b ? a : b)
WEIR_REDUCE(max, int, a > b ? a : b)
WEIR_REDUCE(and, unsigned, a& b)
WEIR_REDUCE(or, unsigned, a | b)
WEIR_REDUCE(xor, unsigned, a ^ b)
#undef WEIR_REDUCE
template <typename T>
unsigned __match_any_sync(unsigned mask, T value) {
  unsigned same = 0;
  for (int i = 0; i < 32; ++i)
    if ((mask >> i) & 1 && __shfl_sync(mask, value, i) == value) same |= 1u << i;
  return same;
}

// --- atomics: one thread runs at a time

template <typename T, typename U>
T atomicAdd(T* at, U value) {
  const T old = *at;
  *at = static_cast<T>(old + static_cast<T>(value));
  return old;
}
template <typename T, typename U>
T atomicSub(T* at, U value) {
  const T old = *at;
  *at = static_cast<T>(old - static_cast<T>(value));
  return old;
}
template <typename T, typename U>
T atomicMax(T* at, U value) {
  const T old = *at;
  *at = std::max(old, static_cast<T>(value));
  return old;
}
template <typename T, typename U>
T atomicMin(T* at, U value) {
  const T old = *at;
  *at = std::min(old, static_cast<T>(value));
  return old;
}
template <typename T, typename U>
T atomicOr(T* at, U value) {
  const T old = *at;
  *at = old | static_cast<T>(value);
  return old;
}
template <typename T, typename U>
T atomicAnd(T* at, U value) {
  const T old = *at;
  *at = old & static_cast<T>(value);
  return old;
}
template <typename T, typename U>
T atomicExch(T* at, U value) {
  const T old = *at;
  *at = static_cast<T>(value);
  return old;
}
template <typename T, typename U, typename V>
T atomicCAS(T* at, U compare, V value) {
  const T old = *at;
  if (old == static_cast<T>(compare)) *at = static_cast<T>(value);
  return old;
}
inline unsigned atomicInc(unsigned* at, unsigned limit) {
  const unsigned old = *at;
  *at = old >= limit ? 0 : old + 1;
  return old;
}

#include "emulation/arithmetic_intrinsics.h"
