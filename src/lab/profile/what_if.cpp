#include "lab/profile/what_if.h"

#include <algorithm>

#include "base/error.h"
#include "base/stats.h"
#include "lab/profile/analysis.h"

namespace weir::lab {

namespace {

/// Median over the runs of the rounds without a delay, by position; nothing where every run had one.
std::vector<std::optional<double>> undelayed_medians(const std::vector<DelayedRun>& runs, size_t rounds) {
  std::vector<std::optional<double>> medians(rounds);
  for (size_t i = 0; i < rounds; ++i) {
    std::vector<double> times;
    for (const DelayedRun& run : runs)
      if (run.delay_ns[i] == 0) times.push_back(run.time_ns[i]);
    if (!times.empty()) medians[i] = median(times);
  }
  return medians;
}

/// How much slower or faster than the others a run was throughout.
double offset_of(const DelayedRun& run, const std::vector<std::optional<double>>& medians) {
  std::vector<double> differences;
  for (size_t i = 0; i < medians.size(); ++i)
    if (medians[i] && run.delay_ns[i] == 0) differences.push_back(run.time_ns[i] - *medians[i]);
  return differences.empty() ? 0 : median(differences);
}

/// Least squares across the runs at one position; nothing where the delay did not vary.
std::optional<double> slope_at(const std::vector<DelayedRun>& runs, const std::vector<double>& offsets,
                               size_t round) {
  const auto n = static_cast<double>(runs.size());
  double mean_x = 0, mean_y = 0;
  for (size_t r = 0; r < runs.size(); ++r) {
    mean_x += runs[r].delay_ns[round] / n;
    mean_y += (runs[r].time_ns[round] - offsets[r]) / n;
  }
  double xx = 0, xy = 0;
  for (size_t r = 0; r < runs.size(); ++r) {
    const double x = runs[r].delay_ns[round] - mean_x;
    xx += x * x;
    xy += x * (runs[r].time_ns[round] - offsets[r] - mean_y);
  }
  return xx > 0 ? std::optional<double>(xy / xx) : std::nullopt;
}

struct Timed {
  DelayedRun round, own;
};

/// The delay is what the spin took, which on a busy machine is more than what was asked.
Timed timed(const ProfileRun& run, Role role) {
  Timed t;
  for (const RoundReport& round : run.rounds) {
    const auto delay = static_cast<double>(round.injected_ns);
    t.round.time_ns.push_back(static_cast<double>(round.end_ns - round.begin_ns));
    t.round.delay_ns.push_back(delay);
    t.own.time_ns.push_back(static_cast<double>(round.role_ns[static_cast<size_t>(role)]));
    t.own.delay_ns.push_back(delay);
  }
  return t;
}

/// Sorts the roles into those that ran, those of them to delay, and those asked for in vain; each in the
/// order of the table. Returns those to delay.
std::vector<Role> roles_to_delay(const PhaseAccount& decode, const std::vector<Role>& wanted,
                                 WhatIf& result) {
  std::vector<Role> roles;
  for (int r = 0; r < static_cast<int>(Role::unattributed); ++r) {
    const auto role = static_cast<Role>(r);
    const bool asked = std::find(wanted.begin(), wanted.end(), role) != wanted.end();
    const bool runs = decode.roles[static_cast<size_t>(r)].switches > 0;
    if (runs) result.ran.push_back(role);
    if (runs && (asked || wanted.empty())) roles.push_back(role);
    if (!runs && asked) result.never_ran.push_back(role);
  }
  if (roles.empty()) throw input_error("--role: {}", never_ran_text(result));
  return roles;
}

/// All generations of one experiment on one engine, with the same tokens.
class Driver {
 public:
  Driver(Engine& engine, const FittedPrompt& prompt, const WhatIfRequest& request)
      : engine_(engine), prompt_(prompt), request_(request) {}

  std::optional<ProfileRun> run(Role role, uint64_t delay_ns, uint64_t seed) {
    engine_.ledger()->inject(role, delay_ns, seed);
    auto run = run_prompt(engine_, prompt_, request_.profile);
    engine_.ledger()->inject(Role::unattributed, 0, 0);
    if (!run) return run;
    if (hash_ && *hash_ != run->tokens_hash)
      throw failure("{}: a delay in {} changed the tokens of {}", engine_.model().path(), role_name(role),
                    prompt_.name);
    hash_ = run->tokens_hash;
    return run;
  }

 private:
  Engine& engine_;
  const FittedPrompt& prompt_;
  const WhatIfRequest& request_;
  std::optional<uint64_t> hash_;
};

uint64_t chosen_delay(const WhatIfRequest& request, double median_round_ns) {
  if (request.delay_ns > 0) return request.delay_ns;
  return std::max<uint64_t>(50'000, static_cast<uint64_t>(median_round_ns / 5));
}

}  // namespace

std::optional<Slope> delay_slope(const std::vector<DelayedRun>& runs) {
  if (runs.empty()) return std::nullopt;
  const size_t rounds = runs.front().time_ns.size();
  for (const DelayedRun& run : runs)
    WEIR_CHECK(run.time_ns.size() == rounds && run.delay_ns.size() == rounds, "{} and {} of {} rounds",
               run.time_ns.size(), run.delay_ns.size(), rounds);
  const auto medians = undelayed_medians(runs, rounds);
  std::vector<double> offsets, slopes;
  for (const DelayedRun& run : runs) offsets.push_back(offset_of(run, medians));
  for (size_t i = 0; i < rounds; ++i)
    if (medians[i])
      if (const auto slope = slope_at(runs, offsets, i)) slopes.push_back(*slope);
  const auto interval = median_interval(slopes);
  if (!interval) return std::nullopt;
  return Slope{median(slopes), interval->low, interval->high, interval->coverage,
               static_cast<int>(slopes.size())};
}

int what_if_generations(const WhatIfRequest& request) {
  const int roles = request.roles.empty() ? role_count - 1 : static_cast<int>(request.roles.size());
  return 1 + request.runs * (1 + roles);
}

std::optional<WhatIf> measure_what_if(Engine& engine, const FittedPrompt& prompt,
                                      const WhatIfRequest& request) {
  WhatIf result;
  result.settings = profile_settings(engine, request.profile);
  result.prompt = prompt.name;
  result.prompt_tokens = static_cast<int>(prompt.tokens.size());
  result.runs = request.runs;
  Driver driver(engine, prompt, request);
  // Not counted: it brings the slots into the state that every later run begins and ends with.
  const auto warm = driver.run(Role::unattributed, 0, 0);
  if (!warm) return std::nullopt;
  std::vector<double> walls;
  for (const RoundReport& round : warm->rounds)
    walls.push_back(static_cast<double>(round.end_ns - round.begin_ns));
  result.median_round_ns = median(walls);
  result.delay_ns = chosen_delay(request, result.median_round_ns);

  std::vector<ProfileRun> plain;
  const std::vector<Role> roles = roles_to_delay(warm->decode, request.roles, result);
  std::vector<std::vector<Timed>> delayed(roles.size());
  // Every role once, then all of them again: a drift of the machine meets all alike.
  for (int i = 0; i < request.runs; ++i) {
    auto run = driver.run(Role::unattributed, 0, 0);
    if (!run) return std::nullopt;
    plain.push_back(std::move(*run));
    const uint64_t delay = result.delay_ns * (i % 2 == 0 ? 1 : 2);
    for (size_t r = 0; r < roles.size(); ++r) {
      const auto slow = driver.run(roles[r], delay, static_cast<uint64_t>(i) + 1);
      if (!slow) return std::nullopt;
      delayed[r].push_back(timed(*slow, roles[r]));
    }
  }
  const PhaseAccount decode = total_decode(plain);
  for (size_t r = 0; r < roles.size(); ++r) {
    std::vector<DelayedRun> round, own;
    const auto add = [&](Timed t) {
      round.push_back(std::move(t.round));
      own.push_back(std::move(t.own));
    };
    for (const ProfileRun& run : plain) add(timed(run, roles[r]));
    for (Timed& t : delayed[r]) add(std::move(t));
    result.roles.push_back(
        {roles[r], ratio(role_ns(decode, roles[r]), decode.wall_ns), delay_slope(round), delay_slope(own)});
  }
  sort_by_worth(result.roles);
  return result;
}

}  // namespace weir::lab
