// The order of an experiment's runs, decided before the first of them: warm-ups, then blocks of four runs,
// ABBA or BAAB by the toss of a coin, every third of them a null block in which A plays both parts. A pure
// function of its arguments.
#pragma once

#include <cstdint>
#include <vector>

#include "lab/ab/experiment.h"

namespace weir::lab::ab {

inline constexpr int warm_ups_per_arm = 2;
inline constexpr int pairs_per_block = 2;
/// What the exact tail of the sign test is summed for.
inline constexpr int most_pairs = 1000;

/// `pairs` (even, at least 2) real pairs and half as many null pairs, rounded up to whole blocks. A block
/// keeps to one prompt; prompts take turns, in an order drawn from the seed. Inside a block, runs 1-2 and 3-4
/// are pairs: each order comes once, so what is linear in time cancels.
std::vector<PlannedRun> make_schedule(int pairs, uint64_t seed, int prompts);

/// Null pairs that go with so many pairs.
int null_pairs(int pairs);

}  // namespace weir::lab::ab
