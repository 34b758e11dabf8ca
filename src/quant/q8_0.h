// Q8_0: 32 signed bytes and one scale. Bytes: d f16, qs int8[32]. value j = d * qs[j].
#pragma once

#include "quant/codec.h"
#include "quant/load.h"

namespace weir::quant {

struct Q8_0 {
  static constexpr Type type = Type::Q8_0;
  static constexpr int block_elements = 32, block_bytes = 34;
  static constexpr ActFormat act = ActFormat::per32;
  static constexpr bool has_minimum = false;
  static constexpr int qs_offset = 2;

  WEIR_BOTH_SIDES static int level(const uint8_t* block, int j) {
    return static_cast<int8_t>(block[qs_offset + j]);
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
