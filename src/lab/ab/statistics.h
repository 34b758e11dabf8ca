// The tests that decide whether an experiment may speak: is a mean zero, do two groups differ, is there a
// trend. Student's t in all three: unlike rank tests they can reach 1 % with four to six values, and they err
// towards silence where noise has heavy tails (weir ab --self-test). The headline rests on two of them at
// once: the t interval of the mean, and the sign-flip test, which assumes of the noise only that it is as
// likely up as down. Pure functions.
#pragma once

#include <optional>
#include <span>

namespace weir::lab::ab {

/// Two-sided p of Student's t with `df` (at least 1) degrees of freedom: the finite sums of Abramowitz and
/// Stegun 26.7.3 and 26.7.4. Absolute error about 1e-15.
double student_t_p(double t, int df);
/// The t whose two-sided p is 1 - level, 0 < level < 1: half the width of an interval in standard errors.
double student_t_quantile(double level, int df);

struct MeanInterval {
  double low, high;
};
/// Student's t interval of the mean. Nothing under 2 values.
std::optional<MeanInterval> mean_interval(std::span<const double> values, double level);

// Each gives a two-sided p, and 1 where there are too few values to say anything. Without any spread, p is 0
// where there is a difference and 1 where there is none.

/// The values' mean is zero. From 2 values.
double mean_is_zero_p(std::span<const double> values);
/// Both groups have one mean (pooled variance). From 2 values each.
double means_are_equal_p(std::span<const double> x, std::span<const double> y);
/// Each value could as well have had the other sign: the share of all assignments of signs whose mean lies as
/// far from zero (Fisher 1935). Exact up to most_flipped values, Student's t beyond. From 1 value.
double sign_flip_p(std::span<const double> values);
inline constexpr int most_flipped = 20;
/// The values do not grow or shrink with their place (least squares slope). From 3 values.
double no_trend_p(std::span<const double> values);

/// Least squares slope per place.
double slope(std::span<const double> values);

/// Of the values about their mean.
double sum_of_squares(std::span<const double> values);

}  // namespace weir::lab::ab
