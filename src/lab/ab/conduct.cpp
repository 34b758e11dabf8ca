#include "lab/ab/conduct.h"

#include <fmt/format.h>

#include <span>

#include "base/clock.h"
#include "base/log.h"
#include "lab/ab/observations.h"
#include "lab/ab/pairs.h"
#include "lab/ab/schedule.h"
#include "lab/machine.h"

namespace weir::lab::ab {

namespace {

constexpr int long_pilot = 8, short_pilot = 2;

bool numbers_are_given(const Design& design, const Asked& asked) {
  return asked.pairs && (asked.runs || asked.open_once || design.commands);
}

class Conductor {
 public:
  Conductor(Experiment& experiment, Runner& runner, const ConductOptions& options)
      : experiment_(experiment), runner_(runner), options_(options), begin_ns_(now_ns()) {}

  /// Those of `schedule` that are not made yet, up to `end`.
  bool make(const char* stage, const std::vector<PlannedRun>& schedule, size_t end) {
    auto& made = experiment_.observations;
    while (made.size() < end) {
      if (options_.on_progress) options_.on_progress(stage, made.size(), schedule.size());
      const PlannedRun& run = schedule[made.size()];
      const double started_s = seconds();
      const auto stolen = stolen_ns();
      auto observation = runner_.observe(run);
      if (!observation) return false;
      observation->run = run;
      observation->started_s = started_s;
      observation->took_s = seconds() - started_s;
      const auto stolen_since = stolen_ns();
      observation->stolen_ns.reset();
      if (stolen && stolen_since && *stolen_since >= *stolen)
        observation->stolen_ns = *stolen_since - *stolen;
      made.push_back(std::move(*observation));
      write_observations(experiment_, options_.out);
    }
    return true;
  }

  /// Ends the pilot early where even the smallest experiment would leave no time for it.
  bool pilot() {
    Design& d = experiment_.design;
    const bool given = numbers_are_given(d, options_.asked);
    d.pilot_openings = given || options_.asked.open_once ? short_pilot : long_pilot;
    d.pilot_runs = given || d.commands ? 1 : 2;
    d.pairs = 0;
    write_observations(experiment_, options_.out);  // a bad path shows before the first run
    const auto schedule = make_pilot(d);
    const auto short_end = static_cast<size_t>(short_pilot * d.pilot_runs);
    if (!make("pilot", schedule, short_end)) return false;
    if (d.pilot_openings == short_pilot) return true;
    const Costs c = costs_of_pilot(experiment_);
    const double rest = (long_pilot - short_pilot) * (c.opening_s + d.pilot_runs * c.run_s);
    const double smallest = 2 * (fewest_pairs + null_pairs(fewest_pairs)) * (c.opening_s + c.run_s);
    if (rest + smallest > options_.asked.limit_s) {
      d.pilot_openings = short_pilot;
      return true;
    }
    return make("pilot", schedule, schedule.size());
  }

  void fix_numbers() {
    Design& d = experiment_.design;
    const Costs costs = costs_of_pilot(experiment_);
    const Spread spread = spread_of(experiment_, /*of_pilot=*/true);
    Asked asked = options_.asked;
    if (d.commands) asked.runs = 1;
    const Numbers n = choose_numbers(spread, costs, asked, runner_.can_stay_open());
    d.pairs = n.pairs, d.runs = n.runs, d.open_once = n.open_once;
    d.numbers = words(spread, costs, asked, n);
    if (options_.on_numbers) options_.on_numbers(n);
  }

 private:
  double seconds() const { return static_cast<double>(now_ns() - begin_ns_) * 1e-9; }

  std::string words(const Spread& spread, const Costs& costs, const Asked& asked, const Numbers& n) const {
    const Design& d = experiment_.design;
    if (numbers_are_given(d, asked)) return "given";
    std::string text =
        fmt::format("pilot of {} openings: an opening takes {:.2f} s", d.pilot_openings, costs.opening_s);
    if (d.pilot_runs > 1) text += fmt::format(", a run {:.2f} s", costs.run_s);
    if (spread.opening) text += fmt::format("; openings {:.2f} % apart", 100 * *spread.opening);
    if (spread.run) text += fmt::format(", runs of one {:.2f} %", 100 * *spread.run);
    if (n.open_once && !asked.open_once)
      text += fmt::format("; {} allow no {} openings of each arm, so each is opened once",
                          human_duration(asked.limit_s), fewest_pairs + null_pairs(fewest_pairs));
    return text;
  }

  Experiment& experiment_;
  Runner& runner_;
  const ConductOptions& options_;
  uint64_t begin_ns_;
};

}  // namespace

bool conduct(Experiment& experiment, Runner& runner, const ConductOptions& options) {
  Conductor conductor(experiment, runner, options);
  if (!conductor.pilot()) return false;
  conductor.fix_numbers();
  const auto schedule = make_schedule(experiment.design);
  return conductor.make("comparing", schedule, schedule.size());
}

}  // namespace weir::lab::ab
