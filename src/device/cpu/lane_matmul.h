// Matmul with block formats where each lane of a register is a weight row: the driver, over an instruction
// set S (lanes_avx2.h, lanes_vnni.h) and a format F (lanes_<format>.h). Included only by the units compiled
// for such a set, all in an anonymous namespace (see lanes_avx2.h).
//
// A block of each of S::kLanes weight rows is unpacked once, transposed so that register i holds levels
// 4i..4i+3 of every row, and then meets each activation row, whose four bytes are broadcast. Sums stay in
// their lanes, so there is nothing to add across a register, and the float chains of all lanes advance
// together, each in the order of docs/arithmetic.md.
//
// F has: Codec; Unpacked<S> and unpack(w, unpacked); Prepared and prepare(q, prepared) for what it wants of
// one activation block besides q, scale and sums; add<S, X>(unpacked, activations, acc), which adds one block
// to the chains of X activation rows.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "base/arithmetic_constants.h"
#include "device/cpu/kernels.h"

namespace weir::cpu {
namespace {

/// Activation rows that share an unpacked block, and groups of S::kLanes weight rows that share what was
/// prepared of the activations. Both only bound the stack.
constexpr int kTileRows = 32, kTileGroups = 4;

/// A format that wants nothing prepared.
struct Nothing {};

/// X activation rows at one block.
template <typename F, int X>
struct ActBlock {
  const int8_t* q[X];
  const int16_t* sums[X];  ///< formats with minima
  const typename F::Prepared* prepared[X];
  float scale[X];
};

/// A tile's activation rows within one segment.
template <typename F>
struct ActSegment {
  static constexpr int kElements = F::Codec::block_elements, kBlocks = static_cast<int>(kSegment) / kElements;
  static constexpr bool kPrepares = !__is_same(typename F::Prepared, Nothing);
  const int8_t* q[kTileRows];
  const int16_t* sums[kTileRows];
  const float* scale[kTileRows];
  typename F::Prepared prepared[kPrepares ? kTileRows : 1][kPrepares ? kBlocks : 1];

  /// Rows first..first + count - 1 of the task, `blocks` blocks from element `begin`.
  inline void fill(const MatmulTask& t, int first, int count, int64_t begin, int blocks) {
    for (int x = 0; x < count; ++x) {
      const int64_t row = t.x_index ? t.x_index[first + x] : first + x;
      q[x] = t.act.q + row * t.in + begin;
      scale[x] = t.act.scale + (row * t.in + begin) / kElements;
      if constexpr (F::Codec::has_minimum) sums[x] = t.act.sums + (row * t.in + begin) / 32;
      if constexpr (kPrepares)
        for (int b = 0; b < blocks; ++b) F::prepare(q[x] + b * kElements, prepared[x][b]);
    }
  }

  template <int X>
  inline ActBlock<F, X> at(int first, int b) const {
    ActBlock<F, X> block;
    for (int i = 0; i < X; ++i) {
      block.q[i] = q[first + i] + b * kElements;
      block.scale[i] = scale[first + i][b];
      if constexpr (F::Codec::has_minimum) block.sums[i] = sums[first + i] + b * (kElements / 32);
      if constexpr (kPrepares) block.prepared[i] = &prepared[first + i][b];
    }
    return block;
  }
};

/// The next block into the first cache, and the same block of the next group's rows into the second: many
/// interleaved streams defeat the processor's own prefetching. Beyond the last row this touches nothing and
/// cannot fault.
template <typename S, typename F>
inline void prefetch_ahead(const uint8_t* const* w, uint64_t row_bytes) {
  for (int r = 0; r < S::kLanes; ++r)
    for (int at = 0; at < F::Codec::block_bytes; at += 64) {
      const auto* block = reinterpret_cast<const char*>(w[r] + at);
      _mm_prefetch(block + F::Codec::block_bytes, _MM_HINT_T0);
      _mm_prefetch(block + S::kLanes * row_bytes, _MM_HINT_T1);
    }
}

/// One segment of one group: acc[x], lane r, becomes weight row r's chain with activation row x.
template <typename S, typename F>
inline void group_segment(const uint8_t** w, uint64_t row_bytes, const ActSegment<F>& act, int count,
                          int blocks, bool prefetch, typename S::Float* acc) {
  for (int x = 0; x < count; ++x) acc[x] = S::zero_float();
  typename F::template Unpacked<S> unpacked;
  for (int b = 0; b < blocks; ++b) {
    if (prefetch) prefetch_ahead<S, F>(w, row_bytes);
    F::template unpack<S>(w, unpacked);
    int x = 0;
    constexpr int X = S::kRowsTogether;
    for (; x + X <= count; x += X) F::template add<S, X>(unpacked, act.template at<X>(x, b), acc + x);
    for (; x < count; ++x) F::template add<S, 1>(unpacked, act.template at<1>(x, b), acc + x);
    for (int r = 0; r < S::kLanes; ++r) w[r] += F::Codec::block_bytes;
  }
}

/// Weight rows o..o + rows - 1 (at most kTileGroups groups) times activation rows first..first + count - 1
/// (at most kTileRows).
template <typename S, typename F>
[[gnu::noinline]] void tile(const MatmulTask& t, int64_t o, int rows, int first, int count) {
  constexpr int kElements = F::Codec::block_elements;
  typename S::Float total[kTileGroups][kTileRows], acc[kTileRows];
  ActSegment<F> act;
  for (int64_t begin = 0; begin < t.in; begin += kSegment) {
    const int64_t elements = t.in - begin < kSegment ? t.in - begin : kSegment;
    const int blocks = static_cast<int>(elements / kElements);
    act.fill(t, first, count, begin, blocks);
    for (int g = 0; g * S::kLanes < rows; ++g) {
      const uint8_t* w[S::kLanes];  // rows beyond the last repeat it; their lanes are not stored
      for (int r = 0; r < S::kLanes; ++r) {
        const int row = g * S::kLanes + r < rows ? g * S::kLanes + r : rows - 1;
        w[r] = t.weight + static_cast<uint64_t>(o + row) * t.row_bytes +
               begin / kElements * F::Codec::block_bytes;
      }
      group_segment<S, F>(w, t.row_bytes, act, count, blocks, first == 0, acc);
      for (int x = 0; x < count; ++x) total[g][x] = begin == 0 ? acc[x] : S::add(total[g][x], acc[x]);
    }
  }
  for (int x = 0; x < count; ++x) {
    float* y = t.y + (t.y_index ? t.y_index[first + x] : first + x) * t.y_stride + o;
    for (int g = 0; g * S::kLanes < rows; ++g) {
      const int left = rows - g * S::kLanes;
      S::store(y + g * S::kLanes, total[g][x], left < S::kLanes ? left : S::kLanes);
    }
  }
}

template <typename S, typename F>
inline void lane_matmul(const MatmulTask& t) {
  constexpr int64_t kStep = kTileGroups * S::kLanes;
  for (int64_t o = t.out_begin; o < t.out_end; o += kStep) {
    const int rows = static_cast<int>(t.out_end - o < kStep ? t.out_end - o : kStep);
    for (int i = 0; i < t.n; i += kTileRows)
      tile<S, F>(t, o, rows, i, t.n - i < kTileRows ? t.n - i : kTileRows);
  }
}

/// acc + (d * da) * total, fused.
template <typename S>
inline typename S::Float add_total(typename S::Float d, float da, typename S::Int total,
                                   typename S::Float acc) {
  return S::fma(S::multiply(d, S::broadcast(da)), S::to_float(total), acc);
}

/// The sum of 32 activations.
inline int32_t sum32(const int8_t* q) {
  const __m256i a = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(q));
  const __m256i pairs = _mm256_maddubs_epi16(_mm256_set1_epi8(1), a);
  const __m256i fours = _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
  __m128i s = _mm_add_epi32(_mm256_castsi256_si128(fours), _mm256_extracti128_si256(fours, 1));
  s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4e));
  s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0xb1));
  return _mm_cvtsi128_si32(s);
}

}  // namespace
}  // namespace weir::cpu
