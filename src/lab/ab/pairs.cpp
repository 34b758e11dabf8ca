#include "lab/ab/pairs.h"

#include <cmath>
#include <map>

#include "base/stats.h"
#include "lab/ab/statistics.h"

namespace weir::lab::ab {

namespace {

double mean_log(const std::vector<const Observation*>& runs) {
  double sum = 0;
  for (const Observation* o : runs) sum += std::log(o->value);
  return sum / static_cast<double>(runs.size());
}

}  // namespace

std::vector<Pair> complete_pairs(const Experiment& experiment, RunKind kind) {
  std::vector<Pair> pairs;
  std::map<int, size_t> place;  // pair's number -> index in pairs
  for (const auto& o : experiment.observations) {
    if (o.run.kind != kind) continue;
    const auto [known, fresh] = place.try_emplace(o.run.pair, pairs.size());
    if (fresh) pairs.push_back({{}, {}, o.run.label, 0});
    Pair& pair = pairs[known->second];
    (o.run.label == Side::a ? pair.a : pair.b).push_back(&o);
  }
  const auto runs = static_cast<size_t>(experiment.design.runs);
  std::erase_if(pairs, [&](const Pair& p) { return p.a.size() != runs || p.b.size() != runs; });
  const double sign = experiment.design.higher_is_better ? 1 : -1;
  for (auto& pair : pairs) pair.log_ratio = sign * (mean_log(pair.b) - mean_log(pair.a));
  return pairs;
}

std::vector<double> log_ratios(std::span<const Pair> pairs) {
  std::vector<double> ratios;
  for (const auto& pair : pairs) ratios.push_back(pair.log_ratio);
  return ratios;
}

std::optional<Estimate> estimate(std::span<const double> log_ratios) {
  if (static_cast<int>(log_ratios.size()) < fewest_pairs) return std::nullopt;
  const MeanInterval interval = *mean_interval(log_ratios, verdict_level);
  Estimate e;
  e.log_ratio = mean(log_ratios);
  e.low = interval.low, e.high = interval.high;
  for (const double r : log_ratios) ++(r > 0 ? e.wins : r < 0 ? e.losses : e.ties);
  e.p = sign_flip_p(log_ratios);
  e.smallest = e.high - e.log_ratio;
  return e;
}

}  // namespace weir::lab::ab
