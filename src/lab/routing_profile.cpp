// Walks the rows of a trace and remembers when each expert was used last.
#include "lab/routing_profile.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/stats.h"

namespace weir::lab {

void Distances::add(uint64_t distance) {
  if (distance >= count.size()) count.resize(distance + 1, 0);
  ++count[distance];
}

Distances& Distances::operator+=(const Distances& other) {
  first += other.first;
  if (count.size() < other.count.size()) count.resize(other.count.size(), 0);
  for (size_t d = 0; d < other.count.size(); ++d) count[d] += other.count[d];
  return *this;
}

uint64_t Distances::again() const { return std::accumulate(count.begin(), count.end(), uint64_t{0}); }

double Distances::share_between(uint64_t low, uint64_t high) const {
  uint64_t sum = 0;
  for (uint64_t d = low; d <= high && d < count.size(); ++d) sum += count[d];
  return ratio(sum, again());
}

uint64_t Distances::quantile(double q) const {
  const double wanted = std::ceil(q * static_cast<double>(again()));
  uint64_t sum = 0;
  for (uint64_t d = 0; d < count.size(); ++d) {
    sum += count[d];
    if (sum > 0 && static_cast<double>(sum) >= wanted) return d;
  }
  return 0;
}

namespace {

/// What is being counted of one layer.
struct Tracker {
  std::vector<uint64_t> uses;      ///< per expert, counted calls only
  std::vector<uint64_t> last_row;  ///< per expert, from 1; 0: not yet
  uint64_t rows = 0;               ///< seen so far
  Distances distances;
};

void follow(Tracker& tracker, const RouteRecord& record, int top_k, bool counted) {
  for (size_t i = 0; i < record.ids.size(); ++i) {
    if (i % static_cast<size_t>(top_k) == 0) ++tracker.rows;
    const size_t e = record.ids[i];
    if (counted) {
      ++tracker.uses[e];
      if (tracker.last_row[e] == 0) {
        ++tracker.distances.first;
      } else {
        tracker.distances.add(tracker.rows - tracker.last_row[e]);
      }
    }
    tracker.last_row[e] = tracker.rows;
  }
}

LayerRouting summarise(int layer, Tracker&& tracker) {
  LayerRouting r;
  r.layer = layer;
  r.experts = static_cast<int>(tracker.uses.size());
  r.uses = std::accumulate(tracker.uses.begin(), tracker.uses.end(), uint64_t{0});
  std::vector<uint64_t> sorted = std::move(tracker.uses);
  std::sort(sorted.begin(), sorted.end(), std::greater<>());
  r.used = static_cast<int>(std::count_if(sorted.begin(), sorted.end(), [](uint64_t n) { return n > 0; }));
  const auto top = sorted.begin() + static_cast<std::ptrdiff_t>(std::min<size_t>(8, sorted.size()));
  r.top_1 = ratio(sorted.front(), r.uses);
  r.top_8 = ratio(std::accumulate(sorted.begin(), top, uint64_t{0}), r.uses);
  r.least = ratio(sorted.back(), r.uses);
  r.distances = std::move(tracker.distances);
  r.next_token = ratio(r.distances.count.size() > 1 ? r.distances.count[1] : 0, r.uses);
  return r;
}

}  // namespace

RoutingProfile routing_profile(const RouteTrace& trace, PhaseChoice choice) {
  std::vector<Tracker> trackers(trace.header.experts.size());
  for (size_t l = 0; l < trackers.size(); ++l) {
    const auto experts = static_cast<size_t>(trace.header.experts[l]);
    trackers[l].uses.resize(experts, 0);
    trackers[l].last_row.resize(experts, 0);
  }
  for (const RouteRecord& record : trace.records)
    follow(trackers[static_cast<size_t>(record.layer)], record, trace.header.top_k,
           counts(choice, record.phase));
  RoutingProfile profile;
  for (size_t l = 0; l < trackers.size(); ++l) {
    if (trackers[l].uses.empty()) continue;
    profile.layers.push_back(summarise(static_cast<int>(l), std::move(trackers[l])));
    profile.distances += profile.layers.back().distances;
  }
  return profile;
}

}  // namespace weir::lab
