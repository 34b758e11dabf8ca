// The order of an experiment's runs, decided before the first of them: a pilot, then pairs of openings, A and
// B in an order drawn by the seed, half of the pairs in each order; with every two of them a null pair, in
// which one arm plays both parts. A pure function of the design.
#pragma once

#include <vector>

#include "lab/ab/experiment.h"

namespace weir::lab::ab {

/// What the exact tail of the sign test is summed for.
inline constexpr int most_pairs = 1000;
inline constexpr int most_runs = 1000;

/// design.pilot_openings openings, as many of each arm, design.pilot_runs runs of each. Reads the seed, the
/// number of prompts and those two.
std::vector<PlannedRun> make_pilot(const Design& design);

/// The pilot, then design.pairs real pairs and null_pairs() null ones, each of two openings with design.runs
/// runs, or of two runs of engines that stay open. A pair keeps to one prompt; prompts take turns, in an
/// order drawn from the seed. Which pairs have A first is a draw of half of them, so that the arms of
/// identical pairs are told by nothing else, and what is linear in time cancels in the mean.
std::vector<PlannedRun> make_schedule(const Design& design);

/// Null pairs that go with so many pairs: of A and of B by turns.
int null_pairs(int pairs);

}  // namespace weir::lab::ab
