// Activations to int8, scalar: docs/arithmetic.md, activations.
#include <algorithm>
#include <cmath>
#include <limits>

#include "device/cpu/matmul_tables.h"

namespace weir::cpu {
namespace {

/// One block of kBlock values. False where one is not finite.
template <int kBlock>
bool quantize_block(const float* x, int8_t* q, float* scale) {
  float amax = 0;
  bool finite = true;
  for (int i = 0; i < kBlock; ++i) {
    finite = finite && std::isfinite(x[i]);
    amax = std::max(amax, std::fabs(x[i]));
  }
  const float d = amax / 127.0f;
  if (!finite || d == 0) {
    std::fill_n(q, kBlock, int8_t{0});
    *scale = finite ? 0.0f : std::numeric_limits<float>::quiet_NaN();
    return finite;
  }
  *scale = d;
  for (int i = 0; i < kBlock; ++i) q[i] = static_cast<int8_t>(std::clamp(std::lrintf(x[i] / d), -127l, 127l));
  return true;
}

template <int kBlock>
bool quantize(const QuantizeTask& t) {
  bool finite = true;
  for (int64_t r = t.row_begin; r < t.row_end; ++r) {
    const float* x = t.x + (t.x_index ? t.x_index[r] : r) * t.x_stride;
    int8_t* q = t.q + r * t.in;
    for (int64_t i = 0; i < t.in; i += kBlock) {
      finite &= quantize_block<kBlock>(x + i, q + i, t.scale + (r * t.in + i) / kBlock);
      if (kBlock == 256)
        for (int64_t s = i; s < i + kBlock; s += 32) {
          int sum = 0;
          for (int64_t j = s; j < s + 32; ++j) sum += q[j];
          t.sums[(r * t.in + s) / 32] = static_cast<int16_t>(sum);
        }
    }
  }
  return finite;
}

}  // namespace

bool quantize32_scalar(const QuantizeTask& task) { return quantize<32>(task); }
bool quantize256_scalar(const QuantizeTask& task) { return quantize<256>(task); }

}  // namespace weir::cpu
