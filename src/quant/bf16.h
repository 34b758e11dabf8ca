// BF16: the upper half of a float, one value a block. Every value is a float exactly; multiplied as floats.
#pragma once

#include "quant/codec.h"
#include "quant/load.h"

namespace weir::quant {

struct BF16 {
  static constexpr Type type = Type::BF16;
  static constexpr int block_elements = 1, block_bytes = 2;
  static constexpr ActFormat act = ActFormat::none;
  static constexpr bool has_minimum = false;

  WEIR_BOTH_SIDES static void decode(const uint8_t* block, float* out) {
    *out = bf16_to_f32(load_u16(block));
  }
};

}  // namespace weir::quant
