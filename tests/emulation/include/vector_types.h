// CUDA's built-in vector types, dim3 and their makers, with CUDA's alignments (the emulated kernels are
// compiled with alignment checks). Knows nothing of kernels.
#pragma once

#include <cstdint>

#define WEIR_VECTOR_1(T, name) \
  struct name##1 {             \
    T x;                       \
  };                           \
  inline name##1 make_##name##1(T x) { return {x}; }
#define WEIR_VECTOR_2(T, name, bytes) \
  struct alignas(bytes) name##2 {     \
    T x, y;                           \
  };                                  \
  inline name##2 make_##name##2(T x, T y) { return {x, y}; }
#define WEIR_VECTOR_3(T, name) \
  struct name##3 {             \
    T x, y, z;                 \
  };                           \
  inline name##3 make_##name##3(T x, T y, T z) { return {x, y, z}; }
#define WEIR_VECTOR_4(T, name, bytes) \
  struct alignas(bytes) name##4 {     \
    T x, y, z, w;                     \
  };                                  \
  inline name##4 make_##name##4(T x, T y, T z, T w) { return {x, y, z, w}; }

#define WEIR_VECTOR(T, name)            \
  WEIR_VECTOR_1(T, name)                \
  WEIR_VECTOR_2(T, name, 2 * sizeof(T)) \
  WEIR_VECTOR_3(T, name)                \
  WEIR_VECTOR_4(T, name, (4 * sizeof(T) > 16 ? 16 : 4 * sizeof(T)))

WEIR_VECTOR(signed char, char)
WEIR_VECTOR(unsigned char, uchar)
WEIR_VECTOR(short, short)
WEIR_VECTOR(unsigned short, ushort)
WEIR_VECTOR(int, int)
WEIR_VECTOR(unsigned, uint)
WEIR_VECTOR(float, float)
WEIR_VECTOR(double, double)
WEIR_VECTOR(long long, longlong)
WEIR_VECTOR(unsigned long long, ulonglong)

#undef WEIR_VECTOR
#undef WEIR_VECTOR_1
#undef WEIR_VECTOR_2
#undef WEIR_VECTOR_3
#undef WEIR_VECTOR_4

struct dim3 {
  unsigned x = 1, y = 1, z = 1;
  constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};
