// Synthetic arms: runs whose times are known but for noise, under the disturbances that mislead A/B tests.
// For the self-test and the tests of the judge. Pure in the seed.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "lab/ab/experiment.h"

namespace weir::lab::ab {

/// Log times; a run's place is counted from the first one that is not a warm-up.
struct Disturbance {
  const char* name = "none";
  double drift = 0;        ///< added from each run to the next
  double warm_up = 0;      ///< added to the first run, falling by 1/e in six runs
  double second = 0;       ///< taken off the runs of each pair's second opening
  double after_other = 0;  ///< added to a run that follows one of the other arm
  double carry = 0;        ///< share of a run's own noise that the next one inherits
  double opening = 0;      ///< standard deviation of what each opening adds to all of its runs
};

struct SyntheticArms {
  double effect = 0;     ///< log speed of B over A
  double noise = 0.005;  ///< standard deviation of a run's log time
  Disturbance disturbance;
  uint64_t seed = 1;  ///< of the noise
};

/// Six pairs and more are an experiment; the order's seed, one prompt.
Design synthetic_design(int pairs, uint64_t schedule_seed, int runs = 1);

/// Log time of each run of `order`, which is any order of runs.
std::vector<double> synthetic_log_times(std::span<const PlannedRun> order, const SyntheticArms& arms);

/// A whole experiment: the schedule, or another order, of synthetic_design() or one like it; three roles
/// (attention, expert_wait and head, which no effect touches), equal tokens, equal starts, full coverage.
Experiment synthetic_experiment(const Design& design, const SyntheticArms& arms);
Experiment synthetic_experiment(std::span<const PlannedRun> order, const Design& design,
                                const SyntheticArms& arms);
/// Of synthetic_design().
Experiment synthetic_experiment(int pairs, uint64_t schedule_seed, const SyntheticArms& arms);

/// The orders to avoid: all of A and then all of B, or A and B by turns. Each run is an opening. No null
/// pairs.
std::vector<PlannedRun> blocked_order(int pairs);
std::vector<PlannedRun> alternating_order(int pairs);

}  // namespace weir::lab::ab
