// Pairs of runs as differences: the log ratio of each, and what the whole of them says. Pure.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "lab/ab/experiment.h"

namespace weir::lab::ab {

/// Two runs of one pair, whichever came first.
struct Pair {
  const Observation* a = nullptr;
  const Observation* b = nullptr;
  Side first = Side::a;
  double log_ratio = 0;  ///< of how good B is to how good A is: above 0 where B is better
};

/// The complete pairs of a kind, in the order they were run. Runs that have no partner are left out. The
/// pointers are into `experiment`.
std::vector<Pair> complete_pairs(const Experiment& experiment, RunKind kind);
std::vector<double> log_ratios(std::span<const Pair> pairs);

/// The headline: the median log ratio and its exact interval.
struct Estimate {
  double log_ratio = 0, low = 0, high = 0;
  double coverage = 0;                 ///< achieved by the interval
  int wins = 0, losses = 0, ties = 0;  ///< of B
  double p = 1;                        ///< sign test
  double smallest = 0;  ///< log ratio that the same spread would have resolved, whichever its sign
  bool resolved() const { return low > 0 || high < 0; }
};
/// Nothing where there are too few pairs for an interval (under 6).
std::optional<Estimate> estimate(std::span<const double> log_ratios);

}  // namespace weir::lab::ab
