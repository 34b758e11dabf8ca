// What a block format's header must define, and the layout of quantised activations. The product of a weight
// block with an activation block is integers (exact in any order); floats enter only once per block, in a
// fixed order (docs/arithmetic.md), so every device and instruction set gives the same bits.
#pragma once

#include <cstdint>

#include "quant/types.h"

namespace weir::quant {

/// Rows of int8 activations. per256: scale[in/256], sums[in/32]. per32: scale[in/32], sums unused.
/// d = amax/127, q = rint(x/d) (ties to even), amax 0 gives zeros.
struct ActRows {
  const int8_t* q = nullptr;      ///< [rows, in]
  const float* scale = nullptr;   ///< [rows, in / (32 or 256)]
  const int16_t* sums = nullptr;  ///< [rows, in / 32], per256 only: sum of each 32 values of q
  int64_t in = 0;
  int rows = 0;
  ActFormat format = ActFormat::none;
};

/// Exact integer parts of one weight block times one activation block.
/// Contribution: acc = fma(d * da, float(total), acc), then where the format has minima
/// acc = fma(-(dmin * da), float(minimum), acc).
struct BlockProduct {
  float d = 0;
  int32_t total = 0;
  float dmin = 0;
  int32_t minimum = 0;
};

// A codec is a struct with:
//   static constexpr Type type; static constexpr int block_elements, block_bytes;
//   static constexpr ActFormat act; static constexpr bool has_minimum;
//   static void decode(const uint8_t* block, float* out);                       // block_elements values
//   static BlockProduct product(const uint8_t* block, const int8_t* q, const int16_t* sums);   // act formats
//   only
// and one row in codecs.h.

}  // namespace weir::quant
