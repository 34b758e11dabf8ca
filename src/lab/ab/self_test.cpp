#include "lab/ab/self_test.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/random.h"
#include "lab/ab/judge.h"
#include "lab/ab/schedule.h"
#include "lab/ab/synthetic.h"

namespace weir::lab::ab {

namespace {

constexpr double noise = 0.005;
constexpr double planted_effect = 0.02;
// What the command promises; with 10,000 experiments a share of 4 % is known to about 0.2 %.
constexpr double most_false_positives = 0.05, most_refusals = 0.05, least_found = 0.99;

constexpr Disturbance conditions[] = {
    {.name = "no drift"},
    {.name = "drift 0.3 % a run", .drift = 0.003},
    {.name = "warm-up to 5 %", .warm_up = 0.05},
    {.name = "0.5 % bonus for the second run", .second = 0.005},
    {.name = "0.5 % carried over after the other arm", .after_other = 0.005},
    {.name = "30 % of a run's error carried over", .carry = 0.3},
};
constexpr const Disturbance& drift = conditions[1];

uint64_t seed_of(const SelfTestOptions& options, int row, int experiment) {
  return random_u64(options.seed + static_cast<uint64_t>(row), static_cast<uint64_t>(experiment));
}

bool finds_a_difference(const std::vector<PlannedRun>& order, const SyntheticArms& arms) {
  const auto times = synthetic_log_times(order, arms);
  std::vector<double> ratios;  // by pair: A's log time less B's
  for (size_t i = 0; i < order.size(); ++i) {
    if (order[i].kind != RunKind::pair) continue;
    const auto pair = static_cast<size_t>(order[i].pair);
    if (ratios.size() <= pair) ratios.resize(pair + 1);
    ratios[pair] += order[i].label == Side::a ? times[i] : -times[i];
  }
  return estimate(ratios)->resolved();
}

FalsePositives false_positives(const SelfTestOptions& options, int row, const Disturbance& disturbance) {
  const auto blocked = blocked_order(options.pairs), alternating = alternating_order(options.pairs);
  int found[3] = {};
  for (int i = 0; i < options.experiments; ++i) {
    SyntheticArms arms{0, noise, disturbance, seed_of(options, row, i)};
    const auto randomised = make_schedule(options.pairs, arms.seed + 1, 1);
    int column = 0;
    for (const auto* order : {&blocked, &alternating, &randomised}) {
      found[column++] += finds_a_difference(*order, arms) ? 1 : 0;
      ++arms.seed;
    }
  }
  const auto share = [&](int n) { return static_cast<double>(n) / options.experiments; };
  return {disturbance.name, share(found[0]), share(found[1]), share(found[2])};
}

/// Judges experiments made by `make(i)`.
template <typename Make>
Verdicts verdicts(const std::string& condition, int count, Make make) {
  Verdicts v{.condition = condition};
  const double one = 1.0 / count;
  for (int i = 0; i < count; ++i) {
    const Verdict verdict = judge(make(i));
    double* const shares[] = {&v.faster, &v.slower, &v.unresolved, &v.refused};
    *shares[static_cast<size_t>(verdict.outcome)] += one;
    for (const auto& check : verdict.checks) {
      if (check.state != CheckState::failed) continue;
      if (check.name == "null pairs") v.by_nulls += one;
      if (check.name == "order") v.by_order += one;
      if (check.name == "drift") v.by_drift += one;
      if (check.name == "negative control") v.by_control += one;
    }
  }
  return v;
}

/// The promises that the figures break.
std::vector<std::string> broken(const SelfTest& t) {
  std::vector<std::string> lines;
  const auto hold = [&](bool kept, std::string line) {
    if (!kept) lines.push_back(std::move(line));
  };
  for (const auto& row : t.orders)
    hold(row.randomised <= most_false_positives,
         fmt::format(
             "{}: the randomised order finds a difference in {:.3f} of identical arms: expected at most {}",
             row.condition, row.randomised, most_false_positives));
  hold(t.orders[1].blocked > 0.5, "drift does not mislead the blocked order: the simulation is broken");
  hold(t.orders[3].alternating > 0.1,
       "a bonus does not mislead the alternating order: the simulation is broken");
  hold(t.clean[0].refused <= most_refusals,
       fmt::format("clean arms are refused in {:.3f}: expected at most {}", t.clean[0].refused,
                   most_refusals));
  for (const auto& row : t.clean)
    hold(row.faster + row.slower <= most_false_positives,
         fmt::format("{}: {:.3f} false verdicts: expected at most {}", row.condition, row.faster + row.slower,
                     most_false_positives));
  // Six pairs must all agree, and one in seventy experiments has one that does not: promised from twelve on.
  const bool found = t.planted.faster >= least_found * (1 - t.planted.refused);
  hold(t.pairs < 12 || (found && t.planted.refused <= most_refusals),
       fmt::format("the planted effect is found in {:.3f} and refused in {:.3f}", t.planted.faster,
                   t.planted.refused));
  hold(t.blocked.refused > 1 - 1e-9,
       fmt::format("a blocked order is refused in {:.3f} only", t.blocked.refused));
  return lines;
}

std::string verdict_line(const Verdicts& v) {
  return fmt::format("  {:<40}{:>8.3f}{:>8.3f}{:>12.3f}{:>9.3f}   {:>7.3f}{:>7.3f}{:>7.3f}{:>9.3f}\n",
                     v.condition, v.faster, v.slower, v.unresolved, v.refused, v.by_nulls, v.by_order,
                     v.by_drift, v.by_control);
}

nlohmann::ordered_json verdicts_json(const Verdicts& v) {
  return {{"condition", v.condition},   {"faster", v.faster},     {"slower", v.slower},
          {"unresolved", v.unresolved}, {"refused", v.refused},   {"by_nulls", v.by_nulls},
          {"by_order", v.by_order},     {"by_drift", v.by_drift}, {"by_control", v.by_control}};
}

}  // namespace

SelfTest self_test(const SelfTestOptions& options) {
  SelfTest t;
  t.pairs = options.pairs, t.experiments = options.experiments, t.judged = options.judged;
  t.noise = noise, t.planted_effect = planted_effect;
  const std::vector<double> any(static_cast<size_t>(options.pairs));
  t.nominal = 1 - estimate(any)->coverage;
  const int total = 2 * static_cast<int>(std::size(conditions)) + 2;
  int row = 0;
  const auto next = [&] {
    if (options.on_progress) options.on_progress(row, total);
    return row++;
  };
  for (const auto& condition : conditions) t.orders.push_back(false_positives(options, next(), condition));
  const auto judged = [&](const std::string& name, double effect, const Disturbance& condition) {
    const int stream = next();
    return verdicts(name, options.judged, [&, stream](int i) {
      const uint64_t seed = seed_of(options, stream, i);
      return synthetic_experiment(options.pairs, seed, {effect, noise, condition, seed + 1});
    });
  };
  for (const auto& condition : conditions) t.clean.push_back(judged(condition.name, 0, condition));
  t.planted =
      judged(fmt::format("planted: B {:.0f} % faster", 100 * planted_effect), planted_effect, conditions[0]);
  const int stream = next();
  const auto order = blocked_order(options.pairs);
  t.blocked = verdicts("identical arms, blocked, drift", options.judged, [&, stream](int i) {
    const uint64_t seed = seed_of(options, stream, i);
    return synthetic_experiment(order, options.pairs, seed, {0, noise, drift, seed + 1});
  });
  t.failures = broken(t);
  return t;
}

std::string self_test_text(const SelfTest& t) {
  std::string text = fmt::format(
      "identical arms, {} pairs, {:.1f} % noise, {} experiments a cell: share in which a "
      "nominal {:.1f} % test finds a difference\n",
      t.pairs, 100 * t.noise, t.experiments, 100 * t.nominal);
  text += fmt::format("  {:<40}{:>10}{:>10}{:>20}\n", "condition", "blocked", "ABAB", "random ABBA/BAAB");
  for (const auto& row : t.orders)
    text += fmt::format("  {:<40}{:>10.3f}{:>10.3f}{:>20.3f}\n", row.condition, row.blocked, row.alternating,
                        row.randomised);
  text += fmt::format("\nverdicts of the whole judge, {} experiments a row; refusals by check\n", t.judged);
  text += fmt::format("  {:<40}{:>8}{:>8}{:>12}{:>9}   {:>7}{:>7}{:>7}{:>9}\n", "condition", "faster",
                      "slower", "unresolved", "refused", "nulls", "order", "drift", "control");
  for (const auto& row : t.clean) text += verdict_line(row);
  text += verdict_line(t.planted) + verdict_line(t.blocked);
  text += fmt::format("\nclean arms refused: {:.1f} % (at most 5 %)\n", 100 * t.clean[0].refused);
  for (const auto& line : t.failures) text += "FAILED: " + line + "\n";
  if (t.failures.empty()) text += "every promise holds\n";
  return text;
}

nlohmann::ordered_json self_test_json(const SelfTest& t) {
  nlohmann::ordered_json orders = nlohmann::ordered_json::array(), clean = nlohmann::ordered_json::array();
  for (const auto& row : t.orders)
    orders.push_back({{"condition", row.condition},
                      {"blocked", row.blocked},
                      {"abab", row.alternating},
                      {"randomised", row.randomised}});
  for (const auto& row : t.clean) clean.push_back(verdicts_json(row));
  return {{"pairs", t.pairs},
          {"experiments", t.experiments},
          {"judged", t.judged},
          {"noise", t.noise},
          {"nominal", t.nominal},
          {"orders", orders},
          {"clean", clean},
          {"planted", verdicts_json(t.planted)},
          {"blocked", verdicts_json(t.blocked)},
          {"failures", t.failures}};
}

}  // namespace weir::lab::ab
