#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <tuple>

#include "base/quantity.h"
#include "lab/profile/report.h"
#include "lab/profile/what_if.h"

namespace weir::lab {

namespace {

using Json = nlohmann::ordered_json;

Json slope_json(const std::optional<Slope>& slope) {
  if (!slope) return nullptr;
  return {{"slope", slope->value},
          {"low", slope->low},
          {"high", slope->high},
          {"coverage", slope->coverage},
          {"rounds", slope->rounds}};
}

std::string interval(const Slope& s) { return fmt::format("{:.2f} to {:.2f}", s.low, s.high); }

/// What an engineer would say of it: only where the interval decides.
std::string verdict(const Slope& s) {
  if (s.low > 0.75) return "serial";
  if (s.high < 0.25) return "hidden";
  if (s.low > 0.25 && s.high < 0.75) return "partly hidden";
  return "not resolved";
}

std::string role_names(const std::vector<Role>& roles) {
  std::string names;
  for (const Role role : roles) names += (names.empty() ? "" : ", ") + std::string(role_name(role));
  return names;
}

}  // namespace

std::string never_ran_text(const WhatIf& result) {
  if (result.never_ran.empty()) return {};
  return fmt::format("{} never ran in decode, so there is nothing to delay: roles that ran are {}",
                     role_names(result.never_ran), role_names(result.ran));
}

void sort_by_worth(std::vector<Criticality>& roles) {
  std::stable_sort(roles.begin(), roles.end(), [](const Criticality& a, const Criticality& b) {
    return std::tuple(a.round.has_value(), a.worth()) > std::tuple(b.round.has_value(), b.worth());
  });
}

std::string what_if_advice(const WhatIf& result) {
  const Criticality* first = nullptr;
  std::vector<Role> hidden;
  for (const Criticality& c : result.roles) {
    if (!c.round) continue;
    if (verdict(*c.round) == "hidden") {
      hidden.push_back(c.role);
    } else if (c.worth() > 0 && (first == nullptr || c.worth() > first->worth())) {
      first = &c;
    }
  }
  if (first == nullptr)
    return "Advice: give more --runs: too few rounds were delayed to say which role the speed hangs on.";
  const auto percent = [&](double slope) { return 100 * std::min(1.0, std::max(0.0, first->share * slope)); };
  std::string text = fmt::format(
      "Advice: attack {} first: without its time a round would take {:.1f} % less ({:.1f} to {:.1f})",
      role_name(first->role), percent(first->round->value), percent(first->round->low),
      percent(first->round->high));
  if (!hidden.empty())
    text += fmt::format("; leave {} alone: {} hidden", role_names(hidden),
                        hidden.size() == 1 ? "it is" : "they are");
  return text + ".";
}

std::string what_if_text(const WhatIf& result, Layout layout) {
  const bool markdown = layout == Layout::markdown;
  const auto paragraph = [&](const std::string& text) {
    return markdown ? text + "\n" : wrap(text, 118, "  ");
  };
  std::string out = markdown ? "## What if a role were slower\n\n" : "What if a role were slower\n";
  out += paragraph(settings_text(result.settings));
  out += paragraph(fmt::format(
      "Prompt {} ({}), median decode round {:.3f} ms; {} without a delay and {} for each role, "
      "{:.0f} or {:.0f} us spun at its first entry in about half of the rounds; the tokens stayed the same.",
      result.prompt, quantity(static_cast<uint64_t>(result.prompt_tokens), "token"),
      result.median_round_ns / 1e6, quantity(static_cast<uint64_t>(result.runs), "run"), result.runs,
      static_cast<double>(result.delay_ns) / 1e3, static_cast<double>(result.delay_ns) / 500));
  Table table;
  table.header = {"role",    "share %",         "criticality", "95 % interval",
                  "verdict", "share x crit. %", "own time",    "rounds"};
  for (const Criticality& c : result.roles) {
    std::vector<std::string> row{role_name(c.role), fmt::format("{:.1f}", 100 * c.share)};
    if (c.round) {
      row.insert(row.end(),
                 {fmt::format("{:.2f}", c.round->value), interval(*c.round), verdict(*c.round),
                  fmt::format("{:.1f}", 100 * c.worth()), c.own ? fmt::format("{:.2f}", c.own->value) : "-",
                  fmt::format("{}", c.round->rounds)});
    } else {
      row.insert(row.end(), {"-", "-", "too few delays", "-", "-", "-"});
    }
    table.rows.push_back(std::move(row));
  }
  out += "\n" + print_table(table, layout) + "\n";
  if (!result.never_ran.empty()) out += paragraph("Not in the table: " + never_ran_text(result) + ".");
  out += paragraph(
      "Criticality is how much longer a round got for each unit of delay: near 1 the role's time is serial, "
      "near 0 it is hidden behind other work. Own time is the same for the role's own account. A delay in "
      "expert_wait runs while reads are in flight, so what the reads would have taken anyway hides it.");
  out += paragraph(what_if_advice(result));
  return out;
}

Json what_if_json(const WhatIf& result) {
  Json roles = Json::array();
  for (const Criticality& c : result.roles)
    roles.push_back({{"role", role_name(c.role)},
                     {"share", c.share},
                     {"criticality", slope_json(c.round)},
                     {"own", slope_json(c.own)}});
  Json never_ran = Json::array();
  for (const Role role : result.never_ran) never_ran.push_back(role_name(role));
  return {{"schema", "weir-what-if-1"},
          {"settings", settings_json(result.settings)},
          {"prompt", result.prompt},
          {"prompt_tokens", result.prompt_tokens},
          {"runs", result.runs},
          {"delay_ns", result.delay_ns},
          {"median_round_ns", result.median_round_ns},
          {"roles", roles},
          {"advice", what_if_advice(result)},
          {"never_ran", never_ran}};
}

}  // namespace weir::lab
