// What a person, a program and a browser read of a replay: tables, JSON, and a curve as SVG. Made from the
// figures alone.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "lab/replay.h"
#include "lab/routing_profile.h"

namespace weir::lab {

struct ReplayReport {
  std::string trace;              ///< path
  std::string model, model_name;  ///< path and name, where it was given: empty otherwise
  RouteTraceHeader header;
  PhaseChoice phase;
  std::array<uint64_t, phase_count> tokens{}, rounds{};  ///< of the whole trace
  std::vector<ReplayRow> rows;
  RoutingProfile routing;
  WaitModel wait;
  std::string rate_source, hidden_source;  ///< empty: no rate; nothing to hide behind is known

  uint64_t reported_tokens() const;  ///< of the phase
  double per_token(double value) const;
  bool has_rate() const { return wait.bytes_per_second > 0; }
};

/// Several lines, each ended.
std::string replay_text(const ReplayReport& report);
/// docs/json.md.
nlohmann::ordered_json replay_json(const ReplayReport& report);
/// A whole SVG document: hit rate against memory, one line a policy and one for the bound.
std::string replay_svg(const ReplayReport& report);

}  // namespace weir::lab
