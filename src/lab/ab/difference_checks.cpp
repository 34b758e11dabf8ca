// Checks of the differences: tests at refusal_level each, on pairs.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/stats.h"
#include "lab/ab/checks.h"
#include "lab/ab/statistics.h"

namespace weir::lab::ab {

namespace {

double percent(double log_ratio) { return 100 * std::expm1(log_ratio); }

Check tested(const char* name, double p, std::string detail) {
  return {name, p < refusal_level ? CheckState::failed : CheckState::passed, std::move(detail), p};
}

template <typename Field>
double sum_of(const std::vector<const Observation*>& runs, Field field) {
  double sum = 0;
  for (const Observation* o : runs) sum += static_cast<double>(field(*o));
  return sum;
}

/// +1, 0, -1: B better, nothing resolved, A better.
int direction(std::span<const double> log_ratios) {
  const auto e = estimate(log_ratios);
  return e ? e->direction() : 0;
}

}  // namespace

Check null_pairs_are_equal(std::span<const Pair> nulls) {
  constexpr const char* name = "null pairs";
  if (nulls.size() < 2)
    return {name,
            CheckState::failed,
            fmt::format("{} complete: nothing shows that an arm equals itself", nulls.size()),
            {}};
  const auto ratios = log_ratios(nulls);
  return tested(
      name, mean_is_zero_p(ratios),
      fmt::format("an arm against itself, {} pairs: mean {:+.2f} %, largest {:.2f} %", ratios.size(),
                  percent(mean(ratios)), percent(std::max(quantile(ratios, 1), -quantile(ratios, 0)))));
}

Check order_keeps_the_verdict(std::span<const Pair> pairs) {
  constexpr const char* name = "order";
  std::vector<double> all = log_ratios(pairs), a_first, b_first;
  for (const auto& pair : pairs) (pair.first == Side::a ? a_first : b_first).push_back(pair.log_ratio);
  if (a_first.size() < 2 || b_first.size() < 2)
    return {
        name, CheckState::failed, "every pair ran in one order: position cannot be told from the arms", {}};
  // A first: effect + bonus of the second place; B first: effect - bonus.
  const double p = means_are_equal_p(a_first, b_first), bonus = (mean(a_first) - mean(b_first)) / 2;
  Check check{
      name, CheckState::passed,
      fmt::format("A first {:+.2f} %, B first {:+.2f} %", percent(median(a_first)), percent(median(b_first))),
      p};
  if (p >= refusal_level) return check;
  std::vector<double> without;
  for (const auto& pair : pairs) without.push_back(pair.log_ratio - (pair.first == Side::a ? bonus : -bonus));
  const bool opposite = median(a_first) * median(b_first) < 0;
  const int with_it = direction(all);
  if (with_it != direction(without) || (with_it != 0 && opposite)) {
    check.state = CheckState::failed;
    check.detail += ": the verdict depends on which arm ran first";
  } else if (with_it == 0) {
    check.detail += ": an effect of position, but without it nothing would be resolved either";
  } else {
    check.detail += ": an effect of position, but both orders say the same";
  }
  return check;
}

Check differences_do_not_drift(std::span<const Pair> pairs) {
  const auto ratios = log_ratios(pairs);
  const double whole = slope(ratios) * static_cast<double>(ratios.empty() ? 0 : ratios.size() - 1);
  return tested(
      "drift", no_trend_p(ratios),
      fmt::format("the difference moves by {:+.2f} % from the first pair to the last", percent(whole)));
}

Check control_did_not_move(const Experiment& e, std::span<const Pair> pairs) {
  constexpr const char* name = "negative control";
  const std::string& role = e.design.negative_control;
  if (role.empty()) return {name, CheckState::skipped, "none declared", {}};
  const auto& roles = e.setting.roles;
  const auto found = std::find(roles.begin(), roles.end(), role);
  if (found == roles.end())
    return {name, CheckState::failed, fmt::format("the ledger has no role {}", role), {}};
  const auto column = static_cast<size_t>(found - roles.begin());
  std::vector<double> moves;  // of the role, as a share of the pair's mean time
  double of_a = 0, of_b = 0;
  for (const auto& pair : pairs) {
    const auto of_role = [column](const Observation& o) { return o.role_ns[column]; };
    const auto whole = [](const Observation& o) { return o.metric_ns; };
    const double a = sum_of(pair.a, of_role), b = sum_of(pair.b, of_role);
    of_a += a, of_b += b;
    moves.push_back(2 * (b - a) / (sum_of(pair.a, whole) + sum_of(pair.b, whole)));
  }
  if (of_a + of_b == 0)
    return {
        name, CheckState::failed, fmt::format("{} took no time in any run: it controls nothing", role), {}};
  return tested(name, mean_is_zero_p(moves),
                fmt::format("{}: {:+.2f} % of itself, {:+.3f} % of the run", role,
                            of_a > 0 ? 100 * (of_b / of_a - 1) : 100.0, 100 * mean(moves)));
}

}  // namespace weir::lab::ab
