// The ledger as JSON; docs/ledger.md is its schema. Times in integer nanoseconds, shares 0..1. The one unit
// of the module that includes the JSON library.
#include <nlohmann/json.hpp>

#include "base/stats.h"
#include "ledger/report.h"

namespace weir {
namespace {

using Json = nlohmann::ordered_json;

const char* lane_name(LaneKind lane) {
  return lane == LaneKind::device ? "device" : lane == LaneKind::side ? "side" : "host";
}

/// [[lower bound in ns, count], ...], empty buckets left out.
Json histogram_json(const Tally& tally) {
  Json buckets = Json::array();
  for (size_t b = 0; b < tally.histogram.size(); ++b)
    if (tally.histogram[b])
      buckets.push_back(Json::array({b == 0 ? 0 : uint64_t{1} << b, tally.histogram[b]}));
  return buckets;
}

Json round_times_json(const Ledger& ledger, Phase phase) {
  const Tally& rounds = ledger.phase(phase).rounds;
  const RoundQuantiles kept = round_quantiles(ledger, phase);
  Json json;
  json["min"] = rounds.count ? rounds.min_ns : 0;
  json["mean"] = ratio(rounds.sum_ns, rounds.count);
  json["max"] = rounds.max_ns;
  json["p50"] = kept.p50_ns;
  json["p90"] = kept.p90_ns;
  json["p99"] = kept.p99_ns;
  json["quantile_rounds"] = kept.rounds;
  json["histogram"] = histogram_json(rounds);
  return json;
}

Json role_json(const PhaseAccount& account, int index) {
  const RoleAccount& role = account.roles[index];
  const Tally& time = role.per_round;
  Json json;
  json["lane"] = lane_name(role_lane(static_cast<Role>(index)));
  json["ns"] = time.sum_ns;
  json["share"] = ratio(time.sum_ns, account.wall_ns);
  json["us_per_round"] = ratio(time.sum_ns, account.rounds.count) / 1e3;
  json["rounds"] = time.count;
  json["min_ns"] = time.count ? time.min_ns : 0;
  json["max_ns"] = time.max_ns;
  json["switches"] = role.switches;
  json["bytes"] = role.bytes;
  json["gb_per_second"] = ratio(role.bytes, time.sum_ns);
  json["hidden_ns"] = role.hidden_ns;
  json["histogram"] = histogram_json(time);
  return json;
}

Json roles_json(const PhaseAccount& account) {
  Json json = Json::object();
  for (int r = 0; r < role_count; ++r) {
    if (account.roles[r].ran() || r == static_cast<int>(Role::unattributed))
      json[role_name(static_cast<Role>(r))] = role_json(account, r);
  }
  return json;
}

Json experts_json(const PhaseAccount& account, const PhaseFigures& figures) {
  const ExpertCounters& e = account.experts;
  Json json;
  json["hits"] = e.hits;
  json["misses"] = e.misses;
  json["hit_rate"] = figures.hit_rate;
  json["reads"] = e.reads;
  json["bytes_read"] = e.bytes_read;
  json["bytes_per_token"] = figures.bytes_per_token;
  json["read_busy_ns"] = e.read_busy_ns;
  json["read_gb_per_second"] = figures.read_bytes_per_second / 1e9;
  json["read_exposed_ns"] = figures.exposed_read_ns;
  json["read_hidden_ns"] = figures.hidden_read_ns;
  return json;
}

Json phase_json(const Ledger& ledger, Phase phase) {
  const PhaseAccount& account = ledger.phase(phase);
  const PhaseFigures figures = phase_figures(account);
  Json json;
  json["rounds"] = account.rounds.count;
  json["rows"] = account.rows;
  json["tokens"] = account.tokens;
  json["wall_ns"] = account.wall_ns;
  json["tail_ns"] = account.tail_ns;
  json["tokens_per_second"] = figures.tokens_per_second;
  json["coverage"] = figures.coverage;
  json["round_ns"] = round_times_json(ledger, phase);
  json["roles"] = roles_json(account);
  json["experts"] = experts_json(account, figures);
  json["workers"] = {{"tasks", account.tasks},
                     {"busy_ns", account.worker_busy_ns},
                     {"barrier_ns", account.worker_barrier_ns},
                     {"barrier_share", figures.barrier_share}};
  json["injected_rounds"] = account.injected_rounds;
  return json;
}

Json cumulative_json(const PhaseAccount& account) {
  Json roles = Json::object();
  for (int r = 0; r < role_count; ++r)
    if (account.roles[r].per_round.sum_ns)
      roles[role_name(static_cast<Role>(r))] = account.roles[r].per_round.sum_ns;
  Json json;
  json["rounds"] = account.rounds.count;
  json["rows"] = account.rows;
  json["tokens"] = account.tokens;
  json["wall_ns"] = account.wall_ns;
  json["role_ns"] = roles;
  return json;
}

}  // namespace

Json ledger_json(const Ledger& ledger) {
  Json phases = Json::object(), cumulative = Json::object();
  uint64_t wall = 0, nameless = 0;
  for (int p = 0; p < phase_count; ++p) {
    const auto phase = static_cast<Phase>(p);
    const PhaseAccount& account = ledger.phase(phase);
    wall += account.wall_ns;
    nameless += account.roles[static_cast<int>(Role::unattributed)].per_round.sum_ns;
    if (!account.empty()) phases[phase_name(phase)] = phase_json(ledger, phase);
    if (!ledger.cumulative(phase).empty())
      cumulative[phase_name(phase)] = cumulative_json(ledger.cumulative(phase));
  }
  const LedgerOptions& options = ledger.options();
  Json json;
  json["schema"] = "weir-ledger-1";
  json["wall_ns"] = wall;
  json["coverage"] = ratio(wall - nameless, wall);
  json["phases"] = phases;
  json["dropped"] = {{"ring_rounds", options.ring_rounds},
                     {"rounds", ledger.rounds_dropped()},
                     {"spans", ledger.spans_dropped()}};
  if (const auto& clock = ledger.device_clock())
    json["device_clock"] = {{"tick_ns", clock->tick_ns}, {"bound_ns", clock->bound_ns}};
  if (options.inject_ns > 0)
    json["injection"] = {
        {"role", role_name(options.inject_role)}, {"ns", options.inject_ns}, {"seed", options.inject_seed}};
  json["cumulative"] = cumulative;
  return json;
}

std::string report_json(const Ledger& ledger) { return ledger_json(ledger).dump(2) + "\n"; }

}  // namespace weir
