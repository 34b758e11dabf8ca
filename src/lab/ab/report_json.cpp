// The report for programs: the verdict, and the experiment as the observations file holds it.
#include <cmath>
#include <nlohmann/json.hpp>

#include "lab/ab/arms_table.h"
#include "lab/ab/observations.h"
#include "lab/ab/report.h"
#include "lab/ab/role_table.h"
#include "lab/ab/spread.h"

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
          {"level", verdict_level},
          {"wins_b", e.wins},
          {"wins_a", e.losses},
          {"ties", e.ties},
          {"sign_flip_p", e.p},
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
  return {{"pairs", table.pairs}, {"runs", table.runs}, {"rows", rows}, {"whole", row_json(table.whole)}};
}

Json arm_json(const Experiment& e, const ArmFigures& f) {
  Json json = {{"runs", f.runs}, {"mean_value", f.mean_value}};
  if (!e.design.commands) json["hit_rate"] = f.hit_rate, json["mean_bytes_read"] = f.mean_bytes_read;
  return json;
}

Json arms_row_json(const Experiment& e, const Verdict& v, const ArmsRow& row) {
  return {{"pairs", row.pairs},
          {"ratio", v.estimate ? Json(std::exp(row.log_ratio)) : Json(nullptr)},
          {"a", arm_json(e, row.arms[0])},
          {"b", arm_json(e, row.arms[1])}};
}

Json arms_json(const Experiment& e, const Verdict& v) {
  const ArmsTable table = arms_table(e);
  Json json = arms_row_json(e, v, table.whole);
  json["peak_bytes"] = {{"a", table.peak_bytes[0]}, {"b", table.peak_bytes[1]}};
  json["prompts"] = Json::array();
  for (const auto& row : table.prompts) {
    Json prompt = {{"prompt", e.design.prompts[static_cast<size_t>(row.prompt)].name}};
    prompt.update(arms_row_json(e, v, row));
    json["prompts"].push_back(std::move(prompt));
  }
  return json;
}

Json spread_json(const Experiment& e) {
  const Spread s = spread_of(e);
  return {{"run", s.run ? Json(*s.run) : Json(nullptr)},
          {"opening", s.opening ? Json(*s.opening) : Json(nullptr)},
          {"openings_covered", !e.design.open_once}};
}

}  // namespace

Json report_json(const Experiment& e, const Verdict& v) {
  return {
      {"verdict", name(v.outcome)},   {"exit_code", exit_code(v.outcome)}, {"sentence", verdict_line(e, v)},
      {"estimate", estimate_json(v)}, {"spread", spread_json(e)},          {"checks", checks_json(v)},
      {"arms", arms_json(e, v)},      {"roles", roles_json(e, v)},         {"experiment", to_json(e)}};
}

}  // namespace weir::lab::ab
