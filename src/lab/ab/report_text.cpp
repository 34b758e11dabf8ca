// The report for people.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/log.h"
#include "base/quantity.h"
#include "base/stats.h"
#include "lab/ab/arms_table.h"
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

/// B as a person knows it: its text where that is short enough for a line.
std::string name_of_b(const Design& d) {
  constexpr size_t longest = 80;
  const std::string& text = d.arms[1];
  if (text.find_first_not_of(' ') == std::string::npos) return "B, without options of its own,";
  if (text.size() > longest || text.find('\n') != std::string::npos) return "B";
  return fmt::format("B, {},", text);
}

/// ", on 2 prompts"; nothing where commands had none.
std::string on_prompts(const Experiment& e) {
  const auto used = arms_table(e).prompts.size();
  if (used == 0 || (e.design.commands && e.design.prompts.front().hash == 0)) return {};
  return used == 1 ? ", on 1 prompt" : fmt::format(", on {} prompts", used);
}

std::string headline(const Experiment& e, const Verdict& v) {
  std::string text = verdict_line(e, v) + "\n";
  if (!v.estimate) return text;
  const Estimate& s = *v.estimate;
  text +=
      fmt::format("  B has {:.4f} times A's {}; {:.0f} % interval {:.4f} to {:.4f}\n", factor(s.log_ratio),
                  quantity(e.design), 100 * verdict_level, factor(s.low), factor(s.high));
  text += fmt::format("  {} pairs of {}: B won {}, A won {}, {} ties; sign-flip test p = {:.4f}\n",
                      s.wins + s.losses + s.ties, e.design.open_once ? "runs" : "openings", s.wins, s.losses,
                      s.ties, s.p);
  if (v.outcome == Outcome::unresolved && (s.low > 0 || s.high < 0))
    text += "  the interval leaves 1 out, but the sign-flip test does not agree\n";
  else if (v.outcome == Outcome::unresolved)
    text +=
        fmt::format("  an effect of {:.2f} % or more would have been, with this spread and number of pairs\n",
                    100 * std::expm1(s.smallest));
  if (e.design.allow_different_tokens)
    text += "  tokens were allowed to differ (--allow-different-tokens): see the checks\n";
  return text;
}

std::string arm_line(const Experiment& e, const std::string& prompt, Side side, const ArmFigures& f,
                     const std::string& ratio) {
  const bool ledger = !e.design.commands;
  return fmt::format("{:<28}{:<4}{:>14.3f}{:>7}{:>10}{:>14}{}\n", prompt, name(side), f.mean_value, f.runs,
                     ledger ? fmt::format("{:.1f} %", 100 * f.hit_rate) : "-",
                     ledger ? human_bytes(f.mean_bytes_read) : "-",
                     ratio.empty() ? "" : fmt::format("{:>12}", ratio));
}

/// A long path without its folders: the setting has it whole.
std::string shortened(const std::string& name) {
  constexpr size_t longest = 27;
  return name.size() <= longest ? name : name.substr(name.rfind('/') + 1);
}

std::string arms(const Experiment& e, const Verdict& v) {
  const ArmsTable table = arms_table(e);
  std::string text = fmt::format("\n{:<28}{:<4}{:>14}{:>7}{:>10}{:>14}{:>12}\n", "paired runs, means", "arm",
                                 is_time(e.design) ? fmt::format("{} ms", name(e.design.metric)) : "figure",
                                 "runs", "hits", "read a run", "B over A");
  const auto add = [&](const std::string& prompt, const ArmsRow& row) {
    text += arm_line(e, prompt, Side::a, row.arms[0], "");
    text += arm_line(e, "", Side::b, row.arms[1],
                     v.estimate ? fmt::format("{:.4f}", factor(row.log_ratio)) : "-");
  };
  for (const auto& row : table.prompts)
    add(shortened(e.design.prompts[static_cast<size_t>(row.prompt)].name), row);
  if (table.prompts.size() > 1) add("all", table.whole);
  for (const Side side : {Side::a, Side::b}) {
    const auto& facts = e.setting.arms[index(side)];
    const std::string& arm = e.design.arms[index(side)];
    text += fmt::format("  {}: {} [", name(side), arm.empty() ? "no options of its own" : arm);
    if (!e.design.commands)
      text += fmt::format("{} slots a layer; {}; plan {}, ", facts.slots, facts.description,
                          human_bytes(facts.plan_bytes));
    text += fmt::format("peak memory {}]\n", human_bytes(table.peak_bytes[index(side)]));
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

std::string role_line(const RoleRow& row, size_t runs, double whole) {
  const auto ms = [&](auto ns) { return static_cast<double>(ns) * 1e-6 / static_cast<double>(runs); };
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
  for (const auto& row : table.rows) text += role_line(row, table.runs, whole);
  text += role_line(table.whole, table.runs, whole);
  std::string refunds;  // what is resolved and at least a hundredth of the whole's difference
  for (const auto& row : table.rows) {
    const bool resolved = row.interval && (row.interval->low > 0 || row.interval->high < 0);
    if (resolved && static_cast<double>(row.difference_ns) / whole < -0.01)
      refunds += (refunds.empty() ? "" : ", ") + row.role;
  }
  if (!refunds.empty()) text += fmt::format("  against the whole: {}\n", refunds);
  return text;
}

/// "(AB BA) AB bb BA": a word for each pair, a letter for the arm of each opening; the pilot in brackets,
/// null pairs in lower case.
std::string order(const Experiment& e) {
  std::vector<std::string> pilot, counted;
  const PlannedRun* before = nullptr;
  for (const auto& o : e.observations) {
    const PlannedRun& run = o.run;
    const bool of_pilot = run.kind == RunKind::pilot;
    const bool every_run = e.design.open_once && !of_pilot;
    if (before && run.opening == before->opening && !every_run) continue;
    auto& words = of_pilot ? pilot : counted;
    if (words.empty() || (of_pilot ? words.back().size() == 2 : run.block != before->block))
      words.emplace_back();
    const char letter = name(run.arm)[0];
    words.back() += run.kind == RunKind::null_pair ? static_cast<char>(letter - 'A' + 'a') : letter;
    before = &run;
  }
  return fmt::format("\norder of {}, seed {} (pilot in brackets; null pairs in lower case)\n  ({}) {}\n",
                     e.design.open_once ? "runs" : "openings", e.design.seed, fmt::join(pilot, " "),
                     fmt::join(counted, " "));
}

std::string observations(const Experiment& e) {
  const bool ledger = !e.design.commands;
  std::string text = fmt::format("\n{:>4}  {:<8}{:>5}  {:<6}{:<4}{:>8}{:>7}{:>14}{:>12}{:>9}{:>12}  {}\n",
                                 "run", "kind", "pair", "label", "arm", "opening", "prompt", "value",
                                 "start s", "hits", "read", ledger ? "tokens" : "");
  int number = 0;
  for (const auto& o : e.observations) {
    text +=
        fmt::format("{:>4}  {:<8}{:>5}  {:<6}{:<4}{:>8}{:>7}{:>14.4f}{:>12.3f}", ++number, name(o.run.kind),
                    o.run.pair < 0 ? "-" : std::to_string(o.run.pair + 1), name(o.run.label), name(o.run.arm),
                    o.run.opening + 1, o.run.prompt + 1, o.value, o.started_s);
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
    text += e.design.commands ? "\n"
                              : fmt::format(" ({}, hash {:016x})\n",
                                            weir::quantity(static_cast<uint64_t>(p.tokens), "token"), p.hash);
  }
  if (!e.design.commands)
    text += fmt::format("  tokens     {} new ones a run\n  cache      {}\n", e.design.predict,
                        name(e.design.cache));
  text += fmt::format("  seed       {}\n", e.design.seed);
  if (!e.design.numbers.empty()) text += fmt::format("  numbers    {}\n", e.design.numbers);
  if (!e.design.figure.empty()) text += fmt::format("  figure     {}\n", e.design.figure);
  text += fmt::format("  machine    {}, {} processors, {}; {}\n  build      {}\n", s.machine.processor,
                      s.machine.processors, human_bytes(s.machine.memory_bytes), s.machine.system,
                      s.machine.build);
  return text;
}

}  // namespace

std::string verdict_line(const Experiment& e, const Verdict& v) {
  if (!v.estimate) {
    const auto failures = std::count_if(v.checks.begin(), v.checks.end(),
                                        [](const Check& c) { return c.state == CheckState::failed; });
    return fmt::format("verdict: REFUSED, {} {} not hold", failures,
                       failures == 1 ? "condition does" : "conditions do");
  }
  std::string text = "verdict: ";
  if (v.outcome == Outcome::unresolved)
    text += "no difference resolved";
  else
    text += fmt::format("{} is {}", name_of_b(e.design),
                        is_time(e.design)              ? name(v.outcome)
                        : v.outcome == Outcome::faster ? "better"
                                                       : "worse");
  text += on_prompts(e);
  if (e.design.open_once) text += "; one opening of each: a difference between openings is not covered";
  return text;
}

std::string report_text(const Experiment& e, const Verdict& v, Detail detail) {
  std::string text = headline(e, v) + arms(e, v) + checks(v);
  if (v.estimate) text += roles(e);
  if (detail == Detail::observations) text += order(e) + observations(e);
  return text + setting(e) + "\n" + verdict_line(e, v) + "\n";
}

}  // namespace weir::lab::ab
