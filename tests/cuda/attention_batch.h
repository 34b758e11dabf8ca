// A batch for attention's launchers by themselves: its cache, its results by the device, by the scalar
// kernels and in double.
#pragma once

#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "base/half.h"
#include "cuda/on_device.h"
#include "device/cpu/kernels.h"
#include "device/cuda/kernels.h"

namespace weir::cuda::attention_test {

struct Shape {
  int heads, kv_heads, head_dim;
  int window = 0;
  bool sinks = false;
};

struct Row {
  int lane, position;
};

/// A batch, its cache of `positions` positions a lane, and what calls need beside them.
struct Batch {
  Shape shape;
  std::vector<Row> rows;
  int positions, lanes = 3;
  std::vector<float> q, sinks;
  std::vector<uint16_t> k, v;

  Batch(const Shape& with, std::vector<Row> of, unsigned seed) : shape(with), rows(std::move(of)) {
    positions = 0;
    for (const Row& r : rows)
      positions = std::max(positions, r.position + 1), lanes = std::max(lanes, r.lane + 1);
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    const auto fill = [&](std::vector<float>& x, size_t n, float by) {
      x.resize(n);
      for (float& value : x) value = by * normal(random);
    };
    const auto fill16 = [&](std::vector<uint16_t>& x, size_t n) {
      x.resize(n);
      for (uint16_t& value : x) value = f32_to_f16(normal(random));
    };
    fill(q, rows.size() * row_floats(), 3);
    fill(sinks, static_cast<size_t>(shape.heads), 2);
    fill16(k, static_cast<size_t>(lanes * lane_stride()));
    fill16(v, static_cast<size_t>(lanes * lane_stride()));
  }
  size_t row_floats() const { return static_cast<size_t>(shape.heads * shape.head_dim); }
  int64_t row_stride() const { return static_cast<int64_t>(shape.kv_heads) * shape.head_dim; }
  int64_t lane_stride() const { return positions * row_stride(); }
  float scale() const { return 1.0f / std::sqrt(static_cast<float>(shape.head_dim)); }
  int first(const Row& r) const { return shape.window > 0 ? std::max(0, r.position - shape.window + 1) : 0; }

  struct How {
    Arithmetic arithmetic = Arithmetic::portable;
    int multiprocessors = 132;  ///< fewer: more work a block
    size_t partial_bytes = 0;   ///< 0: as attend_partial_bytes says
    uint64_t kv_positions = 0;
  };
  std::vector<float> attend(const How& how) const {
    std::vector<int32_t> position, lane;
    for (const Row& r : rows) position.push_back(r.position), lane.push_back(r.lane);
    const OnDevice<float> on_q(q), on_sinks(sinks), out(std::vector<float>(q.size(), NAN));
    const OnDevice<uint16_t> on_k(k), on_v(v);
    const OnDevice<int32_t> on_position(position), on_lane(lane);
    const size_t bytes = how.partial_bytes ? how.partial_bytes
                                           : attend_partial_bytes(static_cast<int>(rows.size()), shape.heads,
                                                                  shape.head_dim, positions);
    const OnDevice<uint8_t> partials(std::vector<uint8_t>(bytes, 0xff));
    AttendArgs args;
    args.q = on_q.data(), args.out = out.data();
    args.heads = shape.heads, args.kv_heads = shape.kv_heads, args.head_dim = shape.head_dim;
    args.scale = scale(), args.window = shape.window;
    args.sinks = shape.sinks ? on_sinks.data() : nullptr;
    args.rows.count = static_cast<int>(rows.size()), args.rows.position = on_position.data();
    args.rows.lane = on_lane.data(), args.rows.longest = positions;
    args.rows.kv_positions = how.kv_positions;
    args.kv = {on_k.data(), on_v.data(), lane_stride(), row_stride()};
    Stream s;
    s.multiprocessors = how.multiprocessors;
    cuda::attend(s, args, how.arithmetic, partials.data(), bytes);
    return out.host();
  }

  Batch alone(size_t row) const {
    Batch b = *this;
    b.rows = {rows[row]};
    b.q.assign(q.begin() + static_cast<ptrdiff_t>(row * row_floats()),
               q.begin() + static_cast<ptrdiff_t>((row + 1) * row_floats()));
    return b;
  }

  std::vector<float> scalar() const {
    std::vector<float> out(q.size());
    const int ratio = shape.heads / shape.kv_heads;
    std::vector<float> scratch(static_cast<size_t>(cpu::attend_scratch_floats(ratio, shape.head_dim)));
    for (size_t r = 0; r < rows.size(); ++r)
      for (int kv = 0; kv < shape.kv_heads; ++kv) {
        const size_t at = r * row_floats() + static_cast<size_t>(kv * ratio * shape.head_dim);
        const int64_t base = rows[r].lane * lane_stride() + kv * shape.head_dim;
        cpu::AttendTask t;
        t.q = q.data() + at, t.out = out.data() + at;
        t.k = k.data() + base, t.v = v.data() + base, t.stride = row_stride();
        t.first = first(rows[r]), t.last = rows[r].position;
        t.heads = ratio, t.head_dim = shape.head_dim, t.scale = scale();
        t.sinks = shape.sinks ? sinks.data() + kv * ratio : nullptr;
        t.scratch = scratch.data();
        cpu::scalar_float_kernels().attend_heads(t);
      }
    return out;
  }

  std::vector<double> exact() const {
    std::vector<double> out(q.size());
    const int n = shape.head_dim, ratio = shape.heads / shape.kv_heads;
    for (size_t r = 0; r < rows.size(); ++r)
      for (int h = 0; h < shape.heads; ++h) {
        const float* query = q.data() + r * row_floats() + h * n;
        double* y = out.data() + r * row_floats() + h * n;
        double sum = shape.sinks ? std::exp(static_cast<double>(sinks[static_cast<size_t>(h)])) : 0;
        for (int j = first(rows[r]); j <= rows[r].position; ++j) {
          const int64_t at = rows[r].lane * lane_stride() + j * row_stride() + h / ratio * n;
          double s = 0;
          for (int d = 0; d < n; ++d)
            s += static_cast<double>(query[d]) * f16_to_f32(k[static_cast<size_t>(at + d)]);
          const double p = std::exp(s * scale());
          sum += p;
          for (int d = 0; d < n; ++d) y[d] += p * f16_to_f32(v[static_cast<size_t>(at + d)]);
        }
        for (int d = 0; d < n; ++d) y[d] /= sum;
      }
    return out;
  }
};

}  // namespace weir::cuda::attention_test
