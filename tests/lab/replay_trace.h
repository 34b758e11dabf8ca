// Random routings for tests of the replay: made in memory, skewed, with calls of many sizes and every phase.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/random.h"
#include "experts/route_trace.h"

namespace weir::test {

struct TraceShape {
  int layers = 2, experts = 8, top_k = 2;
  int rounds = 200;
  int most_rows = 1;    ///< of a round
  bool phases = false;  ///< each round a random one; otherwise all decode
  uint64_t seed = 1;
};

/// Ids of a row: distinct, increasing, the lower ones likelier.
inline std::vector<uint16_t> random_row(const TraceShape& shape, uint64_t& draws) {
  std::vector<uint16_t> row;
  while (static_cast<int>(row.size()) < shape.top_k) {
    const double u = random_unit(shape.seed, draws++);
    const auto id = static_cast<uint16_t>(u * u * shape.experts);
    if (std::find(row.begin(), row.end(), id) == row.end()) row.push_back(id);
  }
  std::sort(row.begin(), row.end());
  return row;
}

inline RouteTrace random_trace(const TraceShape& shape) {
  RouteTrace trace;
  trace.header = {42, shape.layers, shape.top_k, {}, {}};
  for (int l = 0; l < shape.layers; ++l) {
    trace.header.experts.push_back(shape.experts);
    trace.header.expert_bytes.push_back(1000u + 100u * static_cast<unsigned>(l));
  }
  uint64_t draws = 0;
  for (int round = 0; round < shape.rounds; ++round) {
    const int rows =
        1 + static_cast<int>(random_u64(shape.seed, draws++) % static_cast<uint64_t>(shape.most_rows));
    const Phase phase =
        shape.phases ? static_cast<Phase>(random_u64(shape.seed, draws++) % 3) : Phase::decode;
    for (int l = 0; l < shape.layers; ++l) {
      RouteRecord record{phase, static_cast<uint32_t>(round), l, rows, {}};
      for (int r = 0; r < rows; ++r) {
        const auto row = random_row(shape, draws);
        record.ids.insert(record.ids.end(), row.begin(), row.end());
      }
      trace.records.push_back(std::move(record));
    }
  }
  return trace;
}

/// One layer, one row a round: `rows` as given.
inline RouteTrace trace_of(int experts, const std::vector<std::vector<uint16_t>>& rows,
                           const std::vector<Phase>& phases = {}) {
  RouteTrace trace;
  trace.header = {42, 1, static_cast<int>(rows.front().size()), {experts}, {1000}};
  for (size_t i = 0; i < rows.size(); ++i)
    trace.records.push_back(
        {phases.empty() ? Phase::decode : phases[i], static_cast<uint32_t>(i), 0, 1, rows[i]});
  return trace;
}

}  // namespace weir::test
