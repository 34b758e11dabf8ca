// The tables of a replay.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "base/log.h"
#include "base/quantity.h"
#include "lab/replay_report.h"

namespace weir::lab {

uint64_t ReplayReport::reported_tokens() const {
  if (phase) return tokens[static_cast<size_t>(*phase)];
  return std::accumulate(tokens.begin(), tokens.end(), uint64_t{0});
}

double ReplayReport::per_token(double value) const {
  const uint64_t n = reported_tokens();
  return n > 0 ? value / static_cast<double>(n) : 0.0;
}

namespace {

std::string range_of(const std::vector<uint64_t>& values, std::string (*print)(uint64_t)) {
  const auto [low, high] = std::minmax_element(values.begin(), values.end());
  return *low == *high ? print(*low) : fmt::format("{} to {}", print(*low), print(*high));
}

std::string plain(uint64_t value) { return std::to_string(value); }

std::string head(const ReplayReport& r) {
  std::vector<uint64_t> experts, bytes;
  for (size_t l = 0; l < r.header.experts.size(); ++l) {
    if (r.header.experts[l] == 0) continue;
    experts.push_back(static_cast<uint64_t>(r.header.experts[l]));
    bytes.push_back(r.header.expert_bytes[l]);
  }
  std::string out =
      fmt::format("{}{}: {} of {} experts, {} for each token; an expert is {}, all are {}\n", r.trace,
                  r.model_name.empty() ? "" : " of " + r.model_name, quantity(experts.size(), "layer"),
                  range_of(experts, plain), r.header.top_k, range_of(bytes, human_bytes),
                  human_bytes(slots_memory(r.header, most_experts(r.header))));
  for (size_t p = 0; p < r.tokens.size(); ++p)
    if (r.tokens[p] > 0)
      out += fmt::format("  {:<8}{:>9} {} in {}\n", phase_name(static_cast<Phase>(p)), r.tokens[p],
                         r.tokens[p] == 1 ? "token" : "tokens", quantity(r.rounds[p], "round"));
  if (!r.has_rate()) return out + "no waits are predicted: give --read-rate, --measure or --ledger-json\n";
  out += fmt::format("reads: {:.0f} us a call and {:.2f} GB/s, {}\n", r.wait.latency_ns / 1e3,
                     r.wait.bytes_per_second / 1e9, r.rate_source);
  return out + (r.hidden_source.empty()
                    ? "waits are upper bounds: without --ledger-json all reading counts as exposed\n"
                    : fmt::format("a call's reads hide behind its hits: {}\n", r.hidden_source));
}

std::string traffic_table(const ReplayReport& r) {
  std::string out =
      fmt::format("\n{}: every call is replayed, these are counted\n", phase_choice_name(r.phase));
  out += fmt::format("{:>6}{:>12}  {:<7}{:>10}{:>14}{:>15}", "slots", "memory", "policy", "hit rate",
                     "misses/token", "bytes/token");
  out += r.has_rate() ? fmt::format("{:>17}{:>16}\n", "reads, us/token", "wait, us/token") : "\n";
  int last_slots = -1;
  for (const ReplayRow& row : r.rows) {
    const bool first = row.slots != last_slots;
    last_slots = row.slots;
    out += fmt::format("{:>6}{:>12}  {:<7}{:>8.2f} %{:>14.2f}{:>15}", first ? std::to_string(row.slots) : "",
                       first ? human_bytes(row.memory_bytes) : "", row.contender.name(),
                       100 * row.total.hit_rate(), r.per_token(static_cast<double>(row.total.misses)),
                       human_bytes(static_cast<uint64_t>(r.per_token(static_cast<double>(row.total.bytes)))));
    out += r.has_rate() ? fmt::format("{:>17.1f}{:>16.1f}\n", r.per_token(row.total.read_ns) / 1e3,
                                      r.per_token(row.total.exposed_ns) / 1e3)
                        : "\n";
  }
  return out;
}

std::string distance_table(const Distances& d) {
  std::string out = fmt::format(
      "\nreuse distance in tokens: half within {}, 90 % within {}, 99 % within {}; {} first uses\n",
      d.quantile(0.5), d.quantile(0.9), d.quantile(0.99), d.first);
  double so_far = 0;
  for (uint64_t low = 1; low < d.count.size(); low *= 2) {
    const bool last = so_far > 0.999;  // the long tail in one line
    const uint64_t high = last ? d.count.size() : 2 * low - 1;
    const double share = d.share_between(low, high);
    so_far += share;
    const std::string range = last          ? fmt::format("{} and more", low)
                              : low == high ? std::to_string(low)
                                            : fmt::format("{} to {}", low, high);
    out += fmt::format("{:>16}{:>8.2f} %{:>9.2f} %  {}\n", range, 100 * share, 100 * so_far,
                       std::string(static_cast<size_t>(share * 40 + 0.5), '#'));
    if (last) break;
  }
  return out;
}

/// Hit rates of the first policy by layer: a column for each count of slots, as many as fit a line.
std::string layer_table(const ReplayReport& r) {
  constexpr size_t most_columns = 8;
  std::vector<const ReplayRow*> columns;
  for (const ReplayRow& row : r.rows)
    if (row.contender == r.rows.front().contender && columns.size() < most_columns) columns.push_back(&row);
  std::string out = fmt::format("\n{:>5}{:>9}{:>8}{:>8}{:>8}{:>8}{:>7}{:>7}", "layer", "used", "top 1",
                                "top 8", "least", "next", "p50", "p90");
  for (const ReplayRow* row : columns) out += fmt::format("{:>8}", fmt::format("@{}", row->slots));
  out += fmt::format("   (@: {} hit rate)\n", r.rows.empty() ? "" : r.rows.front().contender.name());
  for (size_t l = 0; l < r.routing.layers.size(); ++l) {
    const LayerRouting& layer = r.routing.layers[l];
    out += fmt::format("{:>5}{:>9}{:>7.1f}%{:>7.1f}%{:>7.2f}%{:>7.1f}%{:>7}{:>7}", layer.layer,
                       fmt::format("{}/{}", layer.used, layer.experts), 100 * layer.top_1, 100 * layer.top_8,
                       100 * layer.least, 100 * layer.next_token, layer.distances.quantile(0.5),
                       layer.distances.quantile(0.9));
    for (const ReplayRow* row : columns) out += fmt::format("{:>7.1f}%", 100 * row->layers[l].hit_rate());
    out += "\n";
  }
  return out;
}

}  // namespace

std::string replay_text(const ReplayReport& report) {
  return head(report) + traffic_table(report) + distance_table(report.routing.distances) +
         layer_table(report);
}

}  // namespace weir::lab
