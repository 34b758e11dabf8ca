// Matmul with block formats, AVX2: everything but the formats. Included only by *_avx2.cpp units and all in
// an anonymous namespace, so that no other unit can be given code compiled for AVX2; for the same reason
// nothing here calls an inline function that is not always inlined (std:: included).
//
// Eight (weight row, activation row) pairs are computed side by side: W weight rows x X activation rows,
// W * X = 8, lane l holding weight row l / X and activation row l % X. A format's kernel K reduces one block
// of each pair to exact integer totals in eight int32 lanes, and the floats of all eight chains advance
// together, each in the order of docs/arithmetic.md. One row of activations (decode) is W = 8; eight rows
// (prefill) are X = 8, where unpacking a weight block is paid once for eight products.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "base/arithmetic_constants.h"
#include "device/cpu/matmul_tables.h"
#include "quant/load.h"

namespace weir::cpu {
namespace {

constexpr int kLanes = 8;

inline __m256i load256(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }
inline __m128i load128(const void* p) { return _mm_loadu_si128(static_cast<const __m128i*>(p)); }
/// 16 bytes in both halves.
inline __m256i load128_twice(const void* p) { return _mm256_broadcastsi128_si256(load128(p)); }

/// Lane l of the result is the sum of the eight int32 of v[l].
inline __m256i sum_lanes(const __m256i (&v)[kLanes]) {
  const __m256i a = _mm256_hadd_epi32(_mm256_hadd_epi32(v[0], v[1]), _mm256_hadd_epi32(v[2], v[3]));
  const __m256i b = _mm256_hadd_epi32(_mm256_hadd_epi32(v[4], v[5]), _mm256_hadd_epi32(v[6], v[7]));
  // a holds lanes 0..3 and b lanes 4..7, each as two partial sums, one per half.
  return _mm256_add_epi32(_mm256_blend_epi32(a, b, 0xf0), _mm256_permute2x128_si256(a, b, 0x21));
}

/// Lane l is the f16 at `offset` of the block of lane l's weight row.
template <int X>
inline __m256 f16_lanes(const uint8_t* const* w, int offset) {
  const auto at = [&](int lane) { return static_cast<int16_t>(quant::load_u16(w[lane / X] + offset)); };
  if constexpr (X == kLanes) return _mm256_cvtph_ps(_mm_set1_epi16(at(0)));
  return _mm256_cvtph_ps(_mm_setr_epi16(at(0), at(1), at(2), at(3), at(4), at(5), at(6), at(7)));
}

/// X rows of activations within one segment, made ready once for all weight rows of a group.
template <typename K, int X>
struct ActSegment {
  static constexpr int kBlocks = static_cast<int>(kSegment) / K::Codec::block_elements;
  const int8_t* q[X];
  const int16_t* sums[X];                     ///< formats with minima
  __m256 scale[kBlocks];                      ///< lane l: the scale of activation row l % X
  typename K::Prepared prepared[X][kBlocks];  ///< what else the format wants
};

/// A format that wants nothing prepared.
struct Nothing {};

/// The rows first..first+count-1 of the task (count <= X; missing ones repeat the last) from element `begin`.
template <typename K, int X>
inline void prepare(const MatmulTask& t, int first, int count, int64_t begin, int blocks,
                    ActSegment<K, X>& s) {
  constexpr int kElements = K::Codec::block_elements;
  for (int x = 0; x < X; ++x) {
    const int i = first + (x < count ? x : count - 1);
    const int64_t row = t.x_index ? t.x_index[i] : i;
    s.q[x] = t.act.q + row * t.in + begin;
    if constexpr (K::Codec::has_minimum) s.sums[x] = t.act.sums + (row * t.in + begin) / 32;
    const float* scale = t.act.scale + (row * t.in + begin) / kElements;
    for (int b = 0; b < blocks; ++b) {
      float* lanes = reinterpret_cast<float*>(&s.scale[b]);
      for (int l = x; l < kLanes; l += X) lanes[l] = scale[b];
      if constexpr (!__is_same(typename K::Prepared, Nothing))
        s.prepared[x][b] = K::prepare(s.q[x] + b * kElements);
    }
  }
}

/// The same blocks of the next eight rows, into the second cache: eight interleaved streams defeat the
/// processor's own prefetching. Beyond the last row this touches nothing and cannot fault.
template <typename K, int W>
inline void prefetch_next_group(const uint8_t* const (&w)[W], uint64_t row_bytes) {
  for (int k = 0; k < W; ++k)
    for (int at = 0; at < K::Codec::block_bytes; at += 64)
      _mm_prefetch(reinterpret_cast<const char*>(w[k] + kLanes * row_bytes + at), _MM_HINT_T1);
}

/// `rows` (<= 8) weight rows from o times `count` (<= X) activation rows from `first`.
template <typename K, int X>
[[gnu::noinline]] void tile(const MatmulTask& t, int64_t o, int rows, int first, int count) {
  constexpr int W = kLanes / X, kElements = K::Codec::block_elements;
  __m256 total[X];
  for (__m256& group : total) group = _mm256_setzero_ps();
  for (int64_t begin = 0; begin < t.in; begin += kSegment) {
    const int64_t elements = t.in - begin < kSegment ? t.in - begin : kSegment;
    const int blocks = static_cast<int>(elements / kElements);
    ActSegment<K, X> s;
    prepare(t, first, count, begin, blocks, s);
    for (int g = 0; g * W < rows; ++g) {
      const uint8_t* w[W];
      for (int k = 0; k < W; ++k) {
        const int r = g * W + k < rows ? g * W + k : rows - 1;
        w[k] =
            t.weight + static_cast<uint64_t>(o + r) * t.row_bytes + begin / kElements * K::Codec::block_bytes;
      }
      __m256 acc = _mm256_setzero_ps();
      for (int b = 0; b < blocks; ++b) {
        if (first == 0) prefetch_next_group<K, W>(w, t.row_bytes);
        acc = K::template block<X>(w, s, b, acc);
        for (int k = 0; k < W; ++k) w[k] += K::Codec::block_bytes;
      }
      total[g] = begin == 0 ? acc : _mm256_add_ps(total[g], acc);
    }
  }
  for (int g = 0; g * W < rows; ++g) {
    alignas(32) float lanes[kLanes];
    _mm256_store_ps(lanes, total[g]);
    for (int l = 0; l < kLanes; ++l) {
      const int r = g * W + l / X, i = first + l % X;
      if (r >= rows || l % X >= count) continue;
      t.y[(t.y_index ? t.y_index[i] : i) * t.y_stride + o + r] = lanes[l];
    }
  }
}

/// Groups of eight weight rows, which stay in the first cache while the activation rows pass.
template <typename K>
inline void matmul_blocks(const MatmulTask& t) {
  for (int64_t o = t.out_begin; o < t.out_end; o += kLanes) {
    const int rows = t.out_end - o < kLanes ? static_cast<int>(t.out_end - o) : kLanes;
    for (int i = 0; i < t.n;) {
      const int left = t.n - i;
      if (left >= 7) {
        tile<K, 8>(t, o, rows, i, left < 8 ? left : 8), i += 8;
      } else if (left >= 3) {
        tile<K, 4>(t, o, rows, i, left < 4 ? left : 4), i += 4;
      } else if (left == 2) {
        tile<K, 2>(t, o, rows, i, 2), i += 2;
      } else {
        tile<K, 1>(t, o, rows, i, 1), i += 1;
      }
    }
  }
}

/// acc + (d * da) * total, fused.
inline __m256 add_total(__m256 d, __m256 da, __m256i total, __m256 acc) {
  return _mm256_fmadd_ps(_mm256_mul_ps(d, da), _mm256_cvtepi32_ps(total), acc);
}

/// acc - (dmin * da) * minimum, fused: the negation is exact wherever it stands.
inline __m256 subtract_minimum(__m256 dmin, __m256 da, __m256i minimum, __m256 acc) {
  return _mm256_fnmadd_ps(_mm256_mul_ps(dmin, da), _mm256_cvtepi32_ps(minimum), acc);
}

}  // namespace
}  // namespace weir::cpu
