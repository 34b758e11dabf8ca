#include "lab/ab/statistics.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <numbers>
#include <vector>

#include "base/error.h"
#include "base/stats.h"

namespace weir::lab::ab {

namespace {

// Log ratios below this are the rounding of equal values.
constexpr double nothing = 1e-12;

/// p of estimate / standard_error, also where there is no error.
double p_of(double estimate, double standard_error, int df) {
  if (standard_error > nothing) return student_t_p(estimate / standard_error, df);
  return std::fabs(estimate) < nothing ? 1 : 0;
}

double middle(std::span<const double> values) { return static_cast<double>(values.size() - 1) / 2; }

/// Sum of squared distances of the places 0..n-1 from their middle.
double spread_of_places(size_t count) {
  const auto n = static_cast<double>(count);
  return n * (n * n - 1) / 12;
}

}  // namespace

double sum_of_squares(std::span<const double> values) {
  const double centre = mean(values);
  double sum = 0;
  for (const double v : values) sum += (v - centre) * (v - centre);
  return sum;
}

double student_t_p(double t, int df) {
  WEIR_CHECK(df >= 1, "df {}", df);
  if (std::isinf(t)) return 0;
  const double theta = std::atan(std::fabs(t) / std::sqrt(static_cast<double>(df)));
  const double c = std::cos(theta), s = std::sin(theta), c2 = c * c;
  const bool odd = df % 2 == 1;
  double term = odd ? c : 1, sum = 0;
  for (int k = odd ? 3 : 2; k <= df; k += 2) {
    sum += term;
    term *= c2 * (k - 1) / k;
  }
  const double inside = odd ? 2 / std::numbers::pi * (theta + s * sum) : s * sum;
  return std::clamp(1 - inside, 0.0, 1.0);
}

double student_t_quantile(double level, int df) {
  WEIR_CHECK(level > 0 && level < 1, "level {}", level);
  double low = 0, high = 1;
  while (student_t_p(high, df) > 1 - level) high *= 2;
  for (int i = 0; i < 60; ++i) {
    const double middle = (low + high) / 2;
    (student_t_p(middle, df) > 1 - level ? low : high) = middle;
  }
  return (low + high) / 2;
}

std::optional<MeanInterval> mean_interval(std::span<const double> values, double level) {
  if (values.size() < 2) return std::nullopt;
  const auto n = static_cast<double>(values.size());
  const int df = static_cast<int>(values.size()) - 1;
  const double half = student_t_quantile(level, df) * std::sqrt(sum_of_squares(values) / df / n);
  return MeanInterval{mean(values) - half, mean(values) + half};
}

double sign_flip_p(std::span<const double> values) {
  const auto n = static_cast<int>(values.size());
  if (n < 1) return 1;
  if (n > most_flipped) return mean_is_zero_p(values);
  double sum = 0, all = 0;
  for (const double v : values) sum += v, all += std::fabs(v);
  const double observed = std::fabs(sum) - nothing * (1 + all);  // what rounding makes of equal sums
  // The last value keeps its sign: each assignment and its opposite lie equally far from zero.
  const uint32_t assignments = 1u << (n - 1);
  std::vector<double> signed_values(values.begin(), values.end());
  uint32_t as_far = 0;
  for (uint32_t i = 0; i < assignments; ++i) {
    if (std::fabs(sum) >= observed) ++as_far;
    if (i + 1 == assignments) break;
    double& flipped =
        signed_values[static_cast<size_t>(std::countr_zero(i + 1))];  // Gray code: one at a time
    sum -= 2 * flipped;
    flipped = -flipped;
  }
  return static_cast<double>(as_far) / assignments;
}

double mean_is_zero_p(std::span<const double> values) {
  if (values.size() < 2) return 1;
  const auto n = static_cast<double>(values.size());
  const int df = static_cast<int>(values.size()) - 1;
  return p_of(mean(values), std::sqrt(sum_of_squares(values) / df / n), df);
}

double means_are_equal_p(std::span<const double> x, std::span<const double> y) {
  if (x.size() < 2 || y.size() < 2) return 1;
  const int df = static_cast<int>(x.size() + y.size()) - 2;
  const double variance = (sum_of_squares(x) + sum_of_squares(y)) / df;
  const double weight = 1 / static_cast<double>(x.size()) + 1 / static_cast<double>(y.size());
  return p_of(mean(x) - mean(y), std::sqrt(variance * weight), df);
}

double slope(std::span<const double> values) {
  if (values.size() < 2) return 0;
  double sum = 0;
  for (size_t i = 0; i < values.size(); ++i) sum += values[i] * (static_cast<double>(i) - middle(values));
  return sum / spread_of_places(values.size());
}

double no_trend_p(std::span<const double> values) {
  if (values.size() < 3) return 1;
  const double b = slope(values), centre = mean(values);
  double residual = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    const double r = values[i] - centre - b * (static_cast<double>(i) - middle(values));
    residual += r * r;
  }
  const int df = static_cast<int>(values.size()) - 2;
  return p_of(b, std::sqrt(residual / df / spread_of_places(values.size())), df);
}

}  // namespace weir::lab::ab
