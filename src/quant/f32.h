// F32: IEEE single precision, one value a block. Multiplied as floats (docs/arithmetic.md, float dots).
#pragma once

#include <cstring>

#include "base/both_sides.h"
#include "quant/codec.h"

namespace weir::quant {

struct F32 {
  static constexpr Type type = Type::F32;
  static constexpr int block_elements = 1, block_bytes = 4;
  static constexpr ActFormat act = ActFormat::none;
  static constexpr bool has_minimum = false;

  WEIR_BOTH_SIDES static void decode(const uint8_t* block, float* out) {
    std::memcpy(out, block, sizeof(float));
  }
};

}  // namespace weir::quant
