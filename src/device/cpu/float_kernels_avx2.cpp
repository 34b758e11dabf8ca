// The float kernels for AVX2 + FMA + F16C: the operations of float_kernels_scalar.cpp in the same order, so
// the same bits. Four registers hold the 32 partial sums of a float dot. Reached through run-time dispatch
// only; everything but the table is internal to this file.
#include <immintrin.h>

#include <cmath>
#include <limits>

#include "base/arithmetic.h"
#include "base/arithmetic_constants.h"
#include "device/cpu/arithmetic_avx2.h"
#include "device/cpu/kernels.h"

namespace weir::cpu {
namespace {

constexpr int64_t segment = kFloatSegment;

WEIR_AVX2 __m256 load8(const float* p) { return _mm256_loadu_ps(p); }
WEIR_AVX2 __m256 load8(const uint16_t* p) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
WEIR_AVX2 float load1(const float* p) { return *p; }
WEIR_AVX2 float load1(const uint16_t* p) { return _cvtsh_ss(*p); }

/// Partial sums 16..31 onto 0..15, then 8..15 onto 0..7.
WEIR_AVX2 __m256 fold8(const __m256 p[4]) {
  return _mm256_add_ps(_mm256_add_ps(p[0], p[2]), _mm256_add_ps(p[1], p[3]));
}

/// The last three steps of the butterfly.
WEIR_AVX2 float fold1(__m256 p) {
  __m128 q = _mm_add_ps(_mm256_castps256_ps128(p), _mm256_extractf128_ps(p, 1));
  q = _mm_add_ps(q, _mm_movehl_ps(q, q));
  return _mm_cvtss_f32(_mm_add_ss(q, _mm_movehdup_ps(q)));
}

/// The same three steps for eight vectors at once: element i of the result is fold1(p[i]).
WEIR_AVX2 __m256 fold1x8(const __m256 p[8]) {
  __m256 t[4], u[2];
  for (int i = 0; i < 4; ++i)
    t[i] = _mm256_add_ps(_mm256_permute2f128_ps(p[2 * i], p[2 * i + 1], 0x20),
                         _mm256_permute2f128_ps(p[2 * i], p[2 * i + 1], 0x31));
  for (int i = 0; i < 2; ++i)
    u[i] = _mm256_add_ps(_mm256_shuffle_ps(t[2 * i], t[2 * i + 1], 0x44),
                         _mm256_shuffle_ps(t[2 * i], t[2 * i + 1], 0xee));
  const __m256 r = _mm256_add_ps(_mm256_shuffle_ps(u[0], u[1], 0x88), _mm256_shuffle_ps(u[0], u[1], 0xdd));
  return _mm256_permutevar8x32_ps(r, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

template <typename B>
WEIR_AVX2 float segment_dot(const float* a, const B* b, int64_t n) {
  __m256 p[4] = {_mm256_setzero_ps(), _mm256_setzero_ps(), _mm256_setzero_ps(), _mm256_setzero_ps()};
  int64_t i = 0;
  for (; i + 32 <= n; i += 32)
    for (int r = 0; r < 4; ++r) p[r] = _mm256_fmadd_ps(load8(a + i + 8 * r), load8(b + i + 8 * r), p[r]);
  if (i < n) {
    // The rest goes to partial sums 0, 1, ...; those without an element are left alone.
    alignas(32) float s[32];
    for (int r = 0; r < 4; ++r) _mm256_store_ps(s + 8 * r, p[r]);
    for (int j = 0; i + j < n; ++j) s[j] = std::fma(a[i + j], load1(b + i + j), s[j]);
    for (int r = 0; r < 4; ++r) p[r] = _mm256_load_ps(s + 8 * r);
  }
  return fold1(fold8(p));
}

template <typename B>
WEIR_AVX2 float dot_in_order(const float* a, const B* b, int64_t n) {
  float total = segment_dot(a, b, n < segment ? n : segment);
  for (int64_t begin = segment; begin < n; begin += segment)
    total += segment_dot(a + begin, b + begin, n - begin < segment ? n - begin : segment);
  return total;
}

float dot(const float* a, const float* b, int64_t n) { return dot_in_order(a, b, n); }
float dot_f16(const float* a, const uint16_t* b, int64_t n) { return dot_in_order(a, b, n); }

void rms_norm(const float* x, const float* weight, float* y, int64_t n, float eps) {
  const float inv = 1.0f / std::sqrt(dot(x, x, n) / static_cast<float>(n) + eps);
  const __m256 inv8 = _mm256_set1_ps(inv);
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    const __m256 v = _mm256_mul_ps(load8(x + i), inv8);
    _mm256_storeu_ps(y + i, weight ? _mm256_mul_ps(v, load8(weight + i)) : v);
  }
  for (; i < n; ++i) {
    const float v = x[i] * inv;
    y[i] = weight ? v * weight[i] : v;
  }
}

/// p[j] = dot(q, k_j) * scale for `count` positions.
WEIR_AVX2 void scores(const float* q, const uint16_t* k, int64_t stride, int64_t count, int head_dim,
                      float scale, float* p) {
  int64_t j = 0;
  if (head_dim % 32 == 0 && head_dim <= segment) {
    for (; j + 8 <= count; j += 8) {
      __m256 folded[8];
      for (int r = 0; r < 8; ++r) {
        const uint16_t* key = k + (j + r) * stride;
        __m256 s[4] = {_mm256_setzero_ps(), _mm256_setzero_ps(), _mm256_setzero_ps(), _mm256_setzero_ps()};
        for (int i = 0; i < head_dim; i += 32)
          for (int t = 0; t < 4; ++t)
            s[t] = _mm256_fmadd_ps(load8(q + i + 8 * t), load8(key + i + 8 * t), s[t]);
        folded[r] = fold8(s);
      }
      _mm256_storeu_ps(p + j, _mm256_mul_ps(fold1x8(folded), _mm256_set1_ps(scale)));
    }
  }
  for (; j < count; ++j) p[j] = dot_f16(q, k + j * stride, head_dim) * scale;
}

WEIR_AVX2 float maximum(const float* p, int64_t count) {
  const float lowest = -std::numeric_limits<float>::infinity();
  __m256 m8 = _mm256_set1_ps(lowest);
  int64_t j = 0;
  for (; j + 8 <= count; j += 8) m8 = _mm256_max_ps(load8(p + j), m8);  // m8 where p is NaN
  alignas(32) float lane[8];
  _mm256_store_ps(lane, m8);
  float m = lowest;
  for (float v : lane) m = v > m ? v : m;
  for (; j < count; ++j) m = p[j] > m ? p[j] : m;
  return m;
}

/// p[j] = exp(p[j] - m)
WEIR_AVX2 void exponentials(const float* x, float m, float* p, int64_t count) {
  const __m256 m8 = _mm256_set1_ps(m);
  int64_t j = 0;
  for (; j + 8 <= count; j += 8) _mm256_storeu_ps(p + j, exp8(_mm256_sub_ps(load8(x + j), m8)));
  for (; j < count; ++j) p[j] = exp_f32(x[j] - m);
}

/// o[d] = sum over j of p[j] * v_j[d] for `tiles` * 8 dimensions, in order of j; the sum of p as well, whose
/// chain of additions hides behind the products.
template <int tiles>
WEIR_AVX2 float weighted_values(const float* p, const uint16_t* v, int64_t stride, int64_t count, float* o) {
  __m256 acc[tiles];
  for (int t = 0; t < tiles; ++t) acc[t] = _mm256_setzero_ps();
  float sum = 0;
  for (int64_t j = 0; j < count; ++j) {
    const __m256 w = _mm256_broadcast_ss(p + j);
    const uint16_t* value = v + j * stride;
    for (int t = 0; t < tiles; ++t) acc[t] = _mm256_fmadd_ps(w, load8(value + 8 * t), acc[t]);
    sum += p[j];
  }
  for (int t = 0; t < tiles; ++t) _mm256_storeu_ps(o + 8 * t, acc[t]);
  return sum;
}

/// Returns the sum of p.
WEIR_AVX2 float weighted_head(const float* p, const uint16_t* v, int64_t stride, int64_t count, int head_dim,
                              float* o) {
  float sum = 0;
  int d = 0;
  for (; d + 64 <= head_dim; d += 64) sum = weighted_values<8>(p, v + d, stride, count, o + d);
  for (; d + 8 <= head_dim; d += 8) sum = weighted_values<1>(p, v + d, stride, count, o + d);
  for (; d < head_dim; ++d) {
    float acc = 0;
    sum = 0;
    for (int64_t j = 0; j < count; ++j) {
      acc = std::fma(p[j], load1(v + j * stride + d), acc);
      sum += p[j];
    }
    o[d] = acc;
  }
  return sum;
}

/// One chunk of one head onto what is there of the chunks before.
WEIR_AVX2 void attend_part(const AttendTask& t, int64_t begin, int64_t count, const float* q, float* out,
                           float& max, float& sum) {
  float* p = t.scratch;
  float* o = p + attend_chunk;
  scores(q, t.k + begin * t.stride, t.stride, count, t.head_dim, t.scale, p);
  const float m = maximum(p, count);
  exponentials(p, m, p, count);
  const bool is_first = begin == t.first;
  const float l = weighted_head(p, t.v + begin * t.stride, t.stride, count, t.head_dim, is_first ? out : o);
  if (is_first) {
    max = m, sum = l;
    return;
  }
  const float joint = m > max ? m : max;
  const float a = exp_f32(max - joint), b = exp_f32(m - joint);
  sum = std::fma(sum, a, l * b);
  const __m256 a8 = _mm256_set1_ps(a), b8 = _mm256_set1_ps(b);
  int d = 0;
  for (; d + 8 <= t.head_dim; d += 8)
    _mm256_storeu_ps(out + d, _mm256_fmadd_ps(load8(out + d), a8, _mm256_mul_ps(load8(o + d), b8)));
  for (; d < t.head_dim; ++d) out[d] = std::fma(out[d], a, o[d] * b);
  max = joint;
}

void attend_heads(const AttendTask& t) {
  float* max = t.scratch + attend_chunk + t.head_dim;
  float* sum = max + t.heads;
  for (int64_t begin = t.first; begin <= t.last; begin = (begin / attend_chunk + 1) * attend_chunk) {
    const int64_t chunk_end = (begin / attend_chunk + 1) * attend_chunk;
    const int64_t count = (chunk_end <= t.last ? chunk_end : t.last + 1) - begin;
    for (int h = 0; h < t.heads; ++h)
      attend_part(t, begin, count, t.q + h * t.head_dim, t.out + h * t.head_dim, max[h], sum[h]);
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
  int64_t i = 0;
  for (; i + 8 <= n; i += 8)
    _mm_storeu_si128(reinterpret_cast<__m128i*>(y + i),
                     _mm256_cvtps_ph(load8(x + i), _MM_FROUND_TO_NEAREST_INT));
  for (; i < n; ++i) y[i] = _cvtss_sh(x[i], _MM_FROUND_TO_NEAREST_INT);
}

void swiglu(const float* gate, const float* up, float* out, int64_t n) {
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) _mm256_storeu_ps(out + i, _mm256_mul_ps(silu8(load8(gate + i)), load8(up + i)));
  for (; i < n; ++i) out[i] = silu_f32(gate[i]) * up[i];
}

void add(float* h, const float* y, int64_t n) {
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) _mm256_storeu_ps(h + i, _mm256_add_ps(load8(h + i), load8(y + i)));
  for (; i < n; ++i) h[i] += y[i];
}

void axpy(float w, const float* x, float* out, int64_t n) {
  const __m256 w8 = _mm256_set1_ps(w);
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) _mm256_storeu_ps(out + i, _mm256_fmadd_ps(w8, load8(x + i), load8(out + i)));
  for (; i < n; ++i) out[i] = std::fma(w, x[i], out[i]);
}

template <typename F8, typename F1>
WEIR_AVX2 void map(const float* x, float* out, int64_t n, F8&& f8, F1&& f1) {
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) _mm256_storeu_ps(out + i, f8(load8(x + i)));
  for (; i < n; ++i) out[i] = f1(x[i]);
}

#define WEIR_MAP(name) \
  map(                 \
      x, out, n, [](__m256 v) { return name##8(v); }, [](float v) { return name##_f32(v); })

void apply(Elementwise f, const float* x, float* out, int64_t n) {
  switch (f) {
    case Elementwise::exp:
      return WEIR_MAP(exp);
    case Elementwise::sigmoid:
      return WEIR_MAP(sigmoid);
    case Elementwise::silu:
      return WEIR_MAP(silu);
    case Elementwise::tanh:
      return WEIR_MAP(tanh);
    case Elementwise::softplus:
      return WEIR_MAP(softplus);
  }
}
#undef WEIR_MAP

void exp_minus(const float* x, float m, float* out, int64_t n) { exponentials(x, m, out, n); }

void rope_neox(float* x, const float* cos, const float* sin, int n_rot) {
  const int half = n_rot / 2;
  int i = 0;
  for (; i + 8 <= half; i += 8) {
    const __m256 x0 = load8(x + i), x1 = load8(x + half + i), c = load8(cos + i), s = load8(sin + i);
    // fmsub(a, b, y) is fma(a, b, -y) exactly
    _mm256_storeu_ps(x + i, _mm256_fmsub_ps(x0, c, _mm256_mul_ps(x1, s)));
    _mm256_storeu_ps(x + half + i, _mm256_fmadd_ps(x0, s, _mm256_mul_ps(x1, c)));
  }
  for (; i < half; ++i) {
    const float x0 = x[i], x1 = x[half + i];
    x[i] = std::fma(x0, cos[i], -(x1 * sin[i]));
    x[half + i] = std::fma(x0, sin[i], x1 * cos[i]);
  }
}

void rope_normal(float* x, const float* cos, const float* sin, int n_rot) {
  for (int i = 0; i < n_rot / 2; ++i) {
    const float x0 = x[2 * i], x1 = x[2 * i + 1];
    x[2 * i] = std::fma(x0, cos[i], -(x1 * sin[i]));
    x[2 * i + 1] = std::fma(x0, sin[i], x1 * cos[i]);
  }
}

}  // namespace

const FloatKernels& avx2_float_kernels() {
  static const FloatKernels kernels = {"avx2", dot,  rms_norm, dot_f16,   attend_heads, to_f16,     swiglu,
                                       add,    axpy, apply,    exp_minus, rope_neox,    rope_normal};
  return kernels;
}

}  // namespace weir::cpu
