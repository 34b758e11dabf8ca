// A replay as JSON; docs/json.md lists the keys.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "lab/replay_report.h"

namespace weir::lab {

namespace {

using Json = nlohmann::ordered_json;

Json by_phase(const std::array<uint64_t, phase_count>& values) {
  Json json = Json::object();
  for (size_t p = 0; p < values.size(); ++p)
    if (values[p] > 0) json[phase_name(static_cast<Phase>(p))] = values[p];
  return json;
}

Json row_json(const ReplayReport& r, const ReplayRow& row) {
  Json json = {{"expert_slots", row.slots},
               {"memory_bytes", row.memory_bytes},
               {"policy", row.contender.name()},
               {"hits", row.total.hits},
               {"misses", row.total.misses},
               {"hit_rate", row.total.hit_rate()},
               {"bytes_read", row.total.bytes},
               {"bytes_per_token", r.per_token(static_cast<double>(row.total.bytes))}};
  if (r.has_rate()) {
    json["read_ns_per_token"] = r.per_token(row.total.read_ns);
    json["exposed_ns_per_token"] = r.per_token(row.total.exposed_ns);
  }
  Json layers = Json::array();
  for (const Traffic& layer : row.layers) layers.push_back(layer.hit_rate());
  json["layer_hit_rates"] = layers;
  return json;
}

Json distances_json(const Distances& d) {
  Json histogram = Json::array();
  for (uint64_t low = 1; low < d.count.size(); low *= 2) {
    uint64_t uses = 0;
    for (uint64_t i = low; i < 2 * low && i < d.count.size(); ++i) uses += d.count[i];
    if (uses > 0) histogram.push_back(Json::array({low, uses}));
  }
  return {{"first_uses", d.first},
          {"p50", d.quantile(0.5)},
          {"p90", d.quantile(0.9)},
          {"p99", d.quantile(0.99)},
          {"histogram", histogram}};
}

Json layer_json(const LayerRouting& layer) {
  return {
      {"layer", layer.layer}, {"experts", layer.experts},       {"used", layer.used},
      {"uses", layer.uses},   {"top_1", layer.top_1},           {"top_8", layer.top_8},
      {"least", layer.least}, {"next_token", layer.next_token}, {"reuse", distances_json(layer.distances)}};
}

}  // namespace

nlohmann::ordered_json replay_json(const ReplayReport& report) {
  Json rows = Json::array(), layers = Json::array();
  for (const ReplayRow& row : report.rows) rows.push_back(row_json(report, row));
  for (const LayerRouting& layer : report.routing.layers) layers.push_back(layer_json(layer));
  const auto given = [](const std::string& text) { return text.empty() ? Json(nullptr) : Json(text); };
  Json json = {{"trace", report.trace},
               {"model", given(report.model)},
               {"model_name", given(report.model_name)},
               {"fingerprint", fmt::format("{:016x}", report.header.fingerprint)},
               {"experts_per_token", report.header.top_k},
               {"layer_experts", report.header.experts},
               {"layer_expert_bytes", report.header.expert_bytes},
               {"phase", phase_choice_name(report.phase)},
               {"tokens", report.reported_tokens()},
               {"phase_tokens", by_phase(report.tokens)},
               {"phase_rounds", by_phase(report.rounds)}};
  if (report.has_rate()) {
    Json hidden = Json::object();
    for (size_t p = 0; p < report.wait.hidden_ns_per_hit.size(); ++p)
      if (report.wait.hidden_ns_per_hit[p] > 0)
        hidden[phase_name(static_cast<Phase>(p))] = report.wait.hidden_ns_per_hit[p];
    json["reads"] = {{"bytes_per_second", report.wait.bytes_per_second},
                     {"latency_ns", report.wait.latency_ns},
                     {"source", report.rate_source},
                     {"hidden_ns_per_hit", hidden}};
  }
  json["rows"] = rows;
  json["reuse"] = distances_json(report.routing.distances);
  json["layers"] = layers;
  return json;
}

}  // namespace weir::lab
