// The float kernels in plain C++: what docs/arithmetic.md says, operation by operation. The other instruction
// sets are held to these bits.
#include <cmath>
#include <limits>

#include "base/arithmetic.h"
#include "base/arithmetic_constants.h"
#include "base/half.h"
#include "device/cpu/kernels.h"

namespace weir::cpu {
namespace {

constexpr int64_t segment = kFloatSegment;
constexpr int lanes = kFloatLanes;

template <typename LoadB>
float dot_in_order(const float* a, LoadB&& b, int64_t n) {
  float total = 0;
  for (int64_t begin = 0; begin < n; begin += segment) {
    const int64_t end = begin + segment < n ? begin + segment : n;
    float p[lanes] = {};
    for (int64_t i = begin; i < end; ++i) p[i % lanes] = std::fma(a[i], b(i), p[i % lanes]);
    for (int width = lanes / 2; width > 0; width /= 2)
      for (int j = 0; j < width; ++j) p[j] += p[j + width];
    total = begin == 0 ? p[0] : total + p[0];
  }
  return total;
}

float dot(const float* a, const float* b, int64_t n) {
  return dot_in_order(
      a, [b](int64_t i) { return b[i]; }, n);
}

float dot_f16(const float* a, const uint16_t* b, int64_t n) {
  return dot_in_order(
      a, [b](int64_t i) { return f16_to_f32(b[i]); }, n);
}

void rms_norm(const float* x, const float* weight, float* y, int64_t n, float eps) {
  const float inv = 1.0f / std::sqrt(dot(x, x, n) / static_cast<float>(n) + eps);
  for (int64_t i = 0; i < n; ++i) {
    const float v = x[i] * inv;
    y[i] = weight ? v * weight[i] : v;
  }
}

/// One chunk of one head onto what is there of the chunks before: M, L and O of docs/arithmetic.md.
void attend_part(const AttendTask& t, int64_t begin, int64_t end, const float* q, float* out, float& max,
                 float& sum) {
  float* p = t.scratch;
  float* o = p + attend_chunk;
  float m = -std::numeric_limits<float>::infinity(), l = 0;
  for (int64_t j = begin; j < end; ++j) {
    const float s = dot_f16(q, t.k + j * t.stride, t.head_dim) * t.scale;
    p[j - begin] = s;
    m = s > m ? s : m;
  }
  for (int d = 0; d < t.head_dim; ++d) o[d] = 0;
  for (int64_t j = begin; j < end; ++j) {
    const float w = exp_f32(p[j - begin] - m);
    l += w;
    for (int d = 0; d < t.head_dim; ++d) o[d] = std::fma(w, f16_to_f32(t.v[j * t.stride + d]), o[d]);
  }
  if (begin == t.first) {
    max = m, sum = l;
    for (int d = 0; d < t.head_dim; ++d) out[d] = o[d];
    return;
  }
  const float joint = m > max ? m : max;
  const float a = exp_f32(max - joint), b = exp_f32(m - joint);
  sum = std::fma(sum, a, l * b);
  for (int d = 0; d < t.head_dim; ++d) out[d] = std::fma(out[d], a, o[d] * b);
  max = joint;
}

void attend_heads(const AttendTask& t) {
  float* max = t.scratch + attend_chunk + t.head_dim;
  float* sum = max + t.heads;
  for (int64_t begin = t.first; begin <= t.last; begin = (begin / attend_chunk + 1) * attend_chunk) {
    const int64_t chunk_end = (begin / attend_chunk + 1) * attend_chunk;
    const int64_t end = chunk_end <= t.last ? chunk_end : t.last + 1;
    for (int h = 0; h < t.heads; ++h)
      attend_part(t, begin, end, t.q + h * t.head_dim, t.out + h * t.head_dim, max[h], sum[h]);
  }
  for (int h = 0; h < t.heads; ++h) {
    float a = 1;
    if (t.sinks) {
      const float joint = t.sinks[h] > max[h] ? t.sinks[h] : max[h];
      a = exp_f32(max[h] - joint);
      sum[h] = std::fma(sum[h], a, exp_f32(t.sinks[h] - joint));
    }
    const float inv = 1.0f / sum[h];
    float* out = t.out + h * t.head_dim;
    for (int d = 0; d < t.head_dim; ++d) out[d] = (out[d] * a) * inv;
  }
}

void to_f16(const float* x, uint16_t* y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i] = f32_to_f16(x[i]);
}

void swiglu(const float* gate, const float* up, float* out, int64_t n) {
  for (int64_t i = 0; i < n; ++i) out[i] = silu_f32(gate[i]) * up[i];
}

void add(float* h, const float* y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) h[i] += y[i];
}

void axpy(float w, const float* x, float* out, int64_t n) {
  for (int64_t i = 0; i < n; ++i) out[i] = std::fma(w, x[i], out[i]);
}

template <typename F>
void map(const float* x, float* out, int64_t n, F&& f) {
  for (int64_t i = 0; i < n; ++i) out[i] = f(x[i]);
}

void apply(Elementwise f, const float* x, float* out, int64_t n) {
  switch (f) {
    case Elementwise::exp:
      return map(x, out, n, [](float v) { return exp_f32(v); });
    case Elementwise::sigmoid:
      return map(x, out, n, [](float v) { return sigmoid_f32(v); });
    case Elementwise::silu:
      return map(x, out, n, [](float v) { return silu_f32(v); });
    case Elementwise::tanh:
      return map(x, out, n, [](float v) { return tanh_f32(v); });
    case Elementwise::softplus:
      return map(x, out, n, [](float v) { return softplus_f32(v); });
  }
}

void exp_minus(const float* x, float m, float* out, int64_t n) {
  map(x, out, n, [m](float v) { return exp_f32(v - m); });
}

inline void rotate(float& x0, float& x1, float c, float s) {
  const float r0 = std::fma(x0, c, -(x1 * s));
  const float r1 = std::fma(x0, s, x1 * c);
  x0 = r0, x1 = r1;
}

void rope_neox(float* x, const float* cos, const float* sin, int n_rot) {
  const int half = n_rot / 2;
  for (int i = 0; i < half; ++i) rotate(x[i], x[i + half], cos[i], sin[i]);
}

void rope_normal(float* x, const float* cos, const float* sin, int n_rot) {
  for (int i = 0; i < n_rot / 2; ++i) rotate(x[2 * i], x[2 * i + 1], cos[i], sin[i]);
}

}  // namespace

const FloatKernels& scalar_float_kernels() {
  static const FloatKernels kernels = {"scalar", dot,  rms_norm, dot_f16,   attend_heads, to_f16,     swiglu,
                                       add,      axpy, apply,    exp_minus, rope_neox,    rope_normal};
  return kernels;
}

}  // namespace weir::cpu
