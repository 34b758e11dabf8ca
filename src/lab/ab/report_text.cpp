// The report for people.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/log.h"
#include "base/stats.h"
#include "lab/ab/report.h"
#include "lab/ab/role_table.h"

namespace weir::lab::ab {

namespace {

bool is_time(const Design& d) { return d.metric != Metric::figure; }

/// 1.0432 of a log ratio.
double factor(double log_ratio) { return std::exp(log_ratio); }

std::string quantity(const Design& d) {
  switch (d.metric) {
    case Metric::decode:
      return "decode speed";
    case Metric::prefill:
      return "prefill speed";
    case Metric::total:
      return "speed over the whole generation";
    case Metric::command_wall:
      return "speed";
    case Metric::figure:
      break;
  }
  return d.higher_is_better ? "figure (higher is better)" : "figure (lower is better), as a gain";
}

std::string headline(const Experiment& e, const Verdict& v) {
  if (!v.estimate) {
    const auto failures = std::count_if(v.checks.begin(), v.checks.end(),
                                        [](const Check& c) { return c.state == CheckState::failed; });
    return fmt::format("verdict: REFUSED, {} {} not hold\n", failures,
                       failures == 1 ? "condition does" : "conditions do");
  }
  const Estimate& s = *v.estimate;
  std::string text;
  if (v.outcome == Outcome::unresolved)
    text = fmt::format(
        "verdict: no difference resolved\n  an effect of {:.2f} % or more would have been, with this "
        "spread and number of pairs\n",
        100 * std::expm1(s.smallest));
  else
    text = fmt::format("verdict: B is {}\n", is_time(e.design)              ? name(v.outcome)
                                             : v.outcome == Outcome::faster ? "better"
                                                                            : "worse");
  text +=
      fmt::format("  B has {:.4f} times A's {}; {:.1f} % interval {:.4f} to {:.4f}\n", factor(s.log_ratio),
                  quantity(e.design), 100 * s.coverage, factor(s.low), factor(s.high));
  text += fmt::format("  {} pairs: B won {}, A won {}, {} ties; sign test p = {:.4f}\n",
                      s.wins + s.losses + s.ties, s.wins, s.losses, s.ties, s.p);
  if (e.design.allow_different_tokens)
    text += "  tokens were allowed to differ (--allow-different-tokens): see the checks\n";
  return text;
}

std::string arms(const Experiment& e) {
  std::string text = fmt::format("\n{:<5}{:>16}{:>7}{:>10}{:>14}{:>14}{:>14}\n", "arm",
                                 is_time(e.design) ? fmt::format("{} ms", name(e.design.metric)) : "figure",
                                 "runs", "hits", "read a run", "peak memory", "plan");
  for (const Side side : {Side::a, Side::b}) {
    const ArmSummary s = summarise(e, side);
    const bool ledger = !e.design.commands;
    text += fmt::format("{:<5}{:>16.3f}{:>7}{:>10}{:>14}{:>14}{:>14}\n", name(side), s.median_value, s.runs,
                        ledger ? fmt::format("{:.1f} %", 100 * s.hit_rate) : "-",
                        ledger ? human_bytes(s.median_bytes_read) : "-", human_bytes(s.peak_bytes),
                        ledger ? human_bytes(e.setting.arms[index(side)].plan_bytes) : "-");
  }
  for (const Side side : {Side::a, Side::b}) {
    const auto& facts = e.setting.arms[index(side)];
    text += fmt::format("  {}: {}", name(side), e.design.arms[index(side)]);
    if (!e.design.commands) text += fmt::format(" [{} slots a layer; {}]", facts.slots, facts.description);
    text += "\n";
  }
  return text;
}

std::string checks(const Verdict& v) {
  std::string text = "\nchecks\n";
  for (const auto& c : v.checks) {
    const char* mark = c.state == CheckState::passed   ? "ok"
                       : c.state == CheckState::failed ? "REFUSED"
                                                       : "skipped";
    text += fmt::format("  {:<8} {:<17} {}", mark, c.name, c.detail);
    if (c.p) text += fmt::format(" (p {:.4f})", *c.p);
    text += "\n";
  }
  return text;
}

std::string role_line(const RoleRow& row, size_t pairs, double whole) {
  const auto ms = [&](auto ns) { return static_cast<double>(ns) * 1e-6 / static_cast<double>(pairs); };
  std::string text = fmt::format("  {:<14}{:>12.3f}{:>12.3f}{:>+12.3f}", row.role, ms(row.a_ns), ms(row.b_ns),
                                 ms(row.difference_ns));
  text += whole != 0 ? fmt::format("{:>9.1f} %", 100 * static_cast<double>(row.difference_ns) / whole)
                     : fmt::format("{:>11}", "-");
  if (row.interval)
    text += fmt::format("   {:+.3f} to {:+.3f}", row.interval->low * 1e-6, row.interval->high * 1e-6);
  return text + "\n";
}

std::string roles(const Experiment& e) {
  const auto pairs = complete_pairs(e, RunKind::pair);
  const RoleTable table = role_table(e, pairs);
  if (table.rows.empty()) return {};
  std::string text =
      fmt::format("\nroles, ms a run ({}; mean of {} pairs; differences add up to the whole's)\n",
                  name(e.design.metric), table.pairs);
  text += fmt::format("  {:<14}{:>12}{:>12}{:>12}{:>11}   {}\n", "role", "A", "B", "B - A", "of whole",
                      "median B - A, interval");
  const auto whole = static_cast<double>(table.whole.difference_ns);
  for (const auto& row : table.rows) text += role_line(row, table.pairs, whole);
  text += role_line(table.whole, table.pairs, whole);
  std::string refunds;  // what is resolved and at least a hundredth of the whole's difference
  for (const auto& row : table.rows) {
    const bool resolved = row.interval && (row.interval->low > 0 || row.interval->high < 0);
    if (resolved && static_cast<double>(row.difference_ns) / whole < -0.01)
      refunds += (refunds.empty() ? "" : ", ") + row.role;
  }
  if (!refunds.empty()) text += fmt::format("  against the whole: {}\n", refunds);
  return text;
}

/// "a b b a" in lower case for null blocks, "(a b b a)" for warm-ups.
std::string order(const Experiment& e) {
  std::string text =
      fmt::format("\norder, seed {} (warm-ups in brackets; null blocks in lower case, A in both parts)\n  ",
                  e.design.seed);
  int block = -1;
  bool open = false;
  for (const auto& o : e.observations) {
    if (o.run.kind == RunKind::warm_up && !open) text += "(", open = true;
    if (o.run.kind != RunKind::warm_up && open) text += ")", open = false;
    if (o.run.block != block) text += ' ', block = o.run.block;
    const char letter = name(o.run.label)[0];
    text += o.run.kind == RunKind::null_pair ? static_cast<char>(letter - 'A' + 'a') : letter;
  }
  return text + (open ? ")\n" : "\n");
}

std::string observations(const Experiment& e) {
  const bool ledger = !e.design.commands;
  std::string text =
      fmt::format("\n{:>4}  {:<8}{:>5}  {:<6}{:<4}{:>7}{:>14}{:>12}{:>9}{:>12}  {}\n", "run", "kind", "pair",
                  "label", "arm", "prompt", "value", "start s", "hits", "read", ledger ? "tokens" : "");
  int number = 0;
  for (const auto& o : e.observations) {
    text += fmt::format("{:>4}  {:<8}{:>5}  {:<6}{:<4}{:>7}{:>14.4f}{:>12.3f}", ++number, name(o.run.kind),
                        o.run.pair < 0 ? "-" : std::to_string(o.run.pair + 1), name(o.run.label),
                        name(o.run.arm), o.run.prompt + 1, o.value, o.started_s);
    if (ledger)
      text += fmt::format("{:>7.1f} %{:>12}  {:016x}", 100 * ratio(o.hits, o.hits + o.misses),
                          human_bytes(o.bytes_read), o.tokens_hash);
    text += "\n";
  }
  return text;
}

std::string setting(const Experiment& e) {
  const Setting& s = e.setting;
  std::string text = "\nsetting\n";
  if (!e.design.commands)
    text += fmt::format("  model      {} ({}, fingerprint {:016x})\n", e.design.model,
                        human_bytes(s.model_bytes), e.design.fingerprint);
  int number = 0;
  for (const auto& p : e.design.prompts) {
    text += fmt::format("  prompt {}   {}", ++number, p.name);
    text += e.design.commands ? "\n" : fmt::format(" ({} tokens, hash {:016x})\n", p.tokens, p.hash);
  }
  if (!e.design.commands)
    text += fmt::format("  tokens     {} new ones a run\n  cache      {}; {}\n", e.design.predict,
                        name(e.design.cache),
                        s.both_resident ? "both arms stay resident" : "an arm is loaded for each run");
  if (!e.design.figure.empty()) text += fmt::format("  figure     {}\n", e.design.figure);
  text += fmt::format("  machine    {}, {} processors, {}; {}\n  build      {}\n", s.machine.processor,
                      s.machine.processors, human_bytes(s.machine.memory_bytes), s.machine.system,
                      s.machine.build);
  return text;
}

}  // namespace

ArmSummary summarise(const Experiment& e, Side arm) {
  ArmSummary s;
  std::vector<double> values, bytes;
  uint64_t hits = 0, uses = 0;
  for (const auto& o : e.observations) {
    if (o.run.arm != arm) continue;
    s.peak_bytes = std::max(s.peak_bytes, o.peak_bytes);
    if (o.run.kind == RunKind::warm_up) continue;
    ++s.runs;
    values.push_back(o.value), bytes.push_back(static_cast<double>(o.bytes_read));
    hits += o.hits, uses += o.hits + o.misses;
  }
  if (s.runs == 0) return s;
  s.median_value = median(values);
  s.median_bytes_read = static_cast<uint64_t>(median(bytes));
  s.hit_rate = ratio(hits, uses);
  return s;
}

std::string report_text(const Experiment& e, const Verdict& v) {
  std::string text = headline(e, v) + arms(e) + checks(v);
  if (v.estimate) text += roles(e);
  return text + order(e) + observations(e) + setting(e);
}

}  // namespace weir::lab::ab
