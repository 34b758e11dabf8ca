// Q8_0 blocks, AVX2. |w| * sign(a, w) keeps the first factor unsigned: a is never -128, so its negation is
// exact, and |-128| is 128 as an unsigned byte. A pair's sum is at most 2 * 128 * 127 = 32,512: no
// saturation.
#include "device/cpu/blocks_avx2.h"
#include "quant/q8_0.h"

namespace weir::cpu {
namespace {

struct Q8_0Kernel {
  using Codec = quant::Q8_0;
  using Prepared = Nothing;

  template <int X>
  static inline __m256 block(const uint8_t* const* w, const ActSegment<Q8_0Kernel, X>& s, int b, __m256 acc) {
    const __m256i ones = _mm256_set1_epi16(1);
    __m256i v[kLanes];
    for (int k = 0; k < kLanes / X; ++k) {
      const __m256i levels = load256(w[k] + Codec::qs_offset), magnitude = _mm256_abs_epi8(levels);
      for (int x = 0; x < X; ++x) {
        const __m256i a = _mm256_sign_epi8(load256(s.q[x] + 32 * b), levels);
        v[k * X + x] = _mm256_madd_epi16(_mm256_maddubs_epi16(magnitude, a), ones);
      }
    }
    return add_total(f16_lanes<X>(w, 0), s.scale[b], sum_lanes(v), acc);
  }
};

}  // namespace

void matmul_q8_0_avx2(const MatmulTask& task) { matmul_blocks<Q8_0Kernel>(task); }

}  // namespace weir::cpu
