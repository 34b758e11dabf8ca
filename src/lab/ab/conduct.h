// Carries out an experiment: the pilot, the numbers that follow from it, then one run after the other, each
// stored before the next begins. Knows neither engines nor commands; a Runner does.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "lab/ab/experiment.h"
#include "lab/ab/spread.h"

namespace weir::lab::ab {

class Runner {
 public:
  virtual ~Runner() = default;
  /// Opens the arm anew where run.opening is another than the arm's last, prepares the start that the cache
  /// policy asks for, runs the arm once and measures it. Fills all but `run` and the times of the clock.
  /// Nothing where it was interrupted. Throws Error that names the arm.
  virtual std::optional<Observation> observe(const PlannedRun& run) = 0;
  /// Whether both arms can be open at the same time, so that design.open_once is possible.
  virtual bool can_stay_open() const { return false; }
};

struct ConductOptions {
  std::string out;  ///< observations file; written before the first run, so that a bad path shows at once
  Asked asked = {};
  /// `stage`: "pilot" or "comparing".
  std::function<void(const char* stage, size_t done, size_t total)> on_progress = nullptr;
  std::function<void(const Numbers&)> on_numbers = nullptr;  ///< the pilot is over
};

/// Fills design.pairs, runs, open_once and those of the pilot, and appends the schedule's observations to the
/// experiment. Where the numbers were asked for, the pilot is one opening of each arm; else four of each, or
/// one of each where the limit leaves no time for more. False where it was interrupted: what is complete lies
/// in the file.
bool conduct(Experiment& experiment, Runner& runner, const ConductOptions& options);

}  // namespace weir::lab::ab
