// Q8_0 by lanes (lane_matmul.h): two transposed pieces of 16 levels and the scale.
#pragma once

#include "device/cpu/lane_matmul.h"
#include "quant/q8_0.h"

namespace weir::cpu {
namespace {

struct Q8_0Lanes {
  using Codec = quant::Q8_0;
  using Prepared = int32_t;  ///< -128 times the sum of the activations, for sets that store levels + 128

  static inline void prepare(const int8_t* q, Prepared& out) { out = -128 * sum32(q); }

  template <typename S>
  struct Unpacked {
    typename S::Int level[8];
    typename S::Float d;
  };

  template <typename S>
  static inline void unpack(const uint8_t* const* w, Unpacked<S>& u) {
    typename S::Int piece[4];
    S::transpose(w, 0, piece);  // for its first two bytes
    u.d = S::f16_to_float(S::lower_halves(piece[0]));
    for (int p = 0; p < 2; ++p) {
      S::transpose(w, Codec::qs_offset + 16 * p, piece);
      for (int i = 0; i < 4; ++i)
        u.level[4 * p + i] = S::kSignedAsUnsigned ? S::bit_xor(piece[i], S::set8(0x80)) : piece[i];
    }
  }

  template <typename S, int X>
  static inline void add(const Unpacked<S>& u, const ActBlock<Q8_0Lanes, X>& a, typename S::Float* acc) {
    typename S::Int total[X];
    if constexpr (S::kSignedAsUnsigned) {
      for (int x = 0; x < X; ++x) total[x] = S::broadcast32(a.prepared[x]);
      S::template dot<255, 8>(u.level, a.q, 0, total);
    } else {
      for (int x = 0; x < X; ++x) total[x] = S::zero();
      S::template dot_signed<8>(u.level, a.q, 0, total);
    }
    for (int x = 0; x < X; ++x) acc[x] = add_total<S>(u.d, a.scale[x], total[x], acc[x]);
  }
};

}  // namespace
}  // namespace weir::cpu
