// Rotation and the store into the cache: the CPU's bits in q and in every half of the cache.
#include <fmt/core.h>

#include "base/rope_table.h"
#include "cuda/attention_cases.h"

namespace weir {
namespace {

struct RopeCase {
  int heads = 4, kv_heads = 2, head_dim = 64, n_rot = 64;
  RopeStyle style = RopeStyle::neox;
  bool norms = true;
};

class CudaRope : public CudaTest {
 protected:
  void check(const RopeCase& c, const std::vector<Place>& places) {
    ScratchNeeds needs;
    needs.rows = static_cast<int>(places.size()), needs.heads = c.heads, needs.head_dim = c.head_dim;
    needs.longest = 64;
    reserve(needs);
    const int positions = 64, lanes = 3;
    const auto count = places.size(), dim = static_cast<size_t>(c.head_dim);
    Floats q = random_floats(count * static_cast<size_t>(c.heads) * dim, 1);
    const Floats k = random_floats(count * static_cast<size_t>(c.kv_heads) * dim, 2);
    Floats v = random_floats(count * static_cast<size_t>(c.kv_heads) * dim, 3);
    v[0] = 1e6f, v[1] = 6e-8f, v[2] = kNaN, v[3] = -0.0f, v[4] = 65519.99f, v[5] = 2e-8f;
    Floats q_norm = random_floats(dim, 4), k_norm = random_floats(dim, 5);
    Floats cosines(static_cast<size_t>(positions * c.n_rot / 2)), sines(cosines.size());
    fill_rope_table({plain_rope_frequencies(c.n_rot, 10'000)}, 0, positions, cosines.data(), sines.data());
    const int64_t row_stride = int64_t{c.kv_heads} * c.head_dim, lane_stride = positions * row_stride;
    const std::vector<uint16_t> empty(static_cast<size_t>(lanes * lane_stride), 0x1234);
    expect_cpu_bits(
        fmt::format("{} rows, {} / {} heads of {}, {} rotated{}{}", count, c.heads, c.kv_heads, c.head_dim,
                    c.n_rot, c.style == RopeStyle::neox ? "" : ", normal", c.norms ? ", norms" : ""),
        [&](Device& device) {
          Bench bench(device);
          RopeStoreArgs args;
          args.q = bench.put(q), args.k = bench.put(k), args.v = bench.put(v);
          if (c.norms) args.q_norm = bench.put(q_norm), args.k_norm = bench.put(k_norm);
          args.eps = 1e-6f, args.heads = c.heads, args.kv_heads = c.kv_heads, args.head_dim = c.head_dim;
          args.rope = {bench.put(cosines), bench.put(sines), c.n_rot, c.style};
          args.rows = put_rows(bench, places);
          args.kv = {bench.put(empty), bench.put(empty), lane_stride, row_stride};
          device.rope_and_store(args);
          Floats result = bench.get(args.q, q.size());
          for (const uint16_t* cache : {args.kv.k, args.kv.v})
            for (uint16_t h : bench.get(cache, empty.size()))
              result.push_back((h & 0x7fff) > 0x7c00 ? kNaN : static_cast<float>(h));
          return result;
        });
  }
};

TEST_F(CudaRope, HasTheCpusBits) {
  std::vector<Place> places = {{0, 0}, {0, 1}, {2, 63}, {1, 5}, {1, 6}};
  for (int head_dim : {64, 128, 256})
    for (RopeStyle style : {RopeStyle::neox, RopeStyle::normal})
      for (bool norms : {true, false})
        for (int n_rot : {head_dim, head_dim / 2, 16}) check({4, 2, head_dim, n_rot, style, norms}, places);
  check({8, 1, 64, 64, RopeStyle::neox, true}, places);
  check({3, 3, 128, 128, RopeStyle::neox, true}, places);
  check({4, 2, 96, 96, RopeStyle::neox, true}, places);
  check({4, 2, 80, 32, RopeStyle::normal, true}, places);
  check({4, 2, 16, 16, RopeStyle::neox, true}, places);
}

TEST_F(CudaRope, HasTheCpusBitsAtEveryNumberOfRows) {
  for (int count : {1, 2, 7, 16, 17, 40}) {
    std::vector<Place> places;
    for (int i = 0; i < count; ++i) places.push_back({i % 3, i / 3 + 11});
    check({4, 2, 128, 128, RopeStyle::neox, true}, places);
    check({4, 2, 64, 32, RopeStyle::normal, false}, places);
  }
}

}  // namespace
}  // namespace weir
