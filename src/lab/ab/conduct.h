// Carries out a schedule: one run after the other, each stored before the next begins. Knows neither engines
// nor commands; a Runner does.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "lab/ab/experiment.h"

namespace weir::lab::ab {

class Runner {
 public:
  virtual ~Runner() = default;
  /// Prepares the start that the cache policy asks for, runs the arm once and measures it. Fills all but
  /// `run` and `started_s`. Nothing where it was interrupted. Throws Error that names the arm.
  virtual std::optional<Observation> observe(const PlannedRun& run) = 0;
};

struct ConductOptions {
  std::string out;  ///< observations file; written before the first run, so that a bad path shows at once
  std::function<void(size_t done, size_t total)> on_progress = nullptr;
};

/// Appends the schedule's observations to the experiment. False where it was interrupted: what is complete
/// lies in the file.
bool conduct(Experiment& experiment, Runner& runner, const ConductOptions& options);

}  // namespace weir::lab::ab
