// See stats.h. Binomial tails are summed in double from exact term ratios: good to 1e-12 for the few hundred
// pairs that an experiment can have.
#include "base/stats.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "base/error.h"

namespace weir {
namespace {

std::vector<double> sorted(std::span<const double> values) {
  std::vector<double> copy(values.begin(), values.end());
  std::sort(copy.begin(), copy.end());
  return copy;
}

/// P(X <= k) for X ~ Binomial(n, 1/2); 0 for k < 0.
double binomial_tail(int n, int k) {
  WEIR_CHECK(n <= 1000, "n {}: 2^-n would underflow", n);
  double term = std::ldexp(1.0, -n), sum = 0;
  for (int i = 0; i <= k; ++i) {
    sum += term;
    term *= static_cast<double>(n - i) / (i + 1);
  }
  return sum;
}

}  // namespace

double mean(std::span<const double> values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

double median(std::span<const double> values) { return quantile(values, 0.5); }

double quantile(std::span<const double> values, double q) {
  WEIR_CHECK(q >= 0 && q <= 1, "q {}", q);
  if (values.empty()) return std::numeric_limits<double>::quiet_NaN();
  const std::vector<double> order = sorted(values);
  const double place = q * static_cast<double>(order.size() - 1);
  const auto below = static_cast<size_t>(place);
  const size_t above = std::min(below + 1, order.size() - 1);
  return order[below] + (place - static_cast<double>(below)) * (order[above] - order[below]);
}

double sign_test_p(int wins, int losses) {
  WEIR_CHECK(wins >= 0 && losses >= 0, "wins {} losses {}", wins, losses);
  return std::min(1.0, 2 * binomial_tail(wins + losses, std::min(wins, losses)));
}

std::optional<MedianInterval> median_interval(std::span<const double> values, double level) {
  const auto n = static_cast<int>(values.size());
  // [x_(k), x_(n-1-k)], ranks from 0, misses the median when at most k values lie on one side of it.
  WEIR_CHECK(level > 0 && level < 1, "level {}", level);
  int k = -1;
  while (1 - 2 * binomial_tail(n, k + 1) >= level) ++k;
  if (k < 0) return std::nullopt;
  const std::vector<double> order = sorted(values);
  return MedianInterval{order[static_cast<size_t>(k)], order[static_cast<size_t>(n - 1 - k)],
                        1 - 2 * binomial_tail(n, k)};
}

}  // namespace weir
