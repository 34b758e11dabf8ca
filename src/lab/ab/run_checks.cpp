// Checks of the runs: do they compare the same work, begun from the same state, fully accounted for?
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <vector>

#include "base/stats.h"
#include "lab/ab/checks.h"

namespace weir::lab::ab {

namespace {

Check skipped(const char* name, std::string why) { return {name, CheckState::skipped, std::move(why), {}}; }
Check passed(const char* name, std::string what) { return {name, CheckState::passed, std::move(what), {}}; }
Check failed(const char* name, std::string what) { return {name, CheckState::failed, std::move(what), {}}; }

constexpr const char* no_ledger = "arms are whole commands, which have no ledger";

/// The counted runs of each prompt and arm.
using Groups = std::map<int, std::array<std::vector<const Observation*>, 2>>;
Groups by_prompt_and_arm(const Experiment& e) {
  Groups groups;
  for (const auto& o : e.observations)
    if (o.run.kind != RunKind::pilot) groups[o.run.prompt][index(o.run.arm)].push_back(&o);
  return groups;
}

std::string prompt_name(const Experiment& e, int prompt) {
  return e.design.prompts[static_cast<size_t>(prompt)].name;
}

/// The first run of `runs` whose key is not the first one's; null where all are equal.
template <typename Key>
const Observation* odd_one(const std::vector<const Observation*>& runs, Key key) {
  for (const Observation* o : runs)
    if (key(*o) != key(*runs.front())) return o;
  return nullptr;
}

std::string pages_differ(const Experiment& e) {
  std::vector<double> gaps;
  for (const auto& pair : complete_pairs(e, RunKind::pair)) {
    for (size_t i = 0; i < pair.a.size(); ++i) {
      const auto &a = pair.a[i]->start.page_cache_bytes, &b = pair.b[i]->start.page_cache_bytes;
      if (a && b) gaps.push_back(static_cast<double>(*b) - static_cast<double>(*a));
    }
  }
  if (gaps.empty() || e.setting.model_bytes == 0) return {};
  const double share = median(gaps) / static_cast<double>(e.setting.model_bytes);
  if (std::abs(share) <= page_cache_tolerance) return {};
  return fmt::format(
      "B starts with {:+.1f} % of the model more in the page cache than A, and the options do not "
      "imply it",
      100 * share);
}

}  // namespace

Check tokens_are_equal(const Experiment& e) {
  constexpr const char* name = "equal tokens";
  if (e.design.commands) return skipped(name, no_ledger);
  const auto key = [](const Observation& o) { return std::pair(o.tokens_hash, o.tokens); };
  int different = 0;
  std::string first;
  for (const auto& [prompt, arms] : by_prompt_and_arm(e)) {
    for (const Side side : {Side::a, Side::b}) {
      if (const Observation* o = odd_one(arms[index(side)], key))
        return failed(name, fmt::format("arm {} does not repeat itself on prompt {}: {:016x}, then {:016x}",
                                        ab::name(side), prompt_name(e, prompt),
                                        arms[index(side)].front()->tokens_hash, o->tokens_hash));
    }
    if (arms[0].empty() || arms[1].empty() || key(*arms[0].front()) == key(*arms[1].front())) continue;
    if (different++ > 0) continue;
    first = fmt::format("prompt {}: A gave {} tokens {:016x}, B {} tokens {:016x}", prompt_name(e, prompt),
                        arms[0].front()->tokens, arms[0].front()->tokens_hash, arms[1].front()->tokens,
                        arms[1].front()->tokens_hash);
  }
  if (different == 0) return passed(name, "every run of a prompt gave the same");
  if (e.design.allow_different_tokens)
    return passed(name, fmt::format("THEY DIFFER on {} prompts, as --allow-different-tokens permits ({})",
                                    different, first));
  return failed(name, fmt::format("the arms do different work: {}", first));
}

Check starts_are_equal(const Experiment& e) {
  constexpr const char* name = "equal starts";
  if (e.design.commands) return skipped(name, no_ledger);
  const auto key = [](const Observation& o) { return std::pair(o.start.filled, o.start.fingerprint); };
  for (const auto& [prompt, arms] : by_prompt_and_arm(e)) {
    for (const Side side : {Side::a, Side::b}) {
      const auto& runs = arms[index(side)];
      if (const Observation* o = odd_one(runs, key))
        return failed(
            name, fmt::format("arm {} did not always start prompt {} from the same slots: {} of {} filled, "
                              "then {}",
                              ab::name(side), prompt_name(e, prompt), runs.front()->start.filled,
                              runs.front()->start.slots, o->start.filled));
      if (e.design.cache == CachePolicy::cold && !runs.empty() && runs.front()->start.filled > 0)
        return failed(name, fmt::format("arm {} started with {} slots filled, but the policy is cold",
                                        ab::name(side), runs.front()->start.filled));
    }
    if (!e.setting.same_slots || arms[0].empty() || arms[1].empty()) continue;
    const Observation &a = *arms[0].front(), &b = *arms[1].front();
    if (key(a) != key(b))
      return failed(
          name, fmt::format("prompt {}: A starts with {} slots filled and B with {}, not the same experts, "
                            "and the options do not imply it",
                            prompt_name(e, prompt), a.start.filled, b.start.filled));
  }
  if (e.setting.same_pages)
    if (auto why = pages_differ(e); !why.empty()) return failed(name, why);
  return passed(name, e.setting.same_slots ? "both arms, in every run of a prompt"
                                           : "each arm in every run of a prompt; the options imply that "
                                             "the arms differ");
}

Check wall_is_covered(const Experiment& e) {
  constexpr const char* name = "coverage";
  if (e.design.commands) return skipped(name, no_ledger);
  std::array<uint64_t, 2> wall{}, unknown{};
  for (const auto& o : e.observations) {
    if (o.run.kind == RunKind::pilot) continue;
    wall[index(o.run.arm)] += o.wall_ns, unknown[index(o.run.arm)] += o.unattributed_ns;
  }
  const auto coverage = [&](Side s) {
    return wall[index(s)] ? 1 - ratio(unknown[index(s)], wall[index(s)]) : 0.0;
  };
  const double a = coverage(Side::a), b = coverage(Side::b);
  auto detail = fmt::format("A {:.2f} %, B {:.2f} % of wall charged to a role", 100 * a, 100 * b);
  if (std::min(a, b) >= least_coverage) return passed(name, detail);
  return failed(name, detail + fmt::format(": under {:.0f} %", 100 * least_coverage));
}

Check little_was_stolen(const Experiment& e) {
  constexpr const char* name = "stolen time";
  constexpr double least_s = 0.2;  // the kernel counts in steps of 10 ms
  double stolen = 0, whole = 0;
  for (const auto& o : e.observations) {
    if (o.run.kind == RunKind::pilot) continue;
    if (!o.stolen_ns) return skipped(name, "the system does not tell what a hypervisor takes");
    stolen += static_cast<double>(*o.stolen_ns) * 1e-9;
    whole += o.took_s * std::max(1, e.setting.machine.processors);
  }
  const double share = whole > 0 ? stolen / whole : 0;
  auto detail = fmt::format("a hypervisor took {:.1f} % of the processors' time", 100 * share);
  if (share <= most_stolen || stolen < least_s) return passed(name, detail);
  return failed(name, detail + fmt::format(": over {:.0f} %, other machines on this host are at work",
                                           100 * most_stolen));
}

}  // namespace weir::lab::ab
