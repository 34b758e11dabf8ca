// The derived figures, the text report and the line every N rounds. Sums in integers of nanoseconds,
// divisions last, so that the text is the same wherever the account is. JSON is in report_json.cpp.
#include "ledger/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <vector>

#include "base/log.h"
#include "base/stats.h"

namespace weir {
namespace {

constexpr int unattributed = static_cast<int>(Role::unattributed);

double ms(uint64_t ns) { return static_cast<double>(ns) / 1e6; }
double seconds(uint64_t ns) { return static_cast<double>(ns) / 1e9; }

/// "1 round", "2 rounds".
std::string plural(uint64_t count, const char* noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

std::string cell(bool present, double value, int width, int decimals) {
  return present ? fmt::format("{:>{}.{}f}", value, width, decimals) : fmt::format("{:>{}}", "-", width);
}

struct Out {
  std::string text;
  template <typename... Args>
  void line(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(text), format, std::forward<Args>(args)...);
    text += '\n';
  }
};

void append_heading(Out& out, const Ledger& ledger) {
  uint64_t wall = 0, named = 0;
  std::string parts;
  for (int p = 0; p < phase_count; ++p) {
    const PhaseAccount& account = ledger.phase(static_cast<Phase>(p));
    if (account.wall_ns == 0) continue;
    wall += account.wall_ns;
    named += account.wall_ns - account.roles[unattributed].per_round.sum_ns;
    parts += fmt::format("{}{} {:.3f} s", parts.empty() ? "" : " + ", phase_name(static_cast<Phase>(p)),
                         seconds(account.wall_ns));
  }
  out.line("ledger: {:.3f} s wall = {}; {:.2f} % attributed", seconds(wall),
           parts.empty() ? "nothing" : parts, 100 * ratio(named, wall));
}

void append_round_times(Out& out, const Ledger& ledger, Phase phase) {
  const Tally& rounds = ledger.phase(phase).rounds;
  if (rounds.count == 0) return;
  const RoundQuantiles kept = round_quantiles(ledger, phase);
  std::string quantiles, of;
  if (kept.rounds > 0)
    quantiles = fmt::format("p50 {:.3f}, p90 {:.3f}, p99 {:.3f}, ", kept.p50_ns / 1e6, kept.p90_ns / 1e6,
                            kept.p99_ns / 1e6);
  if (kept.rounds == 0)
    of = " (no quantiles: these rounds left the ring)";
  else if (kept.rounds < rounds.count)
    of = fmt::format(" (quantiles of the last {})", kept.rounds);
  out.line("  round ms: min {:.3f}, {}max {:.3f}{}", ms(rounds.min_ns), quantiles, ms(rounds.max_ns), of);
}

void append_role(Out& out, const PhaseAccount& account, int index) {
  const RoleAccount& role = account.roles[index];
  const uint64_t ns = role.per_round.sum_ns;
  const uint64_t rounds = account.rounds.count;
  out.line("  {:<14}{:>11.3f}{:>9.2f}{}{}{}{}", role_name(static_cast<Role>(index)), ms(ns),
           100 * ratio(ns, account.wall_ns), cell(rounds > 0, ratio(ns, rounds) / 1e3, 12, 1),
           cell(role.bytes > 0, static_cast<double>(role.bytes) / 1e9, 10, 3),
           // Bytes per nanosecond are GB/s.
           cell(role.bytes > 0 && ns > 0, ratio(role.bytes, ns), 9, 2),
           cell(role.hidden_ns > 0, ms(role.hidden_ns), 12, 3));
}

void append_table(Out& out, const PhaseAccount& account) {
  out.line("  {:<14}{:>11}{:>9}{:>12}{:>10}{:>9}{:>12}", "role", "ms", "% wall", "us/round", "GB", "GB/s",
           "hidden ms");
  for (int r = 0; r < role_count; ++r)
    if (r == unattributed || account.roles[r].ran()) append_role(out, account, r);
  const uint64_t rounds = account.rounds.count;
  out.line("  {:<14}{:>11.3f}{:>9.2f}{}", "total", ms(account.wall_ns), 100.0,
           cell(rounds > 0, ratio(account.wall_ns, rounds) / 1e3, 12, 1));
}

void append_traffic(Out& out, const PhaseAccount& account) {
  const PhaseFigures f = phase_figures(account);
  const ExpertCounters& e = account.experts;
  if (e.hits + e.misses > 0)
    out.line("  experts: {}, {}, hit rate {:.2f} %", plural(e.hits, "hit"),
             e.misses == 1 ? "1 miss" : fmt::format("{} misses", e.misses), 100 * f.hit_rate);
  if (e.reads > 0)
    out.line(
        "  reads: {}, {:.3f} GB, {:.3f} MB a token, {:.3f} GB/s over {:.3f} ms busy; {:.3f} ms hidden, "
        "{:.3f} ms exposed",
        e.reads, static_cast<double>(e.bytes_read) / 1e9, f.bytes_per_token / 1e6,
        f.read_bytes_per_second / 1e9, ms(e.read_busy_ns), ms(f.hidden_read_ns), ms(f.exposed_read_ns));
  if (account.tasks > 0)
    out.line("  workers: {}, {:.3f} ms busy, {:.3f} ms at barriers ({:.2f} % of worker time)",
             plural(account.tasks, "task"), ms(account.worker_busy_ns), ms(account.worker_barrier_ns),
             100 * f.barrier_share);
}

void append_phase(Out& out, const Ledger& ledger, Phase phase) {
  const PhaseAccount& account = ledger.phase(phase);
  if (account.empty()) return;
  out.line("{}: {}, {}, {}, {:.3f} s, {:.2f} tok/s", phase_name(phase), plural(account.rounds.count, "round"),
           plural(account.rows, "row"), plural(account.tokens, "token"), seconds(account.wall_ns),
           phase_figures(account).tokens_per_second);
  append_round_times(out, ledger, phase);
  append_table(out, account);
  append_traffic(out, account);
  if (account.injected_rounds > 0)
    out.line("  DELAY INJECTED: {:.1f} us into {} in {} of {} rounds",
             static_cast<double>(ledger.options().inject_ns) / 1e3, role_name(ledger.options().inject_role),
             account.injected_rounds, account.rounds.count);
}

/// What the ring still has of the last `count` rounds of a phase, added up.
struct Window {
  uint64_t rounds = 0, wall_ns = 0, tokens = 0;
  std::array<uint64_t, role_count> role_ns{};
  ExpertCounters experts;
};

Window last_rounds(const std::vector<RoundReport>& ring, Phase phase, uint64_t count) {
  Window window;
  for (auto round = ring.rbegin(); round != ring.rend() && window.rounds < count; ++round) {
    if (round->phase != phase) continue;
    ++window.rounds;
    window.wall_ns += round->end_ns - round->begin_ns;
    window.tokens += round->tokens;
    for (int r = 0; r < role_count; ++r) window.role_ns[r] += round->role_ns[r];
    window.experts.hits += round->experts.hits;
    window.experts.misses += round->experts.misses;
    window.experts.bytes_read += round->experts.bytes_read;
  }
  return window;
}

/// The four largest named roles, then unattributed: "attention 40.0 %, ...".
std::string largest_roles(const Window& window) {
  std::array<int, unattributed> order;
  for (int r = 0; r < unattributed; ++r) order[r] = r;
  std::stable_sort(order.begin(), order.end(),
                   [&](int a, int b) { return window.role_ns[a] > window.role_ns[b]; });
  std::string text;
  for (int i = 0; i < 4 && window.role_ns[order[i]] > 0; ++i)
    text += fmt::format("{} {:.1f} %, ", role_name(static_cast<Role>(order[i])),
                        100 * ratio(window.role_ns[order[i]], window.wall_ns));
  return text +
         fmt::format("unattributed {:.1f} %", 100 * ratio(window.role_ns[unattributed], window.wall_ns));
}

}  // namespace

PhaseFigures phase_figures(const PhaseAccount& account) {
  PhaseFigures f;
  const ExpertCounters& e = account.experts;
  f.tokens_per_second = 1e9 * ratio(account.tokens, account.wall_ns);
  f.coverage = ratio(account.wall_ns - account.roles[unattributed].per_round.sum_ns, account.wall_ns);
  f.hit_rate = ratio(e.hits, e.hits + e.misses);
  f.bytes_per_token = ratio(e.bytes_read, account.tokens);
  f.read_bytes_per_second = 1e9 * ratio(e.bytes_read, e.read_busy_ns);
  f.exposed_read_ns = account.roles[static_cast<int>(Role::expert_wait)].per_round.sum_ns;
  f.hidden_read_ns = e.read_busy_ns > f.exposed_read_ns ? e.read_busy_ns - f.exposed_read_ns : 0;
  f.barrier_share = ratio(account.worker_barrier_ns, account.worker_busy_ns + account.worker_barrier_ns);
  return f;
}

RoundQuantiles round_quantiles(const Ledger& ledger, Phase phase) {
  std::vector<double> times;
  for (const RoundReport& round : ledger.ring())
    if (round.phase == phase) times.push_back(static_cast<double>(round.end_ns - round.begin_ns));
  if (times.empty()) return {};
  return {times.size(), quantile(times, 0.5), quantile(times, 0.9), quantile(times, 0.99)};
}

std::string report_text(const Ledger& ledger) {
  Out out;
  append_heading(out, ledger);
  for (int p = 0; p < phase_count; ++p) append_phase(out, ledger, static_cast<Phase>(p));
  if (const auto& clock = ledger.device_clock())
    out.line("device clock: steps of {:.3f} us, tied to the host's within {:.3f} us",
             static_cast<double>(clock->tick_ns) / 1e3, static_cast<double>(clock->bound_ns) / 1e3);
  out.line("dropped: {} from the ring of {}, {} from the trace", plural(ledger.rounds_dropped(), "round"),
           ledger.options().ring_rounds, plural(ledger.spans_dropped(), "span"));
  out.line(
      "Each instant is charged to one role, so ms and % wall add up to the total; GB are declared bytes; "
      "hidden ms");
  out.line("ran behind other work and is in no sum.");
  return out.text;
}

std::string round_line(const Ledger& ledger) {
  const std::vector<RoundReport> ring = ledger.ring();
  if (ring.empty()) return {};
  const Phase phase = ring.back().phase;
  const auto every = static_cast<uint64_t>(std::max(ledger.options().log_every, 1));
  const Window w = last_rounds(ring, phase, every);
  std::string line =
      fmt::format("ledger: {} round {}, last {}: {:.3f} ms a round, {:.2f} tok/s; {}", phase_name(phase),
                  ledger.phase(phase).rounds.count, w.rounds, ms(w.wall_ns) / static_cast<double>(w.rounds),
                  1e9 * ratio(w.tokens, w.wall_ns), largest_roles(w));
  if (w.experts.hits + w.experts.misses > 0)
    line += fmt::format("; hit rate {:.1f} %, {:.3f} MB read a round",
                        100 * ratio(w.experts.hits, w.experts.hits + w.experts.misses),
                        ratio(w.experts.bytes_read, w.rounds) / 1e6);
  return line;
}

void log_round_line(const Ledger* ledger) {
  if (ledger && ledger->line_due()) log_line(round_line(*ledger));
}

}  // namespace weir
