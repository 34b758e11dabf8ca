#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/arithmetic.h"
#include "base/stats.h"
#include "lab/profile/analysis.h"
#include "lab/profile/levers.h"
#include "lab/profile/report.h"
#include "ledger/report.h"

namespace weir::lab {

namespace {

using Json = nlohmann::ordered_json;

Json roles_json(const PhaseAccount& account) {
  Json roles = Json::object();
  for (int r = 0; r < role_count; ++r) {
    const auto role = static_cast<Role>(r);
    const RoleAccount& a = account.roles[static_cast<size_t>(r)];
    if (!a.ran() && role != Role::unattributed) continue;
    roles[role_name(role)] = {{"ns", a.per_round.sum_ns},
                              {"ms_per_token", ms_per_token(account, a.per_round.sum_ns)},
                              {"share", ratio(a.per_round.sum_ns, account.wall_ns)},
                              {"gb_per_second", ratio(a.bytes, a.per_round.sum_ns)},
                              {"hidden_ns", a.hidden_ns}};
  }
  return roles;
}

Json phase_json(const PhaseAccount& account) {
  const PhaseFigures f = phase_figures(account);
  return {{"tokens", account.tokens},
          {"wall_ns", account.wall_ns},
          {"tokens_per_second", f.tokens_per_second},
          {"ms_per_token", ms_per_token(account, account.wall_ns)},
          {"coverage", f.coverage},
          {"hits", account.experts.hits},
          {"misses", account.experts.misses},
          {"hit_rate", f.hit_rate},
          {"bytes_per_token", f.bytes_per_token},
          {"read_gb_per_second", f.read_bytes_per_second / 1e9},
          {"read_exposed_ns", f.exposed_read_ns},
          {"read_hidden_ns", f.hidden_read_ns},
          {"barrier_share", f.barrier_share},
          {"roles", roles_json(account)}};
}

Json trend_json(const Trend& trend) {
  return {{"verdict", trend_name(trend.kind)},
          {"from_ns", trend.from_ns},
          {"to_ns", trend.to_ns},
          {"from_position", trend.from_position},
          {"to_position", trend.to_position}};
}

Json largest_json(const Profile& profile, const PhaseAccount& total) {
  const auto role = largest_role(total);
  if (!role) return nullptr;
  const Growth growth = growth_of(*role, profile.runs);
  Json json = {{"role", role_name(*role)},
               {"share", ratio(role_ns(total, *role), total.wall_ns)},
               {"ms_per_token", ms_per_token(total, role_ns(total, *role))},
               {"growth", trend_name(growth.kind())}};
  json["prompts"] = growth.prompts ? trend_json(*growth.prompts) : Json(nullptr);
  json["quarters"] = trend_json(growth.quarters);
  return json;
}

Json levers_json(const Profile& profile) {
  Json list = Json::array();
  for (const Lever& lever : levers(profile)) {
    Json json = {{"lever", lever.name}, {"setting", lever.setting}};
    json["gain"] = lever.gain ? Json(*lever.gain) : Json(nullptr);
    json["gain_low"] = lever.gain ? Json(lever.gain_low) : Json(nullptr);
    json["gain_high"] = lever.gain ? Json(lever.gain_high) : Json(nullptr);
    json["at_most"] = lever.at_most;
    json["attacks_largest"] = lever.attacks_largest;
    json["how"] = lever.how;
    list.push_back(std::move(json));
  }
  return list;
}

Json curve_json(const Profile& profile) {
  Json points = Json::array();
  for (const SlotTraffic& p : profile.curve)
    points.push_back({{"expert_slots", p.slots},
                      {"hits", p.hits},
                      {"misses", p.misses},
                      {"hit_rate", ratio(p.hits, p.hits + p.misses)}});
  return points;
}

}  // namespace

Json settings_json(const ProfileSettings& s) {
  return {{"model", s.model},
          {"device", s.device},
          {"arithmetic", s.arithmetic},
          {"arithmetic_version", arithmetic_version},
          {"threads", s.threads},
          {"context", s.context},
          {"experts_per_layer", s.experts},
          {"expert_slots", s.slots},
          {"policy", policy_name(s.policy)},
          {"budget_bytes", s.budget_bytes},
          {"plan_bytes", s.plan_bytes},
          {"new_tokens", s.new_tokens},
          {"temperature", s.temperature},
          {"top_k", s.top_k},
          {"top_p", s.top_p},
          {"seed", s.seed}};
}

Json profile_json(const Profile& profile) {
  const PhaseAccount total = total_decode(profile.runs);
  Json runs = Json::array();
  for (const ProfileRun& run : profile.runs)
    runs.push_back({{"prompt", run.prompt},
                    {"text_tokens", run.text_tokens},
                    {"prompt_tokens", run.prompt_tokens},
                    {"new_tokens", run.new_tokens},
                    {"tokens_hash", fmt::format("{:016x}", run.tokens_hash)},
                    {"prefill", phase_json(run.prefill)},
                    {"decode", phase_json(run.decode)}});
  return {{"schema", "weir-profile-1"},
          {"settings", settings_json(profile.settings)},
          {"prompts", runs},
          {"decode", phase_json(total)},
          {"largest", largest_json(profile, total)},
          {"levers", levers_json(profile)},
          {"advice", lever_advice(profile, levers(profile))},
          {"slot_curve", curve_json(profile)}};
}

}  // namespace weir::lab
