#include "lab/profile/analysis.h"

#include <algorithm>

#include "base/stats.h"

namespace weir::lab {

namespace {

/// A difference below this share is called flat, however sure it is.
constexpr double least_change = 0.05;

std::vector<double> role_times(Role role, std::span<const RoundReport> rounds) {
  std::vector<double> ns;
  for (const RoundReport& round : rounds)
    ns.push_back(static_cast<double>(round.role_ns[static_cast<size_t>(role)]));
  return ns;
}

void add(PhaseAccount& to, const PhaseAccount& from) {
  to.rounds.count += from.rounds.count;
  to.rounds.sum_ns += from.rounds.sum_ns;
  to.rows += from.rows;
  to.tokens += from.tokens;
  to.wall_ns += from.wall_ns;
  to.tail_ns += from.tail_ns;
  for (size_t r = 0; r < role_count; ++r) {
    to.roles[r].per_round.count += from.roles[r].per_round.count;
    to.roles[r].per_round.sum_ns += from.roles[r].per_round.sum_ns;
    to.roles[r].switches += from.roles[r].switches;
    to.roles[r].bytes += from.roles[r].bytes;
    to.roles[r].hidden_ns += from.roles[r].hidden_ns;
  }
  to.experts.hits += from.experts.hits;
  to.experts.misses += from.experts.misses;
  to.experts.bytes_read += from.experts.bytes_read;
  to.experts.reads += from.experts.reads;
  to.experts.read_busy_ns += from.experts.read_busy_ns;
  to.worker_busy_ns += from.worker_busy_ns;
  to.worker_barrier_ns += from.worker_barrier_ns;
  to.tasks += from.tasks;
}

double middle(const ProfileRun& run, size_t first, size_t count) {
  return run.prompt_tokens + static_cast<double>(first) + (static_cast<double>(count) - 1) / 2;
}

Trend quarters_of(Role role, const ProfileRun& run) {
  const std::span<const RoundReport> rounds(run.rounds);
  const size_t quarter = rounds.size() / 4, last = rounds.size() - quarter;
  return compare_stretches(role_times(role, rounds.first(quarter)), role_times(role, rounds.last(quarter)),
                           middle(run, 0, quarter), middle(run, last, quarter));
}

}  // namespace

PhaseAccount total_decode(std::span<const ProfileRun> runs) {
  PhaseAccount total;
  for (const ProfileRun& run : runs) add(total, run.decode);
  return total;
}

double ms_per_token(const PhaseAccount& account, uint64_t ns) { return ratio(ns, account.tokens) / 1e6; }

std::optional<Role> largest_role(const PhaseAccount& decode) {
  std::optional<Role> largest;
  for (int r = 0; r < role_count; ++r) {
    const auto role = static_cast<Role>(r);
    if (role == Role::unattributed || role_ns(decode, role) == 0) continue;
    if (!largest || role_ns(decode, role) > role_ns(decode, *largest)) largest = role;
  }
  return largest;
}

double Trend::ns_per_1000_positions() const {
  return to_position > from_position ? 1000 * (to_ns - from_ns) / (to_position - from_position) : 0;
}

const char* trend_name(Trend::Kind kind) {
  switch (kind) {
    case Trend::Kind::flat:
      return "flat";
    case Trend::Kind::grows:
      return "grows";
    case Trend::Kind::shrinks:
      return "shrinks";
    case Trend::Kind::unknown:
      break;
  }
  return "unknown";
}

Trend compare_stretches(std::span<const double> from_ns, std::span<const double> to_ns, double from_position,
                        double to_position) {
  Trend trend{Trend::Kind::unknown, 0, 0, from_position, to_position};
  const auto from = median_interval(from_ns), to = median_interval(to_ns);
  if (!from || !to) return trend;
  trend.from_ns = median(from_ns);
  trend.to_ns = median(to_ns);
  trend.kind = Trend::Kind::flat;
  if (to->low > from->high && trend.to_ns > trend.from_ns * (1 + least_change))
    trend.kind = Trend::Kind::grows;
  if (to->high < from->low && trend.to_ns < trend.from_ns * (1 - least_change))
    trend.kind = Trend::Kind::shrinks;
  return trend;
}

Growth growth_of(Role role, std::span<const ProfileRun> runs) {
  Growth growth;
  if (runs.empty()) return growth;
  const auto [shortest, longest] = std::minmax_element(
      runs.begin(), runs.end(),
      [](const ProfileRun& a, const ProfileRun& b) { return a.prompt_tokens < b.prompt_tokens; });
  growth.shortest = shortest->prompt;
  growth.longest = longest->prompt;
  growth.quarters = quarters_of(role, *longest);
  if (longest->prompt_tokens > shortest->prompt_tokens)
    growth.prompts = compare_stretches(role_times(role, shortest->rounds), role_times(role, longest->rounds),
                                       middle(*shortest, 0, shortest->rounds.size()),
                                       middle(*longest, 0, longest->rounds.size()));
  return growth;
}

}  // namespace weir::lab
