// The CPU's kernels by instruction set: plain function pointers over raw pointers, one table per set, chosen
// at run time. Every set gives the same bits (docs/arithmetic.md). Kernels know no threads: callers split the
// work; each output element is written by one call.
#pragma once

#include <cstdint>

#include "quant/codec.h"
#include "quant/types.h"

namespace weir::cpu {

/// Part of y = W x: for each of n rows i and outputs o in [out_begin, out_end):
///   y[row_out(i) * y_stride + o] = dot(W row o, x row row_in(i))
/// with row_in(i) = x_index ? x_index[i] : i and row_out(i) = y_index ? y_index[i] : i.
struct MatmulTask {
  const uint8_t* weight = nullptr;  ///< row o begins at weight + o * row_bytes; no alignment beyond bytes
  uint64_t row_bytes = 0;
  int64_t in = 0;
  int64_t out_begin = 0, out_end = 0;
  int n = 0;
  quant::ActRows act;        ///< block formats
  const float* x = nullptr;  ///< float formats (F32, F16, BF16): [rows, in]
  const int32_t* x_index = nullptr;
  float* y = nullptr;
  int64_t y_stride = 0;
  const int32_t* y_index = nullptr;
};
using MatmulKernel = void (*)(const MatmulTask& task);

/// Quantises n rows of `in` floats (row r at x + r * x_stride) into q/scale/sums laid out as ActRows
/// describes. Returns false where a value was not finite (that row's blocks then hold zeros with scale NaN).
struct QuantizeTask {
  const float* x = nullptr;
  int64_t x_stride = 0;
  const int32_t* x_index = nullptr;  ///< row r is x_index[r] of x, or r
  int64_t in = 0;
  int row_begin = 0, row_end = 0;
  int8_t* q = nullptr;
  float* scale = nullptr;
  int16_t* sums = nullptr;
};
using QuantizeKernel = bool (*)(const QuantizeTask& task);

struct MatmulKernels {
  const char* isa;                    ///< "scalar", "avx2", "avx512"
  MatmulKernel (*matmul)(Type type);  ///< null for types that are not computable
  QuantizeKernel quantize32, quantize256;
};
const MatmulKernels& scalar_matmul_kernels();
/// Only where the processor has AVX2, FMA and F16C.
const MatmulKernels& avx2_matmul_kernels();
bool processor_has_avx2();
/// Only where the processor has AVX-512 (F, BW, VL, DQ) and AVX512-VNNI besides.
const MatmulKernels& vnni_matmul_kernels();
bool processor_has_vnni();

/// Attention reads keys and values in chunks of this many absolute positions.
inline constexpr int64_t attend_chunk = 256;

/// `heads` query heads over positions [first, last] of their one kv head, a chunk at a time for all of them,
/// so that a chunk comes from memory once.
struct AttendTask {
  const float* q = nullptr;     ///< [heads, head_dim]
  const uint16_t* k = nullptr;  ///< of position 0 of the kv head
  const uint16_t* v = nullptr;
  int64_t stride = 0;  ///< elements between positions
  int64_t first = 0, last = 0;
  int heads = 0, head_dim = 0;
  float scale = 0;
  const float* sinks = nullptr;  ///< [heads] or null
  float* out = nullptr;          ///< [heads, head_dim]
  float* scratch = nullptr;      ///< attend_scratch_floats() of them
};
inline constexpr int64_t attend_scratch_floats(int64_t heads, int64_t head_dim) {
  return attend_chunk + head_dim + 2 * heads;
}

/// The functions of base/arithmetic.h.
enum class Elementwise : uint8_t { exp, sigmoid, silu, tanh, softplus };

/// The float operations of one instruction set (float_kernels_*.cpp).
struct FloatKernels {
  const char* isa;
  /// sum over i of a[i] * b[i] in the float-dot order: segments of 512, 32 partial sums, butterfly.
  float (*dot)(const float* a, const float* b, int64_t n);
  /// y = (x * (1 / sqrt(dot(x, x) / n + eps))) * weight (weight may be null).
  void (*rms_norm)(const float* x, const float* weight, float* y, int64_t n, float eps);
  /// Same, order as dot, b is f16.
  float (*dot_f16)(const float* a, const uint16_t* b, int64_t n);
  /// Attention of the query heads of one kv head, one row; see docs/arithmetic.md.
  void (*attend_heads)(const AttendTask& task);
  void (*to_f16)(const float* x, uint16_t* y, int64_t n);
  void (*swiglu)(const float* gate, const float* up, float* out, int64_t n);
  void (*add)(float* h, const float* y, int64_t n);
  /// out[i] = fma(w, x[i], out[i])
  void (*axpy)(float w, const float* x, float* out, int64_t n);
  /// out[i] = f(x[i]); out may be x
  void (*apply)(Elementwise f, const float* x, float* out, int64_t n);
  /// out[i] = exp(x[i] - m); out may be x
  void (*exp_minus)(const float* x, float m, float* out, int64_t n);
  /// Rotates the first n_rot values of one head in place; cos and sin hold n_rot / 2 values.
  void (*rope_neox)(float* x, const float* cos, const float* sin, int n_rot);
  void (*rope_normal)(float* x, const float* cos, const float* sin, int n_rot);
};
const FloatKernels& scalar_float_kernels();
const FloatKernels& avx2_float_kernels();

}  // namespace weir::cpu
