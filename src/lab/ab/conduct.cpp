#include "lab/ab/conduct.h"

#include "base/clock.h"
#include "lab/ab/observations.h"
#include "lab/ab/schedule.h"

namespace weir::lab::ab {

bool conduct(Experiment& experiment, Runner& runner, const ConductOptions& options) {
  const Design& design = experiment.design;
  const auto schedule = make_schedule(design.pairs, design.seed, static_cast<int>(design.prompts.size()));
  write_observations(experiment, options.out);
  const uint64_t begin_ns = now_ns();
  for (const auto& run : schedule) {
    if (options.on_progress) options.on_progress(experiment.observations.size(), schedule.size());
    const double started_s = static_cast<double>(now_ns() - begin_ns) * 1e-9;
    auto observation = runner.observe(run);
    if (!observation) return false;
    observation->run = run;
    observation->started_s = started_s;
    experiment.observations.push_back(std::move(*observation));
    write_observations(experiment, options.out);
  }
  return true;
}

}  // namespace weir::lab::ab
