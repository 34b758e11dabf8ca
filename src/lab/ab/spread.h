// How far apart the openings of one arm lie, and how far the runs of one opening: the levels of variance of
// Kalibera and Jones 2013 ("Rigorous benchmarking in reasonable time", ISMM), and the numbers of openings and
// runs that follow from them and from what each costs. Pure.
#pragma once

#include <optional>
#include <string>

#include "lab/ab/experiment.h"

namespace weir::lab::ab {

/// Standard deviations of log values, between things that should be equal: those of one arm and prompt.
struct Spread {
  std::optional<double> run;      ///< of the runs of one opening; nothing where each had one run
  std::optional<double> opening;  ///< of the openings beyond that; nothing where each arm had one opening
};
/// Of the runs that count, or of the pilot's. Nested analysis of variance; the openings' part is 0 where the
/// runs explain all of it. Where each opening had one run, the openings' part holds the runs' as well.
Spread spread_of(const Experiment& experiment, bool of_pilot = false);

/// Mean seconds of opening an arm and of one run, preparing it included.
struct Costs {
  double opening_s = 0, run_s = 0;
};
/// What an opening's first run took longer than the others, over the pilot; where each had one run, it is all
/// the opening's.
Costs costs_of_pilot(const Experiment& experiment);

/// Half the interval's width that the numbers aim at, as a log ratio: a difference of 2 % is then resolved in
/// half of the experiments, one of 4 % nearly always.
inline constexpr double aimed_half_width = 0.02;
inline constexpr int most_chosen_pairs = 40, least_chosen_pairs = 12, most_chosen_runs = 8;

struct Asked {
  std::optional<int> pairs = std::nullopt, runs = std::nullopt;  ///< these stand, whatever the pilot finds
  bool open_once = false;
  double limit_s = 3600;  ///< of the whole experiment, as far as the numbers are free
};
struct Numbers {
  int pairs = 0, runs = 1;
  bool open_once = false;
  double expected_s = 0;  ///< from here on
};
/// Runs in an opening: as many as make their part of the variance worth what they cost beside an opening,
/// sqrt(opening_s / run_s * var_run / var_opening), fewer where fewer reach the aim. Then pairs, until the
/// interval is as narrow as aimed at. Then both down until the limit holds, to 6 pairs of one run; where that
/// does not fit and the arms can stay open together, each is opened once.
Numbers choose_numbers(const Spread& spread, const Costs& costs, const Asked& asked, bool can_stay_open);

}  // namespace weir::lab::ab
