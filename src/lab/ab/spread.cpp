#include "lab/ab/spread.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>
#include <vector>

#include "base/stats.h"
#include "lab/ab/pairs.h"
#include "lab/ab/schedule.h"
#include "lab/ab/statistics.h"

namespace weir::lab::ab {

namespace {

// t of 95 % at about a dozen pairs.
constexpr double t_of_dozen = 2.2;

/// Pairs that make half the interval's width the aimed one.
double pairs_needed(double variance_of_pair) {
  return variance_of_pair * t_of_dozen * t_of_dozen / (aimed_half_width * aimed_half_width);
}

/// The same, even, and within what is ever chosen.
int pairs_for(double variance_of_pair) {
  const double n = pairs_needed(variance_of_pair);
  const int even = 2 * static_cast<int>(std::ceil(std::min(n, 1e6) / 2));
  return std::clamp(even, least_chosen_pairs, most_chosen_pairs);
}

double seconds(int pairs, int runs, bool open_once, const Costs& c) {
  const double halves = 2.0 * (pairs + null_pairs(pairs));
  return open_once ? 2 * c.opening_s + halves * c.run_s : halves * (c.opening_s + runs * c.run_s);
}

int runs_for(const Costs& c, double var_run, double var_opening) {
  if (var_run == 0) return 1;
  const double n = std::sqrt(c.opening_s / std::max(c.run_s, 1e-9) * var_run / std::max(var_opening, 1e-12));
  int runs = std::clamp(static_cast<int>(std::ceil(std::min(n, 1e6))), 1, most_chosen_runs);
  const auto needed = [&](int r) { return pairs_needed(2 * (var_opening + var_run / r)); };
  while (runs > 1 && needed(runs - 1) <= least_chosen_pairs) --runs;
  return runs;
}

}  // namespace

Spread spread_of(const Experiment& experiment, bool of_pilot) {
  // Log values by arm and prompt, then by opening.
  std::map<std::pair<Side, int>, std::map<int, std::vector<double>>> groups;
  for (const auto& o : experiment.observations)
    if ((o.run.kind == RunKind::pilot) == of_pilot)
      groups[{o.run.arm, o.run.prompt}][o.run.opening].push_back(std::log(o.value));
  double within = 0, between = 0, runs = 0, openings = 0;
  int within_df = 0, between_df = 0;
  for (const auto& [key, by_opening] : groups) {
    std::vector<double> means;
    for (const auto& [opening, values] : by_opening) {
      within += sum_of_squares(values);
      within_df += static_cast<int>(values.size()) - 1;
      means.push_back(mean(values));
      runs += static_cast<double>(values.size()), ++openings;
    }
    between += sum_of_squares(means);
    between_df += static_cast<int>(means.size()) - 1;
  }
  Spread spread;
  const double var_run = within_df > 0 ? within / within_df : 0;
  if (within_df > 0) spread.run = std::sqrt(var_run);
  if (between_df > 0)
    spread.opening = std::sqrt(std::max(0.0, between / between_df - var_run / (runs / openings)));
  return spread;
}

Costs costs_of_pilot(const Experiment& experiment) {
  std::vector<double> first, later;
  int opening = -1;
  for (const auto& o : experiment.observations) {
    if (o.run.kind != RunKind::pilot) continue;
    (o.run.opening == opening ? later : first).push_back(o.took_s);
    opening = o.run.opening;
  }
  if (first.empty()) return {};
  if (later.empty()) return {mean(first), 0};
  return {std::max(0.0, mean(first) - mean(later)), mean(later)};
}

Numbers choose_numbers(const Spread& spread, const Costs& costs, const Asked& asked, bool can_stay_open) {
  const double run = spread.run.value_or(0), opening = spread.opening.value_or(0);
  const double var_run = run * run, var_opening = opening * opening;
  Numbers n;
  n.open_once = asked.open_once;
  const int worth = spread.opening ? runs_for(costs, var_run, var_opening) : 1;
  n.runs = n.open_once ? 1 : asked.runs.value_or(worth);
  const auto chosen = [&] {
    return asked.pairs.value_or(
        pairs_for(2 * ((n.open_once ? 0 : var_opening) + var_run / static_cast<double>(n.runs))));
  };
  n.pairs = chosen();
  const auto too_long = [&] { return seconds(n.pairs, n.runs, n.open_once, costs) > asked.limit_s; };
  const auto shrink = [&] {
    while (!asked.pairs && too_long() && n.pairs > fewest_pairs) n.pairs -= 2;
    while (!asked.runs && too_long() && n.runs > 1) --n.runs;
  };
  shrink();
  if (too_long() && can_stay_open && !asked.pairs && !asked.runs && !n.open_once) {
    n.open_once = true;
    n.runs = 1;
    n.pairs = chosen();
    shrink();
  }
  n.expected_s = seconds(n.pairs, n.runs, n.open_once, costs);
  return n;
}

}  // namespace weir::lab::ab
