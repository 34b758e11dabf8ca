// Q5_0: 32 levels of 5 bits and one scale. Bytes: d f16, qh u32, qs[16]. Element j < 16 is the low nibble of
// qs[j], element j + 16 its high nibble; bit j of qh is element j's fifth bit. value = d * (level - 16).
#pragma once

#include "quant/codec.h"
#include "quant/load.h"

namespace weir::quant {

struct Q5_0 {
  static constexpr Type type = Type::Q5_0;
  static constexpr int block_elements = 32, block_bytes = 22;
  static constexpr ActFormat act = ActFormat::per32;
  static constexpr bool has_minimum = false;
  static constexpr int qh_offset = 2, qs_offset = 6;

  /// -16..15
  WEIR_BOTH_SIDES static int level(const uint8_t* block, int j) {
    const int nibble = j < 16 ? block[qs_offset + j] & 15 : block[qs_offset + j - 16] >> 4;
    const int fifth = static_cast<int>((load_u32(block + qh_offset) >> j) & 1u);
    return (nibble | fifth << 4) - 16;
  }

  static void decode(const uint8_t* block, float* out) {
    const float d = load_f16(block);
    for (int j = 0; j < 32; ++j) out[j] = d * static_cast<float>(level(block, j));
  }

  static BlockProduct product(const uint8_t* block, const int8_t* q, const int16_t*) {
    BlockProduct p;
    p.d = load_f16(block);
    for (int j = 0; j < 32; ++j) p.total += level(block, j) * q[j];
    return p;
  }
};

}  // namespace weir::quant
