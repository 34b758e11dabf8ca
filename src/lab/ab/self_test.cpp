#include "lab/ab/self_test.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/random.h"
#include "lab/ab/judge.h"
#include "lab/ab/schedule.h"
#include "lab/ab/statistics.h"
#include "lab/ab/synthetic.h"

namespace weir::lab::ab {

namespace {

constexpr double noise = 0.005;
constexpr double planted_effect = 0.02, planted_over_openings = 0.05;
constexpr int runs_of_opening = 2;
// What the command promises.
constexpr double nominal = 1 - verdict_level, most_refusals = 0.05, least_found = 0.99;
constexpr double least_found_over_openings = 0.8;

/// Upper end of what `count` experiments at a true rate of `nominal` give, 95 %.
double most_false_positives(int count) { return nominal + 1.96 * std::sqrt(nominal * (1 - nominal) / count); }

constexpr Disturbance conditions[] = {
    {.name = "no drift"},
    {.name = "drift 0.3 % a run", .drift = 0.003},
    {.name = "warm-up to 5 %", .warm_up = 0.05},
    {.name = "0.5 % bonus for the second run", .second = 0.005},
    {.name = "0.5 % carried over after the other arm", .after_other = 0.005},
    {.name = "30 % of a run's error carried over", .carry = 0.3},
    {.name = "openings 3 % apart", .opening = 0.03},
    {.name = "openings 3 % apart, drift 0.3 % a run", .drift = 0.003, .opening = 0.03},
};
constexpr const Disturbance& drift = conditions[1];
constexpr const Disturbance& openings = conditions[6];
constexpr const Disturbance& openings_and_drift = conditions[7];

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
  // As estimate() does, but the sign flips are not counted where the interval has decided.
  const MeanInterval interval = *mean_interval(ratios, verdict_level);
  return (interval.low > 0 || interval.high < 0) && sign_flip_p(ratios) < nominal;
}

FalsePositives false_positives(const SelfTestOptions& options, int row, const Disturbance& disturbance) {
  const auto blocked = blocked_order(options.pairs), alternating = alternating_order(options.pairs);
  Design design = synthetic_design(options.pairs, 0), once = design;
  once.open_once = true;
  int found[4] = {};
  for (int i = 0; i < options.experiments; ++i) {
    SyntheticArms arms{0, noise, disturbance, seed_of(options, row, i)};
    design.seed = once.seed = arms.seed + 1;
    const auto opened_once = make_schedule(once), randomised = make_schedule(design);
    int column = 0;
    for (const auto* order : {&blocked, &alternating, &opened_once, &randomised}) {
      found[column++] += finds_a_difference(*order, arms) ? 1 : 0;
      ++arms.seed;
    }
  }
  const auto share = [&](int n) { return static_cast<double>(n) / options.experiments; };
  return {disturbance.name, share(found[0]), share(found[1]), share(found[2]), share(found[3])};
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

void check_orders(const SelfTest& t, std::vector<std::string>& broken) {
  const double most = most_false_positives(t.experiments);
  for (const auto& row : t.orders)
    if (row.randomised > most)
      broken.push_back(fmt::format(
          "{}: the randomised order finds a difference in {:.3f} of identical arms: expected at most {:.3f}",
          row.condition, row.randomised, most));
  const auto misleads = [&](bool does, const char* what) {
    if (!does) broken.push_back(fmt::format("{}: the simulation is broken", what));
  };
  misleads(t.orders[1].blocked > 0.5, "drift does not mislead the blocked order");
  misleads(t.orders[3].alternating > 0.1, "a bonus does not mislead the alternating order");
  misleads(t.orders[6].once > 0.5, "unlike openings do not mislead where each arm is opened once");
}

/// The promises that the figures break.
std::vector<std::string> broken(const SelfTest& t) {
  std::vector<std::string> lines;
  const auto hold = [&](bool kept, std::string line) {
    if (!kept) lines.push_back(std::move(line));
  };
  check_orders(t, lines);
  hold(t.clean[0].refused <= most_refusals,
       fmt::format("clean arms are refused in {:.3f}: expected at most {}", t.clean[0].refused,
                   most_refusals));
  for (const auto& row : t.clean)
    hold(row.faster + row.slower <= t.most_false,
         fmt::format("{}: {:.3f} false verdicts: expected at most {:.3f}", row.condition,
                     row.faster + row.slower, t.most_false));
  // Six pairs must all agree, and one in seventy experiments has one that does not: promised from twelve on.
  const bool found = t.planted.faster >= least_found * (1 - t.planted.refused);
  hold(t.pairs < 12 || (found && t.planted.refused <= most_refusals),
       fmt::format("the planted effect is found in {:.3f} and refused in {:.3f}", t.planted.faster,
                   t.planted.refused));
  hold(t.pairs < 12 || t.planted_openings.faster + t.planted_openings.refused >= least_found_over_openings,
       fmt::format("{}: found in {:.3f}", t.planted_openings.condition, t.planted_openings.faster));
  hold(t.once.faster + t.once.slower > 0.5,
       "unlike openings do not mislead a judge that opens each arm once: the simulation is broken");
  hold(t.blocked.refused > 1 - 1e-9,
       fmt::format("a blocked order is refused in {:.3f} only", t.blocked.refused));
  return lines;
}

std::string verdict_line(const Verdicts& v) {
  return fmt::format("  {:<56}{:>8.3f}{:>8.3f}{:>12.3f}{:>9.3f}   {:>7.3f}{:>7.3f}{:>7.3f}{:>9.3f}\n",
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
  t.noise = noise, t.planted_effect = planted_effect, t.nominal = nominal;
  t.runs_of_opening = runs_of_opening;
  t.most_false = most_false_positives(options.judged);
  const int total = 2 * static_cast<int>(std::size(conditions)) + 4;
  int row = 0;
  const auto next = [&] {
    if (options.on_progress) options.on_progress(row, total);
    return row++;
  };
  for (const auto& condition : conditions) t.orders.push_back(false_positives(options, next(), condition));
  const auto judged = [&](const std::string& name, double effect, const Disturbance& condition, bool once) {
    const int stream = next();
    return verdicts(name, options.judged, [&, stream](int i) {
      const uint64_t seed = seed_of(options, stream, i);
      Design design = synthetic_design(options.pairs, seed, once ? 1 : runs_of_opening);
      design.open_once = once;
      return synthetic_experiment(design, {effect, noise, condition, seed + 1});
    });
  };
  const bool once = options.open_once;
  for (const auto& condition : conditions) t.clean.push_back(judged(condition.name, 0, condition, once));
  t.planted = judged(fmt::format("planted: B {:.0f} % faster", 100 * planted_effect), planted_effect,
                     conditions[0], once);
  t.planted_openings =
      judged(fmt::format("planted: B {:.0f} %, {}", 100 * planted_over_openings, openings_and_drift.name),
             planted_over_openings, openings_and_drift, once);
  t.once = judged(fmt::format("each arm opened once, {}", openings.name), 0, openings, true);
  const int stream = next();
  const auto order = blocked_order(options.pairs);
  t.blocked = verdicts("identical arms, blocked, drift", options.judged, [&, stream](int i) {
    const uint64_t seed = seed_of(options, stream, i);
    return synthetic_experiment(order, synthetic_design(options.pairs, seed), {0, noise, drift, seed + 1});
  });
  t.failures = broken(t);
  return t;
}

std::string self_test_text(const SelfTest& t) {
  std::string text = fmt::format(
      "identical arms, {} pairs of openings, a run in each, {:.1f} % noise, {} experiments a cell: share in "
      "which a nominal {:.0f} % test finds a difference\n",
      t.pairs, 100 * t.noise, t.experiments, 100 * t.nominal);
  text += fmt::format("  {:<56}{:>10}{:>10}{:>14}{:>10}\n", "condition", "blocked", "ABAB", "opened once",
                      "random");
  for (const auto& row : t.orders)
    text += fmt::format("  {:<56}{:>10.3f}{:>10.3f}{:>14.3f}{:>10.3f}\n", row.condition, row.blocked,
                        row.alternating, row.once, row.randomised);
  text += fmt::format(
      "\nverdicts of the whole judge, {} runs in each opening, {} experiments a row; refusals by check\n",
      t.runs_of_opening, t.judged);
  text += fmt::format("  {:<56}{:>8}{:>8}{:>12}{:>9}   {:>7}{:>7}{:>7}{:>9}\n", "condition", "faster",
                      "slower", "unresolved", "refused", "nulls", "order", "drift", "control");
  for (const auto& row : t.clean) text += verdict_line(row);
  for (const auto* row : {&t.planted, &t.planted_openings, &t.once, &t.blocked}) text += verdict_line(*row);
  text += fmt::format("\nfalse verdicts: at most {:.1f} % of identical arms that are opened anew\n",
                      100 * t.most_false);
  text += fmt::format("clean arms refused: {:.1f} % (at most 5 %)\n", 100 * t.clean[0].refused);
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
                      {"opened_once", row.once},
                      {"randomised", row.randomised}});
  for (const auto& row : t.clean) clean.push_back(verdicts_json(row));
  return {{"pairs", t.pairs},
          {"experiments", t.experiments},
          {"judged", t.judged},
          {"noise", t.noise},
          {"nominal", t.nominal},
          {"most_false", t.most_false},
          {"orders", orders},
          {"clean", clean},
          {"planted", verdicts_json(t.planted)},
          {"planted_openings", verdicts_json(t.planted_openings)},
          {"opened_once", verdicts_json(t.once)},
          {"blocked", verdicts_json(t.blocked)},
          {"failures", t.failures}};
}

}  // namespace weir::lab::ab
