// The report for programs: the verdict, and the experiment as the observations file holds it.
#include <cmath>
#include <nlohmann/json.hpp>

#include "lab/ab/observations.h"
#include "lab/ab/report.h"
#include "lab/ab/role_table.h"

namespace weir::lab::ab {

namespace {

using Json = nlohmann::ordered_json;

Json checks_json(const Verdict& v) {
  Json list = Json::array();
  for (const auto& c : v.checks) {
    Json check = {{"check", c.name}, {"state", name(c.state)}, {"detail", c.detail}};
    if (c.p) check["p"] = *c.p;
    list.push_back(std::move(check));
  }
  return list;
}

Json estimate_json(const Verdict& v) {
  if (!v.estimate) return nullptr;
  const Estimate& e = *v.estimate;
  return {{"ratio", std::exp(e.log_ratio)},
          {"low", std::exp(e.low)},
          {"high", std::exp(e.high)},
          {"coverage", e.coverage},
          {"wins_b", e.wins},
          {"wins_a", e.losses},
          {"ties", e.ties},
          {"sign_test_p", e.p},
          {"smallest_resolvable_ratio", std::exp(e.smallest)}};
}

Json row_json(const RoleRow& row) {
  Json json = {
      {"role", row.role}, {"a_ns", row.a_ns}, {"b_ns", row.b_ns}, {"difference_ns", row.difference_ns}};
  if (row.interval) json["median_difference_ns"] = {row.interval->low, row.interval->high};
  return json;
}

Json roles_json(const Experiment& e, const Verdict& v) {
  if (!v.estimate || e.setting.roles.empty()) return nullptr;
  const auto pairs = complete_pairs(e, RunKind::pair);
  const RoleTable table = role_table(e, pairs);
  Json rows = Json::array();
  for (const auto& row : table.rows) rows.push_back(row_json(row));
  return {{"pairs", table.pairs}, {"rows", rows}, {"whole", row_json(table.whole)}};
}

Json arm_json(const Experiment& e, Side side) {
  const ArmSummary s = summarise(e, side);
  Json json = {{"runs", s.runs}, {"median_value", s.median_value}};
  if (!e.design.commands) json["hit_rate"] = s.hit_rate, json["median_bytes_read"] = s.median_bytes_read;
  json["peak_bytes"] = s.peak_bytes;
  return json;
}

}  // namespace

Json report_json(const Experiment& e, const Verdict& v) {
  return {{"verdict", name(v.outcome)}, {"exit_code", exit_code(v.outcome)}, {"estimate", estimate_json(v)},
          {"checks", checks_json(v)},   {"a", arm_json(e, Side::a)},         {"b", arm_json(e, Side::b)},
          {"roles", roles_json(e, v)},  {"experiment", to_json(e)}};
}

}  // namespace weir::lab::ab
