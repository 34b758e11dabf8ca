// Pairs of openings as differences: the log ratio of each, and what the whole of them says. Pure.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "lab/ab/experiment.h"

namespace weir::lab::ab {

/// The runs of two openings, in the order they were made, whichever opening came first. As many of each, at
/// least one.
struct Pair {
  std::vector<const Observation*> a, b;
  Side first = Side::a;
  /// Of how good B is to how good A is: above 0 where B is better. The openings' values are the geometric
  /// means of their runs.
  double log_ratio = 0;
};

/// The complete pairs of a kind, in the order they were run. Pairs of which a run is missing are left out.
/// The pointers are into `experiment`.
std::vector<Pair> complete_pairs(const Experiment& experiment, RunKind kind);
std::vector<double> log_ratios(std::span<const Pair> pairs);

inline constexpr int fewest_pairs = 6;
inline constexpr double verdict_level = 0.95;

/// The headline. What repeats is the pair of openings: its log ratio holds what differs from one opening to
/// the next as well as from run to run (Kalibera and Jones 2013), whatever the number of runs in each.
struct Estimate {
  double log_ratio = 0;                ///< mean of the pairs'
  double low = 0, high = 0;            ///< Student's t interval of verdict_level
  int wins = 0, losses = 0, ties = 0;  ///< of B
  double p = 1;                        ///< sign-flip test
  double smallest =
      0;  ///< log ratio that an interval of the same width would have left out, whichever its sign
  /// Both must say so: the interval leans on the normal distribution, the sign-flip test does not.
  bool resolved() const { return (low > 0 || high < 0) && p < 1 - verdict_level; }
  /// +1: B better, 0: nothing resolved, -1: A better.
  int direction() const { return !resolved() ? 0 : low > 0 ? 1 : -1; }
};
/// Nothing where there are too few pairs: under 6 the sign-flip test cannot reach 5 %.
std::optional<Estimate> estimate(std::span<const double> log_ratios);

}  // namespace weir::lab::ab
