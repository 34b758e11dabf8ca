// The loop that all small-rows kernels share: weight tiles stream into shared memory by bulk copies, several
// stages ahead; warps turn units into integers; threads run the float chains. A kernel says where its tiles
// lie and what becomes of an output.
#pragma once

#include <utility>

#include "device/cuda/launch.h"
#include "device/cuda/small_units.cuh"

namespace weir::cuda {

/// 16 rows of weights; `valid` of them exist (0: no such tile).
struct TileRows {
  const uint8_t* first = nullptr;
  int valid = 0;
};

template <typename Codec>
inline constexpr bool wants_sixteen = Fragments<Codec>::block_bytes % 16 == 0 && Codec::block_elements == 256;

/// Blocks of the largest size that registers must allow side by side; formats that need more registers give
/// up one rather than spill.
template <typename Codec, bool kOneRow>
inline constexpr int blocks_at_once =
    kOneRow ? (Fragments<Codec>::step_k == 32 && Fragments<Codec>::integer_scale ? 2 : 1) : 2;

/// Where byte `from` of a row lies in its staged copy: copies begin at the 16 bytes that enclose it. Q4_K's
/// fragments need 16 themselves: rows that do not lie so are moved when copied (stage_tile).
template <typename Codec>
__device__ __forceinline__ int staged_remainder(const uint8_t* from) {
  if constexpr (wants_sixteen<Codec>) return 0;
  return static_cast<int>(reinterpret_cast<uintptr_t>(from) & 15);
}

/// A warp starts the copies of `bytes` of each row, of rows that begin at tile.first + offset. The barrier
/// takes 16 arrivals.
template <typename Codec>
__device__ __forceinline__ void stage_tile(uint8_t* to, const TileRows& tile, int64_t row_bytes,
                                           int64_t offset, int bytes, int stride, uint64_t* barrier) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  if constexpr (wants_sixteen<Codec>) {
    if ((reinterpret_cast<uintptr_t>(tile.first) & 15) != 0) {
      for (int row = 0; row < tile.valid; ++row) {
        const uint8_t* from = tile.first + row * row_bytes + offset;
        for (int i = 2 * lane; i < bytes; i += 64)
          *reinterpret_cast<uint16_t*>(to + row * stride + i) = *reinterpret_cast<const uint16_t*>(from + i);
      }
      __syncwarp();
      if (lane < tile_rows) arrive_expecting(barrier, 0);
      return;
    }
  }
  if (lane >= tile_rows) return;
  if (lane >= tile.valid) return arrive_expecting(barrier, 0);
  const uint8_t* from = tile.first + lane * row_bytes + offset;
  const uint32_t before = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(from) & 15);
  const uint32_t count = (before + static_cast<uint32_t>(bytes) + 15u) & ~15u;
  arrive_expecting(barrier, count);
  bulk_copy(to + lane * stride, from - before, count, barrier);
}

/// Where a block stands: stage `index` is part `part` of tile group `group`, in buffer `buffer`, whose
/// barriers are in phase `phase`.
struct StageAt {
  int index = 0, group = 0, part = 0, buffer = 0;
  uint32_t phase = 0;
  int chain_warp = 0;
};

/// kOneRow: activations for every super-block of K lie in shared memory, quantised by the block
/// (quantise_rows, norm_and_quantise); row `act_row(tile)` of them is a tile's own. Otherwise stage_rows()
/// brings the rows, and every tile takes all.
template <typename Codec, bool kOneRow>
struct Stages {
  static constexpr int terms = terms_of<Codec>;
  static constexpr int block_bytes = Fragments<Codec>::block_bytes;
  static constexpr bool per256 = Codec::act == ActFormat::per256;

  uint8_t* shared;
  const SmallShape& shape;
  int count;  ///< stages of this block: groups of tiles times parts of K

  __device__ __forceinline__ uint64_t* barrier(int buffer, int tile) const {
    return reinterpret_cast<uint64_t*>(shared) + buffer * shape.tiles + tile;
  }
  __device__ __forceinline__ int part_supers(int part) const {
    const int left = shape.supers - part * shape.width;
    return left < shape.width ? left : shape.width;
  }
  __device__ __forceinline__ void next(StageAt& at) const {
    ++at.index;
    if (++at.part == shape.parts) at.part = 0, ++at.group;
    if (++at.buffer == shape.buffers) at.buffer = 0, at.phase ^= 1u;
  }
  /// Ends with a barrier of the block.
  __device__ __forceinline__ void init() const {
    for (int i = static_cast<int>(threadIdx.x); i < shape.buffers * shape.tiles;
         i += static_cast<int>(blockDim.x))
      barrier_init(barrier(0, 0) + i, tile_rows);
    __syncthreads();  // the barriers are initialised
  }

  /// All threads: starts the copies of a stage, a tile by each warp. tile_at(group, tile) -> TileRows.
  template <typename TileAt>
  __device__ __forceinline__ void issue(const StageAt& at, TileAt tile_at) const {
    const int64_t offset = static_cast<int64_t>(at.part) * shape.width * block_bytes;
    const int64_t left = shape.row_bytes - offset, whole = shape.width * block_bytes;
    const int bytes = static_cast<int>(left < whole ? left : whole);
    for (int tile = static_cast<int>(threadIdx.x / 32); tile < shape.tiles;
         tile += static_cast<int>(blockDim.x / 32)) {
      const TileRows rows = tile_at(at.group, tile);
      if (rows.valid > 0)
        stage_tile<Codec>(
            shared + shape.stage_at + at.buffer * shape.stage_bytes + tile * tile_rows * shape.stride, rows,
            shape.row_bytes, offset, bytes, shape.stride, barrier(at.buffer, tile));
    }
  }
  /// Fills the buffers; the result is the first stage that finds none.
  template <typename TileAt>
  __device__ __forceinline__ StageAt prefetch(TileAt tile_at) const {
    StageAt at;
    while (shape.buffers > at.index && count > at.index) issue(at, tile_at), next(at);
    return at;
  }

  /// Waits for its tile, then turns one super-block of it into terms.
  __device__ __forceinline__ void unit(const TileRows& rows, const StageAt& at, int tile, int s, int act_row,
                                       int used) const {
    const int g = static_cast<int>(threadIdx.x % 32) / 4;
    const int super = at.part * shape.width + s;
    const int left = shape.in - super * super_values, values = left < super_values ? left : super_values;
    const int64_t offset = static_cast<int64_t>(at.part) * shape.width * block_bytes;
    const uint8_t* staged = shared + shape.stage_at + at.buffer * shape.stage_bytes +
                            (tile * tile_rows + g) * shape.stride + s * block_bytes;
    const uint8_t* from = rows.first + offset + static_cast<int64_t>(g) * shape.row_bytes;
    const uint8_t* row0 = staged + staged_remainder<Codec>(from);
    const uint8_t* row1 =
        staged + 8 * shape.stride + staged_remainder<Codec>(from + static_cast<int64_t>(8) * shape.row_bytes);
    const int first_term = (tile * shape.width + s) * terms;
    barrier_wait(barrier(at.buffer, tile), at.phase);
    if constexpr (kOneRow) {
      const SuperActs x = {
          shared + shape.q_at + act_row * shape.q_stride + super * super_values,
          reinterpret_cast<const int16_t*>(shared + shape.sums_at + act_row * shape.sums_stride) + super * 8,
          reinterpret_cast<const float*>(shared + shape.scale_at + act_row * shape.scale_stride) +
              super * (per256 ? 1 : 8)};
      unit_one_row<Codec>(row0, row1, values, x,
                          reinterpret_cast<float2*>(shared + terms_at(at)) + first_term * tile_rows);
    } else {
      const uint8_t* slot = shared + slot_at(at);
      const SuperRows x = {slot + shape.q_at + s * super_values,
                           reinterpret_cast<const int16_t*>(slot + shape.sums_at) + s * 8,
                           shape.q_stride,
                           shape.sums_stride,
                           shape.rows,
                           used};
      auto* integers = reinterpret_cast<int32_t*>(shared + shape.terms_at);
      auto* factors = reinterpret_cast<float*>(shared + shape.factors_at);
      unit_rows<Codec>(row0, row1, values, x, integers + first_term * shape.rows * exchange_stride,
                       factors + first_term * tile_rows);
    }
  }

  /// Carries one output over the stage's part of K; the result is y after the last.
  __device__ __forceinline__ float chain(const StageAt& at, int tile, int row, int out) const {
    const int supers = part_supers(at.part);
    auto* state = reinterpret_cast<float2*>(shared + shape.state_at) +
                  (tile * (kOneRow ? 1 : shape.rows) + row) * tile_rows + out;
    Chain c;
    if (at.part > 0) c.y = state->x, c.acc = state->y;
    const int first = at.part * shape.width;
    const int last_values = shape.in - (first + supers - 1) * super_values;
    const int last_terms = last_values < super_values ? last_values / 32 : 8;
    const int first_term = tile * shape.width * terms;
    if constexpr (kOneRow) {
      const auto* pairs =
          reinterpret_cast<const float2*>(shared + terms_at(at)) + first_term * tile_rows + out;
      run_chain<terms>(c, first, supers, last_terms, [&](Chain& to, int s, int k) {
        const float2 v = pairs[(s * terms + k) * tile_rows];
        to.acc = std::fma(v.x, v.y, to.acc);
      });
    } else {
      const int32_t* integers = reinterpret_cast<const int32_t*>(shared + shape.terms_at) +
                                (first_term * shape.rows + row) * exchange_stride + out;
      const float* factors =
          reinterpret_cast<const float*>(shared + shape.factors_at) + first_term * tile_rows + out;
      const auto* scale =
          reinterpret_cast<const float*>(shared + slot_at(at) + shape.scale_at + row * shape.scale_stride);
      run_chain<terms>(c, first, supers, last_terms, [&](Chain& to, int s, int k) {
        const int term = s * terms + k;
        const auto value = static_cast<float>(integers[term * shape.rows * exchange_stride]);
        const float d = factors[term * tile_rows];
        if constexpr (per256) {
          const float factor = d * scale[s];
          to.acc = std::fma(k == 0 ? factor : -factor, value, to.acc);
        } else {
          to.acc = std::fma(d * scale[term], value, to.acc);
        }
      });
    }
    if (at.part + 1 < shape.parts) *state = {c.y, c.acc};
    return end_chain(c, shape.supers);
  }

  /// The first item of this thread in a stage: chains move from warp to warp, so that where they are few no
  /// one warp falls behind.
  __device__ __forceinline__ int first_item(const StageAt& at) const {
    const int item = static_cast<int>(threadIdx.x) - 32 * at.chain_warp;
    return item < 0 ? item + static_cast<int>(blockDim.x) : item;
  }

  /// Runs every stage; `ahead` is what prefetch() returned. tile_at(group, tile) -> TileRows;
  /// act_row(group, tile) -> row (kOneRow); begin(at): before a stage's units (all threads; may synchronise);
  /// done(at, item) for each of `items` after them, by one thread each, which calls chain().
  template <typename TileAt, typename ActRow, typename Begin, typename Done>
  __device__ __forceinline__ void run(StageAt ahead, int used, int items, TileAt tile_at, ActRow act_row,
                                      Begin begin, Done done) const {
    const int warps = static_cast<int>(blockDim.x / 32);
    for (StageAt at; count > at.index; next(at)) {
      begin(at);
      const int supers = part_supers(at.part);
      int tile = 0, s = static_cast<int>(threadIdx.x / 32);
      while (true) {
        while (s >= supers) s -= supers, ++tile;
        if (tile >= shape.tiles) break;
        const TileRows rows = tile_at(at.group, tile);
        if (rows.valid > 0) unit(rows, at, tile, s, act_row(at.group, tile), used);
        s += warps;
      }
      __syncthreads();  // terms are there, and the stage's buffer is free
      if (count > ahead.index) {
        fence_async();  // the buffer was read as plain shared memory
        issue(ahead, tile_at);
        next(ahead);
      }
      for (int item = first_item(at); item < items; item += static_cast<int>(blockDim.x)) done(at, item);
      if (++at.chain_warp == warps) at.chain_warp = 0;
    }
  }

 private:
  /// One row: terms of two stages, so that chains may lag behind the next stage's units.
  __device__ __forceinline__ int terms_at(const StageAt& at) const {
    return shape.terms_at + (count > 1 ? at.index % 2 * shape.terms_bytes : 0);
  }
  __device__ __forceinline__ int slot_at(const StageAt& at) const {
    return shape.slots > 1 ? at.index % 2 * shape.slot_bytes : 0;
  }
};

template <typename... P, typename... A>
void launch_small(Stream& s, const char* operation, void (*kernel)(P...), dim3 grid, const SmallShape& shape,
                  A&&... args) {
  const auto bytes = static_cast<size_t>(shape.shared_bytes);
  launch(s, operation, kernel, grid, dim3(static_cast<unsigned>(shape.threads)), bytes,
         std::forward<A>(args)...);
}

}  // namespace weir::cuda
