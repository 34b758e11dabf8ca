// The tile that the large matmuls are made of: 128 weight rows x up to 64 activation rows on the integer
// tensor cores, by block format. One warp owns 16 weight rows for the whole of K, so that every output is one
// chain of float additions in the order of docs/arithmetic.md; the eight warps share the activations. Stages
// of 256 values of K are copied into shared memory ahead of their use, weights as they lie in the file. Knows
// nothing of where rows come from or outputs go.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "base/arithmetic_constants.h"
#include "device/cuda/fragments.cuh"
#include "device/cuda/kernels.h"

namespace weir::cuda::large {

inline constexpr int threads = 256, warps = 8;
inline constexpr int super_block = 256;  ///< values of K in a stage
inline constexpr int weight_rows = 128;  ///< of a block
inline constexpr int act_rows = 64;      ///< of a block, at most
inline constexpr int row_tiles = act_rows / 8;
inline constexpr int segment_stages = static_cast<int>(kSegment) / super_block;

/// An integer n with |n| < 2^22 added to these bits gives those of the float magic + n.
inline constexpr int32_t magic_bits = 0x4b400000;
inline constexpr float magic = 12582912.0f;

/// What a stage holds in shared memory, by format.
template <typename Codec>
struct Stage {
  using F = Fragments<Codec>;
  static constexpr bool wide = F::step_k == 32;
  static constexpr int steps = super_block / F::step_k;
  static constexpr bool minima = Codec::has_minimum;
  /// Super-blocks start at any even address where a format's block is not a multiple of 16 bytes: the
  /// enclosing span of aligned 16-byte pieces is copied.
  static constexpr int pieces = (F::block_bytes + (Codec::block_bytes % 16 == 0 ? 0 : 14) + 15) / 16;
  static constexpr int row_bytes = 16 * pieces;
  /// Rows of q are apart so that a warp's reads of a step meet no bank twice.
  static constexpr int q_stride = super_block + (wide ? 32 : 16);
  static constexpr int scales = F::integer_scale ? 1 : 8;  ///< of a row
  static constexpr int scale_stride = act_rows + 4;

  static constexpr int q_at = weight_rows * row_bytes;
  static constexpr int scale_at = q_at + act_rows * q_stride;
  static constexpr int sums_at = scale_at + 4 * scales * scale_stride;
  static constexpr int bytes = sums_at + (minima ? 16 * act_rows : 0);
  static_assert(bytes % 16 == 0 && scale_at % 16 == 0 && sums_at % 16 == 0);
  /// Two blocks share a multiprocessor's 228 KiB.
  static constexpr int count = 3 * bytes <= 112 * 1024 ? 3 : 2;
};

/// Where row `row` of a weight begins; rows past the last repeat it.
__device__ __forceinline__ const uint8_t* weight_row(const void* weight, int64_t row, int64_t rows,
                                                     int64_t row_bytes) {
  return static_cast<const uint8_t*>(weight) + min(row, rows - 1) * row_bytes;
}

/// The product of a warp's 16 weight rows with up to 64 rows of activations.
template <typename Codec>
struct Product {
  using S = Stage<Codec>;
  using F = Fragments<Codec>;

  const uint8_t* weight[2];  ///< this lane's rows, g and g + 8 of the warp's
  Acts acts;
  uint8_t* shared;    ///< S::count stages
  const int* row_of;  ///< [64] in shared memory: rows of acts
  int rows;           ///< of these, that exist
  float acc[row_tiles][4];

  __device__ __forceinline__ int lane() const { return static_cast<int>(threadIdx.x) % 32; }
  __device__ __forceinline__ int warp() const { return static_cast<int>(threadIdx.x) / 32; }
  __device__ __forceinline__ int stages() const {
    return static_cast<int>((acts.in + super_block - 1) / super_block);
  }
  __device__ __forceinline__ uint8_t* slot(int stage) const { return shared + stage % S::count * S::bytes; }
  __device__ __forceinline__ int values(int stage) const {
    return static_cast<int>(min(acts.in - int64_t{stage} * super_block, int64_t{super_block}));
  }

  /// A warp copies its own rows, four lanes a row. What lies past the last super-block is other rows or the
  /// buffer's slack.
  __device__ __forceinline__ void copy_weights(int stage) const {
    const int g = lane() / 4, t = lane() % 4;
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      const auto from = reinterpret_cast<uintptr_t>(weight[row] + stage * F::block_bytes);
      const auto* aligned = reinterpret_cast<const uint8_t*>(from & ~uintptr_t{15}) + 16 * t;
      uint8_t* to = slot(stage) + (warp() * 16 + 8 * row + g) * S::row_bytes + 16 * t;
#pragma unroll
      for (int i = 0; i < (S::pieces + 3) / 4; ++i)
        if (t + 4 * i < S::pieces) cp_async16(to + 64 * i, aligned + 64 * i);
    }
  }

  __device__ __forceinline__ void copy_acts(int stage) const {
    uint8_t* to = slot(stage);
    const int tid = static_cast<int>(threadIdx.x), c = tid % 16;
    const auto pieces_a_row = static_cast<uint32_t>(acts.in / 16);
    if (16 * c < values(stage)) {
#pragma unroll
      for (int i = 0; i < act_rows / 16; ++i) {
        const int r = tid / 16 + 16 * i;
        if (r < rows)
          cp_async16(
              to + S::q_at + r * S::q_stride + 16 * c,
              reinterpret_cast<const uint4*>(acts.q) +
                  (static_cast<uint32_t>(row_of[r]) * pieces_a_row + static_cast<uint32_t>(16 * stage + c)));
      }
    }
    if constexpr (S::minima) {
      if (tid < rows)
        cp_async16(to + S::sums_at + 16 * tid, acts.sums + row_of[tid] * (acts.in / 32) + 8 * stage);
    }
  }

  /// Scales are 4-byte aligned only: they pass through registers, a stage's between two others'.
  struct Scales {
    float value[S::scales == 1 ? 1 : 2];
  };
  __device__ __forceinline__ void load_scales(int stage, Scales& pending) const {
    const int tid = static_cast<int>(threadIdx.x);
    if constexpr (S::scales == 1) {
      if (tid < rows) pending.value[0] = acts.scale[row_of[tid] * (acts.in / super_block) + stage];
    } else {
      const int step = tid % 8;
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int r = tid / 8 + 32 * i;
        if (r < rows && 32 * step < values(stage))
          pending.value[i] = acts.scale[row_of[r] * (acts.in / 32) + 8 * stage + step];
      }
    }
  }
  __device__ __forceinline__ void store_scales(int stage, const Scales& pending) const {
    auto* to = reinterpret_cast<float*>(slot(stage) + S::scale_at);
    const int tid = static_cast<int>(threadIdx.x);
    if constexpr (S::scales == 1) {
      if (tid < act_rows) to[tid] = pending.value[0];
    } else {
#pragma unroll
      for (int i = 0; i < 2; ++i) to[tid % 8 * S::scale_stride + tid / 8 + 32 * i] = pending.value[i];
    }
  }

  /// The weights of the first stages: may run before wait_for_previous().
  __device__ __forceinline__ void begin() const {
#pragma unroll
    for (int stage = 0; stage < S::count - 1; ++stage)
      if (stage < stages()) copy_weights(stage);
  }

  /// After begin(): acc[n][i] becomes the output of weight row g + 8 (i / 2) and activation row
  /// 8n + 2t + i % 2, for the n below rows / 8 rounded up.
  __device__ __forceinline__ void finish() {
    Scales pending{};
    {
      Scales first[S::count - 1]{};
#pragma unroll
      for (int stage = 0; stage < S::count - 1; ++stage) {
        if (stage < stages()) {
          copy_acts(stage);
          load_scales(stage, first[stage]);
        }
        cp_commit();
      }
#pragma unroll
      for (int stage = 0; stage < S::count - 1; ++stage) store_scales(stage, first[stage]);
    }
    clear();
    // Chains of earlier segments are touched once in eight stages: in local memory, since registers are
    // short.
    volatile float y[row_tiles][4];
    for (int stage = 0; stage < stages(); ++stage) {
      if (stage > 0) store_scales(stage + S::count - 2, pending);
      cp_wait<S::count - 2>();
      __syncthreads();  // the stage is complete for all, and the slot filled next is no longer read
      if (stage + S::count - 1 < stages()) {
        copy_weights(stage + S::count - 1);
        copy_acts(stage + S::count - 1);
        load_scales(stage + S::count - 1, pending);
      }
      cp_commit();
      if (stage % segment_stages == 0 && stage > 0) {
        if (stage > segment_stages) add(y);
#pragma unroll
        for (int n = 0; n < row_tiles; ++n)
#pragma unroll
          for (int i = 0; i < 4; ++i) y[n][i] = acc[n][i];
        clear();
      }
      multiply(stage);
    }
    if (stages() > segment_stages) add(y);
    __syncthreads();  // no slot is read any more: the next product may fill them
  }

 private:
  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int n = 0; n < row_tiles; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) acc[n][i] = 0;
  }

  __device__ __forceinline__ void add(const volatile float (&y)[row_tiles][4]) {
#pragma unroll
    for (int n = 0; n < row_tiles; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) acc[n][i] = y[n][i] + acc[n][i];
  }

  __device__ __forceinline__ void multiply(int stage) {
    const uint8_t* in = slot(stage);
    const int g = lane() / 4, t = lane() % 4;
    const uint8_t* weights = in + (warp() * 16 + g) * S::row_bytes;
    const auto start = [&](int row) {
      if constexpr (Codec::block_bytes % 16 == 0) return 0;
      return static_cast<int>(reinterpret_cast<uintptr_t>(weight[row] + stage * F::block_bytes) & 15);
    };
    F f;
    f.load(weights + start(0), weights + 8 * S::row_bytes + start(1), t, values(stage));
    if constexpr (F::integer_scale)
      multiply_integer(f, in, g, t);
    else
      multiply_blocks(f, in, g, t, values(stage));
  }

  __device__ __forceinline__ static void multiply_step(int32_t (&c)[4], const uint32_t (&a)[4],
                                                       const uint8_t* b) {
    if constexpr (S::wide) {
      const uint2 q = *reinterpret_cast<const uint2*>(b);
      mma_k32(c, a, q.x, q.y);
    } else {
      mma_k16(c, a[0], a[1], *reinterpret_cast<const uint32_t*>(b));
    }
  }

  /// Formats whose scales are integers: one float step a super-block.
  __device__ __forceinline__ void multiply_integer(const F& f, const uint8_t* in, int g, int t) {
    uint32_t a[S::steps][4];
#pragma unroll
    for (int step = 0; step < S::steps; ++step) f.a(step, a[step]);
    uint32_t minima[2] = {0, 0};  // A of the minima: lanes t = 0 and 1 hold four each, the others zeros
    if constexpr (S::minima) {
#pragma unroll
      for (int row = 0; row < 2; ++row) {
        const auto packed = [&](int j) {
          return static_cast<uint32_t>(f.minimum(j, row) | f.minimum(j + 1, row) << 8 |
                                       f.minimum(j + 2, row) << 16 | f.minimum(j + 3, row) << 24);
        };
        minima[row] = t == 0 ? packed(0) : t == 1 ? packed(4) : 0;
      }
    }
    const uint8_t* b = in + S::q_at + g * S::q_stride + (S::wide ? 8 : 4) * t;
    const auto* scale = reinterpret_cast<const float*>(in + S::scale_at) + 2 * t;
    const uint8_t* sums = in + S::sums_at + 16 * g + 8 * (t % 2);
#pragma unroll
    for (int n = 0; n < row_tiles; ++n) {
      if (8 * n >= rows) break;
      int32_t total[4] = {0, 0, 0, 0}, m[4];
      uint32_t low = 0;
      if constexpr (S::minima)
        low = begin_minima(m, minima, *reinterpret_cast<const uint2*>(sums + 16 * 8 * n));
#pragma unroll
      for (int step = 0; step < S::steps; ++step) {
        int32_t c[4] = {0, 0, 0, 0};
        multiply_step(c, a[step], b + 8 * n * S::q_stride + step * F::step_k);
#pragma unroll
        for (int i = 0; i < 4; ++i) total[i] += f.scale(step, i / 2) * c[i];
        if constexpr (S::minima) {
          if (step == S::steps / 2) end_minima(m, minima, low);
        }
      }
      const float2 da = *reinterpret_cast<const float2*>(scale + 8 * n);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float column = i % 2 ? da.y : da.x;
        acc[n][i] = std::fma(f.d(i / 2) * column, static_cast<float>(total[i]), acc[n][i]);
        if constexpr (S::minima)
          acc[n][i] = std::fma(-(f.dmin(i / 2) * column), std::bit_cast<float>(m[i]) - magic, acc[n][i]);
      }
    }
  }

  /// In two parts, since the tensor cores take their time: m = magic_bits + minima * sums. The sums (four of
  /// 16 bits, |sum| <= 4064) are two bytes each, of weight 128 and 1; |minima * sums| <= 8 * 63 * 4064 <
  /// 2^22.
  __device__ __forceinline__ static uint32_t begin_minima(int32_t (&m)[4], const uint32_t (&minima)[2],
                                                          uint2 sums) {
    m[0] = m[1] = m[2] = m[3] = 0;
    mma_k16(m, minima[0], minima[1], __byte_perm(sums.x << 1, sums.y << 1, 0x7531));
    return __byte_perm(sums.x, sums.y, 0x6420) & 0x7f7f7f7fu;
  }
  __device__ __forceinline__ static void end_minima(int32_t (&m)[4], const uint32_t (&minima)[2],
                                                    uint32_t low) {
#pragma unroll
    for (int i = 0; i < 4; ++i) m[i] = m[i] * 128 + magic_bits;
    mma_k16(m, minima[0], minima[1], low);
  }

  /// Formats of 32 values: every step is a block, |dot| <= 32 * 128 * 127 < 2^22.
  __device__ __forceinline__ void multiply_blocks(const F& f, const uint8_t* in, int g, int t, int values) {
    const uint8_t* b = in + S::q_at + g * S::q_stride + 8 * t;
    const auto* scale = reinterpret_cast<const float*>(in + S::scale_at) + 2 * t;
#pragma unroll
    for (int n = 0; n < row_tiles; ++n) {
      if (8 * n >= rows) break;
#pragma unroll
      for (int step = 0; step < S::steps; ++step) {
        if (32 * step >= values) break;  // absent blocks are not added, not even as zeros
        uint32_t a[4];
        f.a(step, a);
        int32_t c[4] = {magic_bits, magic_bits, magic_bits, magic_bits};
        multiply_step(c, a, b + 8 * n * S::q_stride + step * F::step_k);
        const float2 da = *reinterpret_cast<const float2*>(scale + step * S::scale_stride + 8 * n);
#pragma unroll
        for (int i = 0; i < 4; ++i)
          acc[n][i] = std::fma(f.d(step, i / 2) * (i % 2 ? da.y : da.x), std::bit_cast<float>(c[i]) - magic,
                               acc[n][i]);
      }
    }
  }
};

}  // namespace weir::cuda::large
