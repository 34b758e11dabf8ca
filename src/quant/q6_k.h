// Q6_K: 256 levels of 6 bits in 16 sub-blocks of 16, each with a signed 8-bit scale. Bytes: ql[128], qh[64],
// scales int8[16], d f16. Two halves of 128 elements use 64 bytes of ql and 32 of qh each; within a half,
// element 32 r + l (r < 4) has its low four bits in ql[l + 32 (r % 2)] (low nibbles for r < 2, high for r >=
// 2) and its high two in bits 2r, 2r + 1 of qh[l]. value = d * scale * (level - 32).
#pragma once

#include "quant/codec.h"
#include "quant/load.h"

namespace weir::quant {

struct Q6_K {
  static constexpr Type type = Type::Q6_K;
  static constexpr int block_elements = 256, block_bytes = 210;
  static constexpr ActFormat act = ActFormat::per256;
  static constexpr bool has_minimum = false;
  static constexpr int qh_offset = 128, scales_offset = 192, d_offset = 208;

  WEIR_BOTH_SIDES static int scale(const uint8_t* block, int sub) {
    return static_cast<int8_t>(block[scales_offset + sub]);
  }

  /// -32..31
  WEIR_BOTH_SIDES static int level(const uint8_t* block, int element) {
    const int half = element / 128, r = element / 32 % 4, l = element % 32;
    const uint8_t low = block[64 * half + 32 * (r % 2) + l];
    const uint8_t high = block[qh_offset + 32 * half + l];
    return ((r < 2 ? low & 15 : low >> 4) | ((high >> 2 * r) & 3) << 4) - 32;
  }

  /// The products are exact in float: 11 bits of d, 7 of the scale's magnitude, 5 of the level's.
  static void decode(const uint8_t* block, float* out) {
    const float d = load_f16(block + d_offset);
    for (int e = 0; e < 256; ++e)
      out[e] = d * static_cast<float>(scale(block, e / 16)) * static_cast<float>(level(block, e));
  }

  static BlockProduct product(const uint8_t* block, const int8_t* q, const int16_t*) {
    BlockProduct p;
    p.d = load_f16(block + d_offset);
    for (int sub = 0; sub < 16; ++sub) {
      int dot = 0;
      for (int i = 16 * sub; i < 16 * sub + 16; ++i) dot += level(block, i) * q[i];
      p.total += scale(block, sub) * dot;
    }
    return p;
  }
};

}  // namespace weir::quant
