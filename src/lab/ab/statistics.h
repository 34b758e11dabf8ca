// The tests that decide whether an experiment may speak: is a mean zero, do two groups differ, is there a
// trend. Student's t in all three: unlike rank tests they can reach 1 % with four to six values, and they err
// towards silence where noise has heavy tails (weir ab --self-test). The headline itself rests on the sign
// test of base/stats.h, which assumes nothing. Pure functions.
#pragma once

#include <span>

namespace weir::lab::ab {

/// Two-sided p of Student's t with `df` (at least 1) degrees of freedom: the finite sums of Abramowitz and
/// Stegun 26.7.3 and 26.7.4. Absolute error about 1e-15.
double student_t_p(double t, int df);

// Each gives a two-sided p, and 1 where there are too few values to say anything. Without any spread, p is 0
// where there is a difference and 1 where there is none.

/// The values' mean is zero. From 2 values.
double mean_is_zero_p(std::span<const double> values);
/// Both groups have one mean (pooled variance). From 2 values each.
double means_are_equal_p(std::span<const double> x, std::span<const double> y);
/// The values do not grow or shrink with their place (least squares slope). From 3 values.
double no_trend_p(std::span<const double> values);

/// Least squares slope per place.
double slope(std::span<const double> values);

}  // namespace weir::lab::ab
