// Order statistics and the exact sign test, for figures that make no assumption about a distribution. Pure
// functions; knows nothing of what is measured.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

namespace weir {

/// part / whole, 0 where whole is 0.
inline double ratio(uint64_t part, uint64_t whole) {
  return whole ? static_cast<double>(part) / static_cast<double>(whole) : 0.0;
}

/// Not a number where values are empty. None of these changes its input.
double mean(std::span<const double> values);
double median(std::span<const double> values);
/// Linear interpolation between order statistics at (n - 1) * q, q in [0, 1] (Hyndman and Fan 1996, type 7).
double quantile(std::span<const double> values, double q);

/// Two-sided exact p of the sign test: the chance under fair coins of a split at least as uneven. Ties are
/// left out by the caller. 1 where there are none.
double sign_test_p(int wins, int losses);

/// The exact, distribution-free interval for the median: the narrowest pair of order statistics, symmetric in
/// rank, that covers it with at least `level`.
struct MedianInterval {
  double low, high;
  double coverage;  ///< achieved, at least `level`
};
/// Nothing where so few values cannot reach `level` (under 6 for 0.95).
std::optional<MedianInterval> median_interval(std::span<const double> values, double level = 0.95);

}  // namespace weir
