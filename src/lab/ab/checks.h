// The conditions of a verdict, one function each; judge.h puts them together. Pure.
#pragma once

#include <optional>
#include <span>

#include "lab/ab/judge.h"

namespace weir::lab::ab {

// Of the design: was it followed?
Check enough_pairs(std::span<const Pair> pairs);
Check number_of_pairs_kept(const Experiment& e, std::span<const Pair> pairs, std::optional<int> requested);
Check order_is_the_seeds(const Experiment& e);
/// Skipped where each arm was opened once: says then what the verdict does not cover.
Check openings_are_covered(const Experiment& e);

// Of the runs: are they comparable?
Check tokens_are_equal(const Experiment& e);
Check starts_are_equal(const Experiment& e);
Check wall_is_covered(const Experiment& e);
Check little_was_stolen(const Experiment& e);

// Of the differences: do they mean what they seem to?
Check null_pairs_are_equal(std::span<const Pair> nulls);
Check order_keeps_the_verdict(std::span<const Pair> pairs);
Check differences_do_not_drift(std::span<const Pair> pairs);
Check control_did_not_move(const Experiment& e, std::span<const Pair> pairs);

}  // namespace weir::lab::ab
