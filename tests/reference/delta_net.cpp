#include "reference/delta_net.h"

#include <algorithm>
#include <cmath>

#include "base/arithmetic.h"
#include "base/arithmetic_constants.h"

namespace weir::reference {

namespace {

size_t at(int64_t i) { return static_cast<size_t>(i); }

/// A float dot of docs/arithmetic.md.
float float_dot(const float* w, const float* x, int64_t n) {
  float y = 0;
  for (int64_t segment = 0; segment < n; segment += kFloatSegment) {
    float p[kFloatLanes] = {};
    const int64_t end = std::min(n, segment + kFloatSegment);
    for (int64_t i = segment; i < end; ++i) {
      float& sum = p[(i - segment) % kFloatLanes];
      sum = std::fma(w[i], x[i], sum);
    }
    for (int half = kFloatLanes / 2; half > 0; half /= 2)
      for (int j = 0; j < half; ++j) p[j] = p[j] + p[j + half];
    y = segment == 0 ? p[0] : y + p[0];
  }
  return y;
}

/// x / |x|
void normalise(float* x, int n, float eps) {
  const float inv = 1.0f / std::sqrt(float_dot(x, x, n) + eps);
  for (int i = 0; i < n; ++i) x[i] = x[i] * inv;
}

/// silu of the convolution over the window and u; the window moves on.
std::vector<float> convolve(const DeltaNetShape& shape, const std::vector<float>& taps,
                            std::vector<float>& window, const std::vector<float>& u) {
  const int channels = shape.channels(), before = shape.taps - 1;
  std::vector<float> c(at(channels));
  for (int i = 0; i < channels; ++i) {
    const float* w = taps.data() + int64_t{i} * shape.taps;
    float sum = 0;
    for (int t = 0; t < before; ++t) sum = std::fma(w[t], window[at(int64_t{t} * channels + i)], sum);
    c[at(i)] = silu_f32(std::fma(w[before], u[at(i)], sum));
  }
  window.erase(window.begin(), window.begin() + channels);
  window.insert(window.end(), u.begin(), u.end());
  return c;
}

/// One value head and one token: o [dim].
void step(int dim, float decay, float beta, const float* q, const float* k, const float* v, float* s,
          float* o) {
  for (int column = 0; column < dim; ++column) {
    float* state = s + column;  // of key i: state[i * dim]
    for (int i = 0; i < dim; ++i) state[i * dim] = state[i * dim] * decay;
    const float delta = (v[column] - dot_by_eights(k, state, dim, dim)) * beta;
    for (int i = 0; i < dim; ++i) state[i * dim] = std::fma(k[i], delta, state[i * dim]);
    o[column] = dot_by_eights(q, state, dim, dim);
  }
}

}  // namespace

DeltaNetState::DeltaNetState(const DeltaNetShape& shape)
    : window(at(int64_t{shape.taps - 1} * shape.channels())),
      s(at(int64_t{shape.value_heads} * shape.dim * shape.dim)) {}

float dot_by_eights(const float* x, const float* y, int64_t stride, int n) {
  float p[8] = {};
  for (int i = 0; i < n; ++i) p[i % 8] = std::fma(x[i], y[i * stride], p[i % 8]);
  for (int half = 4; half > 0; half /= 2)
    for (int j = 0; j < half; ++j) p[j] = p[j] + p[j + half];
  return p[0];
}

std::vector<float> delta_net(const DeltaNetShape& shape, const DeltaNetWeights& weights, DeltaNetState& state,
                             std::span<const DeltaNetRow> rows) {
  const int dim = shape.dim, keys = shape.key_heads * dim;
  const auto scale = static_cast<float>(1 / std::sqrt(static_cast<double>(dim)));
  std::vector<float> out;
  for (const DeltaNetRow& row : rows) {
    auto c = convolve(shape, weights.conv, state.window, row.u);
    for (int head = 0; head < 2 * shape.key_heads; ++head) normalise(c.data() + head * dim, dim, shape.eps);
    for (int i = 0; i < keys; ++i) c[at(i)] = c[at(i)] * scale;
    for (int head = 0; head < shape.value_heads; ++head) {
      const int64_t key = int64_t{shape.key_head(head)} * dim;
      const float decay =
          exp_f32(weights.a[at(head)] * softplus_f32(row.alpha[at(head)] + weights.dt_bias[at(head)]));
      std::vector<float> o(at(dim));
      step(dim, decay, sigmoid_f32(row.beta[at(head)]), c.data() + key, c.data() + keys + key,
           c.data() + 2 * keys + int64_t{head} * dim, state.s.data() + int64_t{head} * dim * dim, o.data());
      const float inv =
          1.0f / std::sqrt(float_dot(o.data(), o.data(), dim) / static_cast<float>(dim) + shape.norm_eps);
      for (int i = 0; i < dim; ++i)
        out.push_back(((o[at(i)] * inv) * weights.norm[at(i)]) *
                      silu_f32(row.z[at(int64_t{head} * dim + i)]));
    }
  }
  return out;
}

std::vector<double> delta_net_exact(const DeltaNetShape& shape, const DeltaNetWeights& weights,
                                    std::span<const DeltaNetRow> rows) {
  using Vector = std::vector<double>;
  const int dim = shape.dim, channels = shape.channels();
  const auto sigmoid = [](double x) { return 1 / (1 + std::exp(-x)); };
  std::vector<Vector> u, s(at(shape.value_heads), Vector(at(int64_t{dim} * dim)));
  Vector out;
  for (const DeltaNetRow& row : rows) {
    u.emplace_back(row.u.begin(), row.u.end());
    Vector c(at(channels));
    for (int i = 0; i < channels; ++i) {
      for (int t = 0; t < shape.taps; ++t) {
        const auto from = static_cast<int64_t>(u.size()) - shape.taps + t;
        if (from >= 0) c[at(i)] += double{weights.conv[at(int64_t{i} * shape.taps + t)]} * u[at(from)][at(i)];
      }
      c[at(i)] *= sigmoid(c[at(i)]);
    }
    for (int head = 0; head < 2 * shape.key_heads; ++head) {
      double sum = shape.eps;
      for (int i = 0; i < dim; ++i) sum += c[at(head * dim + i)] * c[at(head * dim + i)];
      for (int i = 0; i < dim; ++i) c[at(head * dim + i)] /= std::sqrt(sum);
    }
    for (int head = 0; head < shape.value_heads; ++head) {
      const double* q = c.data() + shape.key_head(head) * dim;
      const double* k = q + shape.key_heads * dim;
      const double* v = c.data() + (2 * shape.key_heads + head) * dim;
      const double x = double{row.alpha[at(head)]} + weights.dt_bias[at(head)];
      const double decay = std::exp(weights.a[at(head)] * std::log1p(std::exp(x)));
      Vector o(at(dim));
      for (int column = 0; column < dim; ++column) {
        double* state = s[at(head)].data() + column;
        double found = 0;
        for (int i = 0; i < dim; ++i) state[i * dim] *= decay, found += k[i] * state[i * dim];
        const double delta = sigmoid(row.beta[at(head)]) * (v[column] - found);
        for (int i = 0; i < dim; ++i) {
          state[i * dim] += k[i] * delta;
          o[at(column)] += q[i] / std::sqrt(static_cast<double>(dim)) * state[i * dim];
        }
      }
      double mean = shape.norm_eps;
      for (const double value : o) mean += value * value / dim;
      for (int i = 0; i < dim; ++i) {
        const double z = row.z[at(int64_t{head} * dim + i)];
        out.push_back(o[at(i)] / std::sqrt(mean) * weights.norm[at(i)] * z * sigmoid(z));
      }
    }
  }
  return out;
}

}  // namespace weir::reference
