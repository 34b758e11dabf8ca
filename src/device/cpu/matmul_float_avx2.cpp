// Float weights (F32, F16, BF16), AVX2: the 32 partial sums of docs/arithmetic.md, float dots, are four
// registers a dot. All in an anonymous namespace and free of other headers' inline functions that are not
// always inlined, since the unit is compiled for AVX2.
#include <immintrin.h>

#include "base/arithmetic_constants.h"
#include "device/cpu/matmul_tables.h"
#include "quant/load.h"

namespace weir::cpu {
namespace {

struct F32Weights {
  static constexpr int kBytes = 4;
  static inline __m256 load8(const uint8_t* w) { return _mm256_loadu_ps(reinterpret_cast<const float*>(w)); }
  static inline float load1(const uint8_t* w) { return __builtin_bit_cast(float, quant::load_u32(w)); }
};

struct F16Weights {
  static constexpr int kBytes = 2;
  static inline __m256 load8(const uint8_t* w) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(w)));
  }
  static inline float load1(const uint8_t* w) { return quant::load_f16(w); }
};

struct BF16Weights {
  static constexpr int kBytes = 2;
  static inline __m256 load8(const uint8_t* w) {
    const __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i*>(w));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16));
  }
  static inline float load1(const uint8_t* w) { return bf16_to_f32(quant::load_u16(w)); }
};

/// Partial sums 8j..8j+7 are part[j]; 16, 8, 4, 2, 1.
inline float butterfly(const __m256 (&part)[4]) {
  const __m256 by16_low = _mm256_add_ps(part[0], part[2]), by16_high = _mm256_add_ps(part[1], part[3]);
  const __m256 by8 = _mm256_add_ps(by16_low, by16_high);
  const __m128 by4 = _mm_add_ps(_mm256_castps256_ps128(by8), _mm256_extractf128_ps(by8, 1));
  const __m128 by2 = _mm_add_ps(by4, _mm_movehl_ps(by4, by4));
  return _mm_cvtss_f32(_mm_add_ss(by2, _mm_movehdup_ps(by2)));
}

/// The elements of a segment beyond its last multiple of 32; absent ones are not added, not even as zeros,
/// which would turn a partial sum of -0 into +0.
template <typename Weights>
[[gnu::noinline]] void add_tail(const uint8_t* w, const float* x, int count, __m256 (&part)[4]) {
  alignas(32) float p[kFloatLanes];
  for (int j = 0; j < 4; ++j) _mm256_store_ps(p + 8 * j, part[j]);
  for (int j = 0; j < count; ++j) p[j] = __builtin_fmaf(Weights::load1(w + j * Weights::kBytes), x[j], p[j]);
  for (int j = 0; j < 4; ++j) part[j] = _mm256_load_ps(p + 8 * j);
}

/// W weight rows times X activation rows into y[W][X].
template <typename Weights, int W, int X>
inline void dots(const uint8_t* const (&w)[W], const float* const (&x)[X], int64_t in, float (&y)[W][X]) {
  for (int64_t begin = 0; begin < in; begin += kFloatSegment) {
    const int64_t end = in - begin < kFloatSegment ? in : begin + kFloatSegment;
    __m256 part[W][X][4];
    for (auto& of_weight : part)
      for (auto& of_pair : of_weight)
        for (__m256& p : of_pair) p = _mm256_setzero_ps();
    int64_t i = begin;
    for (; i + kFloatLanes <= end; i += kFloatLanes)
      for (int j = 0; j < 4; ++j)
        for (int k = 0; k < W; ++k) {
          const __m256 weights = Weights::load8(w[k] + (i + 8 * j) * Weights::kBytes);
          for (int r = 0; r < X; ++r)
            part[k][r][j] = _mm256_fmadd_ps(weights, _mm256_loadu_ps(x[r] + i + 8 * j), part[k][r][j]);
        }
    for (int k = 0; k < W; ++k)
      for (int r = 0; r < X; ++r) {
        if (i < end)
          add_tail<Weights>(w[k] + i * Weights::kBytes, x[r] + i, static_cast<int>(end - i), part[k][r]);
        const float sum = butterfly(part[k][r]);
        y[k][r] = begin == 0 ? sum : y[k][r] + sum;
      }
  }
}

template <typename Weights, int W, int X>
[[gnu::noinline]] void tile(const MatmulTask& t, int64_t o, int first) {
  const uint8_t* w[W];
  const float* x[X];
  for (int k = 0; k < W; ++k) w[k] = t.weight + static_cast<uint64_t>(o + k) * t.row_bytes;
  for (int r = 0; r < X; ++r) x[r] = t.x + (t.x_index ? t.x_index[first + r] : first + r) * t.in;
  float y[W][X] = {};
  dots<Weights, W, X>(w, x, t.in, y);
  for (int r = 0; r < X; ++r) {
    const int64_t row = t.y_index ? t.y_index[first + r] : first + r;
    for (int k = 0; k < W; ++k) t.y[row * t.y_stride + o + k] = y[k][r];
  }
}

template <typename Weights>
inline void matmul_floats(const MatmulTask& t) {
  int64_t o = t.out_begin;
  // Two weight rows keep eight independent chains busy where there is one activation row to share them.
  for (; t.n == 1 && o + 2 <= t.out_end; o += 2) tile<Weights, 2, 1>(t, o, 0);
  for (; o < t.out_end; ++o) {
    int i = 0;
    for (; i + 3 <= t.n; i += 3) tile<Weights, 1, 3>(t, o, i);
    for (; i + 2 <= t.n; i += 2) tile<Weights, 1, 2>(t, o, i);
    for (; i < t.n; ++i) tile<Weights, 1, 1>(t, o, i);
  }
}

}  // namespace

void matmul_f32_avx2(const MatmulTask& task) { matmul_floats<F32Weights>(task); }
void matmul_f16_avx2(const MatmulTask& task) { matmul_floats<F16Weights>(task); }
void matmul_bf16_avx2(const MatmulTask& task) { matmul_floats<BF16Weights>(task); }

}  // namespace weir::cpu
