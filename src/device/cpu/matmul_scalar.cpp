// The scalar kernels: the arithmetic of docs/arithmetic.md written out, one template over the codecs. Every
// other instruction set is tested against these bit for bit, so they stay plain.
#include <algorithm>
#include <cmath>

#include "base/arithmetic_constants.h"
#include "device/cpu/matmul_tables.h"
#include "quant/codecs.h"

namespace weir::cpu {
namespace {

template <typename Codec>
float block_dot(const uint8_t* weight, const quant::ActRows& act, int64_t row) {
  const int8_t* q = act.q + row * act.in;
  const float* scale = act.scale + row * (act.in / Codec::block_elements);
  const int16_t* sums = act.sums ? act.sums + row * (act.in / 32) : nullptr;
  float total = 0;
  for (int64_t begin = 0; begin < act.in; begin += kSegment) {
    const int64_t end = std::min(begin + kSegment, act.in);
    float acc = 0;
    for (int64_t i = begin; i < end; i += Codec::block_elements) {
      const int64_t block = i / Codec::block_elements;
      const quant::BlockProduct p =
          Codec::product(weight + block * Codec::block_bytes, q + i, sums ? sums + i / 32 : nullptr);
      acc = std::fma(p.d * scale[block], static_cast<float>(p.total), acc);
      if constexpr (Codec::has_minimum)
        acc = std::fma(-(p.dmin * scale[block]), static_cast<float>(p.minimum), acc);
    }
    total = begin == 0 ? acc : total + acc;
  }
  return total;
}

template <typename Codec>
float float_dot(const uint8_t* weight, const float* x, int64_t in) {
  float total = 0;
  for (int64_t begin = 0; begin < in; begin += kFloatSegment) {
    const int64_t end = std::min(begin + kFloatSegment, in);
    float part[kFloatLanes] = {};
    for (int64_t i = begin; i < end; ++i) {
      float w;
      Codec::decode(weight + i * Codec::block_bytes, &w);
      float& p = part[i % kFloatLanes];
      p = std::fma(w, x[i], p);
    }
    for (int step = kFloatLanes / 2; step > 0; step /= 2)
      for (int j = 0; j < step; ++j) part[j] += part[j + step];
    total = begin == 0 ? part[0] : total + part[0];
  }
  return total;
}

template <typename Codec>
void matmul(const MatmulTask& t) {
  for (int64_t o = t.out_begin; o < t.out_end; ++o) {
    const uint8_t* weight = t.weight + static_cast<uint64_t>(o) * t.row_bytes;
    for (int i = 0; i < t.n; ++i) {
      const int64_t row_in = t.x_index ? t.x_index[i] : i, row_out = t.y_index ? t.y_index[i] : i;
      float& y = t.y[row_out * t.y_stride + o];
      if constexpr (Codec::act == ActFormat::none)
        y = float_dot<Codec>(weight, t.x + row_in * t.in, t.in);
      else
        y = block_dot<Codec>(weight, t.act, row_in);
    }
  }
}

}  // namespace

MatmulKernel scalar_matmul(Type type) {
  MatmulKernel kernel = nullptr;
  quant::Codecs::each([&]<typename Codec>() {
    if (Codec::type == type) kernel = matmul<Codec>;
  });
  return kernel;
}

}  // namespace weir::cpu
