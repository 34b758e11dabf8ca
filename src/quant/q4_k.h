// Q4_K: 256 levels of 4 bits in 8 sub-blocks of 32, each with a 6-bit scale and a 6-bit minimum. Bytes: d
// f16, dmin f16, scales[12], qs[128]. Sub-block 2c is the low nibbles of qs[32c..32c+31], sub-block 2c + 1
// the high ones. value = d * scale * level - dmin * minimum.
#pragma once

#include "quant/codec.h"
#include "quant/load.h"

namespace weir::quant {

struct Q4_K {
  static constexpr Type type = Type::Q4_K;
  static constexpr int block_elements = 256, block_bytes = 144;
  static constexpr ActFormat act = ActFormat::per256;
  static constexpr bool has_minimum = true;
  static constexpr int dmin_offset = 2, scales_offset = 4, qs_offset = 16;

  struct SubBlock {
    int scale, minimum;  ///< 0..63
  };
  /// Sub-blocks 0..3 have their six bits in bytes j (scale) and j + 4 (minimum); 4..7 have the low four in
  /// the nibbles of byte j + 4 and the high two in the upper bits of bytes j - 4 and j.
  WEIR_BOTH_SIDES static SubBlock sub_block(const uint8_t* block, int j) {
    const uint8_t* s = block + scales_offset;
    if (j < 4) return {s[j] & 63, s[j + 4] & 63};
    return {(s[j + 4] & 15) | (s[j - 4] >> 6) << 4, (s[j + 4] >> 4) | (s[j] >> 6) << 4};
  }

  /// 0..15
  WEIR_BOTH_SIDES static int level(const uint8_t* block, int j, int i) {
    const uint8_t byte = block[qs_offset + 32 * (j / 2) + i];
    return j % 2 ? byte >> 4 : byte & 15;
  }

  /// Both products below are exact in float, so each value is rounded once, by the subtraction.
  static void decode(const uint8_t* block, float* out) {
    const float d = load_f16(block), dmin = load_f16(block + dmin_offset);
    for (int j = 0; j < 8; ++j) {
      const SubBlock s = sub_block(block, j);
      const float scale = d * static_cast<float>(s.scale), minimum = dmin * static_cast<float>(s.minimum);
      for (int i = 0; i < 32; ++i) out[32 * j + i] = scale * static_cast<float>(level(block, j, i)) - minimum;
    }
  }

  static BlockProduct product(const uint8_t* block, const int8_t* q, const int16_t* sums) {
    BlockProduct p;
    p.d = load_f16(block), p.dmin = load_f16(block + dmin_offset);
    for (int j = 0; j < 8; ++j) {
      const SubBlock s = sub_block(block, j);
      int dot = 0;
      for (int i = 0; i < 32; ++i) dot += level(block, j, i) * q[32 * j + i];
      p.total += s.scale * dot;
      p.minimum += s.minimum * sums[j];
    }
    return p;
  }
};

}  // namespace weir::quant
