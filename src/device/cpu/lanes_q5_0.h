// Q5_0 by lanes (lane_matmul.h). Levels stay unsigned (0..31); the -16 is taken out through the sum of the
// activations.
#pragma once

#include "device/cpu/lane_matmul.h"
#include "quant/q5_0.h"

namespace weir::cpu {
namespace {

struct Q5_0Lanes {
  using Codec = quant::Q5_0;
  using Prepared = int32_t;  ///< -16 times the sum of the activations

  static inline void prepare(const int8_t* q, Prepared& out) { out = -16 * sum32(q); }

  template <typename S>
  struct Unpacked {
    typename S::Int level[8];
    typename S::Float d;
  };

  template <typename S>
  static inline void unpack(const uint8_t* const* w, Unpacked<S>& u) {
    typename S::Int head[4], qs[4];
    S::transpose(w, 0, head);  // d and the lower half of qh; the upper half of qh
    u.d = S::f16_to_float(S::lower_halves(head[0]));
    const typename S::Int qh = S::bit_or(S::template right32<16>(head[0]), S::template left32<16>(head[1]));
    S::transpose(w, Codec::qs_offset, qs);
    for (int i = 0; i < 4; ++i) {
      u.level[i] = S::bit_and(qs[i], S::set8(15));
      u.level[i + 4] = S::bit_and(S::template right32<4>(qs[i]), S::set8(15));
    }
    // Register i holds elements 4i..4i+3, whose fifth bits are one half of byte i / 2 of qh.
    const __m128i lane_bytes = _mm_setr_epi8(0, 0, 0, 0, 4, 4, 4, 4, 8, 8, 8, 8, 12, 12, 12, 12);
    for (int i = 0; i < 8; ++i) {
      const typename S::Int bytes =
          S::shuffle(qh, _mm_add_epi8(lane_bytes, _mm_set1_epi8(static_cast<char>(i / 2))));
      const int bits = i % 2 ? static_cast<int>(0x80402010u) : 0x08040201;
      u.level[i] = S::bit_or(u.level[i], S::where_set(bytes, S::broadcast32(&bits), S::set8(16)));
    }
  }

  template <typename S, int X>
  static inline void add(const Unpacked<S>& u, const ActBlock<Q5_0Lanes, X>& a, typename S::Float* acc) {
    typename S::Int total[X];
    for (int x = 0; x < X; ++x) total[x] = S::broadcast32(a.prepared[x]);
    S::template dot<31, 8>(u.level, a.q, 0, total);
    for (int x = 0; x < X; ++x) acc[x] = add_total<S>(u.d, a.scale[x], total[x], acc[x]);
  }
};

}  // namespace
}  // namespace weir::cpu
