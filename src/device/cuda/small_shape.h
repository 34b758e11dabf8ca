// How a small-rows kernel divides its work and its shared memory; made on the host (small_shape.cpp's
// plan_small, pure) and passed to the kernel by value. A tile is 16 weight rows; a stage is `tiles` tiles
// over one part of K, `width` super-blocks of 256 values; a unit is one super-block of one tile, a warp's
// work.
#pragma once

#include <cstdint>

#include "quant/types.h"

namespace weir::cuda {

inline constexpr int tile_rows = 16;
inline constexpr int super_values = 256;
/// A super-block's segment of the float chain (docs/arithmetic.md).
inline constexpr int segment_supers = 8;
/// Words between the rows of the exchange, so that a fragment's 32 lanes store to 32 banks.
inline constexpr int exchange_stride = 20;
/// Warps of a block at most: for one row many, which share one unit each; for more rows fewer with more
/// registers, in more blocks.
constexpr int most_warps(bool one_row) { return one_row ? 16 : 8; }

struct SmallShape {
  int in = 0, supers = 0;      ///< values and super-blocks of K (the last may be short)
  int width = 0, parts = 0;    ///< super-blocks of a part; parts of K
  int tiles = 0, buffers = 0;  ///< tiles of a stage; stages that are in shared memory at once
  int row_bytes = 0;           ///< of a weight row
  int stride = 0;              ///< bytes between staged rows
  int rows = 1;                ///< activation rows held: those of one row's kernel, or a multiple of 8
  int slots = 1;               ///< parts of the activations held at once
  int q_stride = 0, sums_stride = 0, scale_stride = 0;  ///< bytes between activation rows
  int threads = 0;
  // Offsets in shared memory, and sizes; barriers are at 0.
  int stage_at = 0, stage_bytes = 0;
  int q_at = 0, sums_at = 0, scale_at = 0, slot_bytes = 0;
  int terms_at = 0, terms_bytes = 0;  ///< one row: two copies of (factor, value) pairs; more: integers
  int factors_at = 0;                 ///< more rows: d and dmin by unit
  int state_at = 0;                   ///< (y, acc) by item, between the parts of K
  int extra_at = 0;                   ///< the kernel's own
  int shared_bytes = 0;
};

/// What a format and a kernel want of a shape.
struct SmallNeeds {
  Type type = Type::F32;
  int64_t in = 0;
  bool one_row = true;
  int rows = 1;           ///< activation rows
  int tiles = 1;          ///< of a stage at most
  int tile_multiple = 1;  ///< 2 where tiles come in pairs
  int buffers = 1;        ///< at least, where a block has that many stages
  int block_stages = 1;   ///< stages that a block runs through, over one part of K
  int extra_bytes = 0;
  int soft_limit = 0;  ///< shared memory that a stage may take before tiles are given up
};
SmallShape plan_small(const SmallNeeds& needs);
/// Whether the smallest such shape fits in a block's shared memory: plan_small() may be asked for it.
bool small_fits(const SmallNeeds& needs);

}  // namespace weir::cuda
