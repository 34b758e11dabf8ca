#include <fmt/format.h>

#include "base/log.h"
#include "base/quantity.h"
#include "base/stats.h"
#include "lab/profile/analysis.h"
#include "lab/profile/levers.h"
#include "lab/profile/report.h"
#include "ledger/report.h"

namespace weir::lab {

namespace {

constexpr size_t text_width = 118;

double ms(uint64_t ns) { return static_cast<double>(ns) / 1e6; }
std::string fixed(double value, int decimals) { return fmt::format("{:.{}f}", value, decimals); }
std::string percent(double share, int decimals = 1) {
  return fmt::format("{:.{}f} %", 100 * share, decimals);
}

/// A heading, or a line in bold where the layout has it.
std::string heading(const std::string& title, Layout layout) {
  return layout == Layout::markdown ? "\n### " + title + "\n\n" : "\n" + title + "\n";
}

std::string paragraph(const std::string& text, Layout layout) {
  return layout == Layout::markdown ? text + "\n" : wrap(text, text_width, "  ");
}

/// Of prefill and decode together.
double coverage(const ProfileRun& run) {
  const uint64_t wall = run.prefill.wall_ns + run.decode.wall_ns;
  const uint64_t nameless =
      role_ns(run.prefill, Role::unattributed) + role_ns(run.decode, Role::unattributed);
  return ratio(wall - nameless, wall);
}

std::vector<std::string> summary_row(const std::string& name, const std::string& tokens,
                                     const PhaseAccount& prefill, const PhaseAccount& decode,
                                     double attributed) {
  const PhaseFigures p = phase_figures(prefill), d = phase_figures(decode);
  const bool experts = decode.experts.hits + decode.experts.misses > 0;
  return {name,
          tokens,
          fixed(ms(prefill.wall_ns), 1),
          fixed(p.tokens_per_second, 1),
          fixed(ms(decode.wall_ns), 1),
          fixed(d.tokens_per_second, 2),
          fixed(ms_per_token(decode, decode.wall_ns), 3),
          experts ? fixed(ms_per_token(decode, d.exposed_read_ns), 3) : "-",
          experts ? fixed(ms_per_token(decode, d.hidden_read_ns), 3) : "-",
          experts ? percent(d.hit_rate) : "-",
          experts ? fixed(d.bytes_per_token / 1e6, 3) : "-",
          decode.experts.reads > 0 ? fixed(d.read_bytes_per_second / 1e9, 2) : "-",
          percent(attributed, 2)};
}

Table summary_table(const Profile& profile) {
  Table table;
  table.header = {"prompt",  "tokens",      "prefill ms", "tok/s",  "decode ms", "tok/s",     "ms/token",
                  "wait ms", "hid read ms", "hits",       "MB/tok", "read GB/s", "attributed"};
  for (const ProfileRun& run : profile.runs)
    table.rows.push_back(summary_row(run.prompt, fmt::format("{}+{}", run.prompt_tokens, run.new_tokens),
                                     run.prefill, run.decode, coverage(run)));
  return table;
}

std::vector<std::string> role_row(const Profile& profile, const PhaseAccount& total, Role role) {
  std::vector<std::string> row{role_name(role)};
  const auto add = [&](const PhaseAccount& account) {
    row.push_back(fixed(ms_per_token(account, role_ns(account, role)), 3));
    row.push_back(fixed(100 * ratio(role_ns(account, role), account.wall_ns), 1));
  };
  for (const ProfileRun& run : profile.runs) add(run.decode);
  if (profile.runs.size() > 1) add(total);
  const RoleAccount& sum = total.roles[static_cast<size_t>(role)];
  row.push_back(sum.bytes > 0 ? fixed(ratio(sum.bytes, sum.per_round.sum_ns), 2) : "-");
  row.push_back(sum.hidden_ns > 0 ? fixed(ms_per_token(total, sum.hidden_ns), 3) : "-");
  const Growth growth = growth_of(role, profile.runs);
  const Trend& trend = growth.prompts ? *growth.prompts : growth.quarters;
  row.push_back(trend.kind == Trend::Kind::unknown || trend.from_ns <= 0 ? "-" : fixed(trend.ratio(), 2));
  return row;
}

Table role_table(const Profile& profile, const PhaseAccount& total) {
  Table table;
  table.header = {"role"};
  for (const ProfileRun& run : profile.runs) {
    table.header.push_back(run.prompt);
    table.header.push_back("%");
  }
  if (profile.runs.size() > 1) {
    table.header.push_back("all");
    table.header.push_back("%");
  }
  for (const char* column : {"GB/s", "hidden", "growth"}) table.header.push_back(column);
  for (int r = 0; r < role_count; ++r)
    if (total.roles[static_cast<size_t>(r)].ran() || static_cast<Role>(r) == Role::unattributed)
      table.rows.push_back(role_row(profile, total, static_cast<Role>(r)));
  std::vector<std::string> sum{"total"};
  for (const ProfileRun& run : profile.runs) {
    sum.push_back(fixed(ms_per_token(run.decode, run.decode.wall_ns), 3));
    sum.push_back("100.0");
  }
  if (profile.runs.size() > 1) {
    sum.push_back(fixed(ms_per_token(total, total.wall_ns), 3));
    sum.push_back("100.0");
  }
  table.rows.push_back(sum);
  return table;
}

std::string describe(const Trend& trend) {
  return fmt::format("{:.3f} ms a round near position {:.0f}, {:.3f} ms near {:.0f} ({})",
                     trend.from_ns / 1e6, trend.from_position, trend.to_ns / 1e6, trend.to_position,
                     trend_name(trend.kind));
}

std::string finding(const Profile& profile, const PhaseAccount& total) {
  const auto largest = largest_role(total);
  if (!largest) return "no time was charged to any role";
  const uint64_t ns = role_ns(total, *largest);
  const Growth growth = growth_of(*largest, profile.runs);
  std::string verdict;
  switch (growth.kind()) {
    case Trend::Kind::flat:
      verdict = "it is flat: the context does not change it";
      break;
    case Trend::Kind::grows:
      verdict = "it grows with the context";
      break;
    case Trend::Kind::shrinks:
      verdict = "it is smaller where the context is longer";
      break;
    case Trend::Kind::unknown:
      verdict = "too few rounds to say whether it grows with the context";
      break;
  }
  std::string text = fmt::format("{} ({}): {:.3f} ms a token, {} of decode; {}.", role_name(*largest),
                                 role_description(*largest), ms_per_token(total, ns),
                                 percent(ratio(ns, total.wall_ns)), verdict);
  if (growth.prompts && growth.prompts->kind != Trend::Kind::unknown)
    text += fmt::format(" {} against {}: {}, {:+.3f} ms in 1,000 positions.", growth.shortest, growth.longest,
                        describe(*growth.prompts), growth.prompts->ns_per_1000_positions() / 1e6);
  if (growth.quarters.kind != Trend::Kind::unknown)
    text += fmt::format(" First against last quarter of {}: {}.", growth.longest, describe(growth.quarters));
  return text;
}

std::string lever_text(const Lever& lever, Layout layout) {
  const std::string gain = lever.gain ? fmt::format("{}{:+.1f} % speed ({:+.1f} to {:+.1f})",
                                                    lever.at_most ? "at most " : "", 100 * (*lever.gain - 1),
                                                    100 * (lever.gain_low - 1), 100 * (lever.gain_high - 1))
                                      : "no prediction";
  const std::string line = fmt::format("{}{} ({}): {}; {}.", layout == Layout::markdown ? "* " : "",
                                       lever.attacks_largest ? lever.name + " [largest block]" : lever.name,
                                       lever.setting, gain, lever.how);
  return layout == Layout::markdown ? line + "\n" : "  " + wrap(line, text_width - 2, "      ");
}

std::string curve_text(const Profile& profile, Layout layout) {
  Table table;
  table.header = {"slots", "decode hits", "misses/token"};
  const PhaseAccount total = total_decode(profile.runs);
  for (const SlotTraffic& point : profile.curve)
    table.rows.push_back(
        {fmt::format("{}{}", point.slots, point.slots == profile.settings.slots ? " (in use)" : ""),
         percent(ratio(point.hits, point.hits + point.misses)), fixed(ratio(point.misses, total.tokens), 2)});
  const SlotTraffic* used = nullptr;
  for (const SlotTraffic& point : profile.curve)
    if (point.slots == profile.settings.slots) used = &point;
  std::string text =
      heading("Recorded routing, replayed for other slots", layout) + print_table(table, layout);
  if (used != nullptr)
    text += paragraph(
        fmt::format(
            "The engine counted {} and {} since it was loaded, the replay {} and {}{}.",
            quantity(profile.counted.hits, "hit"), quantity(profile.counted.misses, "miss", "misses"),
            used->all_hits, used->all_misses,
            used->all_misses == profile.counted.misses ? "" : ": they DIFFER, do not trust the curve"),
        layout);
  return text;
}

}  // namespace

std::string settings_text(const ProfileSettings& s) {
  std::string text = fmt::format("{}; {}; context {}", s.model, s.device, s.context);
  if (s.experts > 0)
    text += fmt::format("; {} of {} experts in slots, {} used by a row, policy {}", s.slots, s.experts,
                        s.experts_used, policy_name(s.policy));
  text += fmt::format("; budget {}, planned {}", human_bytes(s.budget_bytes), human_bytes(s.plan_bytes));
  text += fmt::format("; {}, temperature {:g}, top-k {}, top-p {:g}, seed {}",
                      quantity(static_cast<uint64_t>(s.new_tokens), "new token"), s.temperature, s.top_k,
                      s.top_p, s.seed);
  return text;
}

std::string profile_text(const Profile& profile, Layout layout) {
  const PhaseAccount total = total_decode(profile.runs);
  std::string out = layout == Layout::markdown ? "## Decode profile\n\n" : "Decode profile\n";
  out += paragraph(settings_text(profile.settings), layout);
  for (const ProfileRun& run : profile.runs)
    if (run.prompt_tokens < run.text_tokens)
      out += paragraph(fmt::format("{} was cut to its first {} of {} tokens: the context is {}.", run.prompt,
                                   run.prompt_tokens, run.text_tokens, profile.settings.context),
                       layout);
  out += heading("Prompts", layout) + print_table(summary_table(profile), layout);
  out += heading("Decode by role, ms a token and share", layout);
  out += print_table(role_table(profile, total), layout);
  out += heading("Largest block", layout) + paragraph(finding(profile, total), layout);
  out += heading("Levers", layout);
  const std::vector<Lever> all = levers(profile);
  for (const Lever& lever : all) out += lever_text(lever, layout);
  out += paragraph(lever_advice(profile, all), layout);
  if (!profile.curve.empty()) out += curve_text(profile, layout);
  out += heading("Memory", layout);
  out += paragraph(
      fmt::format("Peak {} resident and {} page cache of the model, budget {}.",
                  human_bytes(profile.memory.peak_rss),
                  profile.memory.peak_page_cache ? human_bytes(*profile.memory.peak_page_cache) : "unknown",
                  human_bytes(profile.settings.budget_bytes)),
      layout);
  return out;
}

}  // namespace weir::lab
