// The launcher of the rotation and the KV store by itself: the scalar kernels' bits.
#include <random>

#include "cuda/on_device.h"
#include "device/cpu/kernels.h"
#include "device/cuda/kernels.h"

namespace weir::cuda {
namespace {

struct RopeCase {
  int head_dim, n_rot;
  RopeStyle style;
  bool norm;
};

class RopeAndStore : public testing::TestWithParam<RopeCase> {};

TEST_P(RopeAndStore, HasTheBitsOfTheScalarKernels) {
  const auto [n, n_rot, style, norm] = GetParam();
  constexpr int heads = 5, kv_heads = 2, positions = 9;
  const std::vector<int32_t> position = {8, 0, 3}, lane = {1, 0, 1};
  const int rows = 3;
  std::mt19937 random(11);
  std::normal_distribution<float> normal;
  const auto floats = [&](int count) {
    std::vector<float> x(static_cast<size_t>(count));
    for (float& value : x) value = normal(random);
    return x;
  };
  std::vector<float> q = floats(rows * heads * n), k = floats(rows * kv_heads * n);
  const std::vector<float> v = floats(rows * kv_heads * n), q_norm = floats(n), k_norm = floats(n);
  const std::vector<float> cos = floats(positions * n_rot / 2), sin = floats(positions * n_rot / 2);
  const int64_t row_stride = kv_heads * n, lane_stride = positions * row_stride;
  std::vector<uint16_t> k_cache(static_cast<size_t>(2 * lane_stride)), v_cache = k_cache;

  const OnDevice<float> on_q(q), on_k(k), on_v(v), on_q_norm(q_norm), on_k_norm(k_norm), on_cos(cos),
      on_sin(sin);
  const OnDevice<int32_t> on_position(position), on_lane(lane);
  const OnDevice<uint16_t> on_k_cache(k_cache), on_v_cache(v_cache);
  RopeStoreArgs args;
  args.q = on_q.data(), args.k = on_k.data(), args.v = on_v.data();
  if (norm) args.q_norm = on_q_norm.data(), args.k_norm = on_k_norm.data();
  args.eps = 1e-6f, args.heads = heads, args.kv_heads = kv_heads, args.head_dim = n;
  args.rope = {on_cos.data(), on_sin.data(), n_rot, style};
  args.rows.count = rows, args.rows.position = on_position.data(), args.rows.lane = on_lane.data();
  args.kv = {on_k_cache.data(), on_v_cache.data(), lane_stride, row_stride};
  Stream s;
  rope_and_store(s, args);

  const cpu::FloatKernels& scalar = cpu::scalar_float_kernels();
  for (int r = 0; r < rows; ++r) {
    const auto at = static_cast<size_t>(position[static_cast<size_t>(r)] * n_rot / 2);
    const auto turn = [&](float* x, const std::vector<float>& weight) {
      if (norm) scalar.rms_norm(x, weight.data(), x, n, args.eps);
      (style == RopeStyle::neox ? scalar.rope_neox : scalar.rope_normal)(x, &cos[at], &sin[at], n_rot);
    };
    for (int h = 0; h < heads; ++h) turn(&q[static_cast<size_t>((r * heads + h) * n)], q_norm);
    for (int h = 0; h < kv_heads; ++h) {
      float* const key = &k[static_cast<size_t>((r * kv_heads + h) * n)];
      turn(key, k_norm);
      const auto to = static_cast<size_t>(lane[static_cast<size_t>(r)] * lane_stride +
                                          position[static_cast<size_t>(r)] * row_stride + h * n);
      scalar.to_f16(key, &k_cache[to], n);
      scalar.to_f16(&v[static_cast<size_t>((r * kv_heads + h) * n)], &v_cache[to], n);
    }
  }
  expect_same_bits(on_q.host(), q);
  EXPECT_EQ(on_k_cache.host(), k_cache);
  EXPECT_EQ(on_v_cache.host(), v_cache);
}

INSTANTIATE_TEST_SUITE_P(Cases, RopeAndStore,
                         testing::Values(RopeCase{128, 128, RopeStyle::neox, true},
                                         RopeCase{64, 64, RopeStyle::normal, false},
                                         RopeCase{80, 40, RopeStyle::neox, true},
                                         RopeCase{256, 64, RopeStyle::normal, true},
                                         RopeCase{256, 256, RopeStyle::neox, false}));

}  // namespace
}  // namespace weir::cuda
