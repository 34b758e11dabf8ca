// Little-endian loads from packed blocks, which have no alignment.
#pragma once

#include <cstdint>
#include <cstring>

#include "base/both_sides.h"
#include "base/half.h"

namespace weir::quant {

[[gnu::always_inline]] WEIR_BOTH_SIDES inline uint16_t load_u16(const uint8_t* bytes) {
  uint16_t value;
  std::memcpy(&value, bytes, sizeof value);
  return value;
}

[[gnu::always_inline]] WEIR_BOTH_SIDES inline uint32_t load_u32(const uint8_t* bytes) {
  uint32_t value;
  std::memcpy(&value, bytes, sizeof value);
  return value;
}

[[gnu::always_inline]] WEIR_BOTH_SIDES inline float load_f16(const uint8_t* bytes) {
  return f16_to_f32(load_u16(bytes));
}

}  // namespace weir::quant
