#include "lab/ab/pairs.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "base/stats.h"

namespace weir::lab::ab {

std::vector<Pair> complete_pairs(const Experiment& experiment, RunKind kind) {
  std::vector<Pair> pairs;
  std::map<int, size_t> place;  // pair's number -> index in pairs
  for (const auto& o : experiment.observations) {
    if (o.run.kind != kind) continue;
    const auto [known, fresh] = place.try_emplace(o.run.pair, pairs.size());
    if (fresh) pairs.push_back({nullptr, nullptr, o.run.label, 0});
    Pair& pair = pairs[known->second];
    (o.run.label == Side::a ? pair.a : pair.b) = &o;
  }
  std::erase_if(pairs, [](const Pair& p) { return p.a == nullptr || p.b == nullptr; });
  const double sign = experiment.design.higher_is_better ? 1 : -1;
  for (auto& pair : pairs) pair.log_ratio = sign * (std::log(pair.b->value) - std::log(pair.a->value));
  return pairs;
}

std::vector<double> log_ratios(std::span<const Pair> pairs) {
  std::vector<double> ratios;
  for (const auto& pair : pairs) ratios.push_back(pair.log_ratio);
  return ratios;
}

std::optional<Estimate> estimate(std::span<const double> log_ratios) {
  const auto interval = median_interval(log_ratios);
  if (!interval) return std::nullopt;
  Estimate e;
  e.log_ratio = median(log_ratios);
  e.low = interval->low, e.high = interval->high, e.coverage = interval->coverage;
  for (const double r : log_ratios) ++(r > 0 ? e.wins : r < 0 ? e.losses : e.ties);
  e.p = sign_test_p(e.wins, e.losses);
  // The same differences moved until the interval leaves zero: its further half.
  e.smallest = std::max(e.high - e.log_ratio, e.log_ratio - e.low);
  return e;
}

}  // namespace weir::lab::ab
