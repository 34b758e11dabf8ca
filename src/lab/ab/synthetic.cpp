#include "lab/ab/synthetic.h"

#include <cmath>
#include <numbers>

#include "base/random.h"
#include "lab/ab/schedule.h"

namespace weir::lab::ab {

namespace {

constexpr double warm_up_runs = 6;
constexpr double run_ns = 50e6, head_ns = 5e6;
constexpr uint64_t head_stream = 0x68656164, opening_stream = 0x6f70656e;

/// Standard normal, one of a pair of Box and Muller.
double gauss(uint64_t seed, uint64_t counter) {
  const double u = 1 - random_unit(seed, 2 * counter);  // in (0, 1]
  const double v = random_unit(seed, 2 * counter + 1);
  return std::sqrt(-2 * std::log(u)) * std::cos(2 * std::numbers::pi * v);
}

}  // namespace

std::vector<double> synthetic_log_times(std::span<const PlannedRun> order, const SyntheticArms& arms) {
  const Disturbance& d = arms.disturbance;
  std::vector<double> times;
  int place = 0;
  double noise = 0;
  const PlannedRun* before = nullptr;
  Side first = Side::a;  // of the pair
  for (size_t i = 0; i < order.size(); ++i) {
    const PlannedRun& run = order[i];
    if (!before || before->block != run.block) first = run.label;
    noise = d.carry * noise + arms.noise * gauss(arms.seed, i);
    double time = noise - (run.arm == Side::b ? arms.effect : 0);
    time += d.drift * place + d.warm_up * std::exp(-place / warm_up_runs);
    if (before && before->block == run.block && first != run.label) time -= d.second;
    if (before && before->arm != run.arm) time += d.after_other;
    if (d.opening > 0)
      time += d.opening * gauss(arms.seed ^ opening_stream, static_cast<uint64_t>(run.opening));
    if (run.kind != RunKind::pilot) ++place;
    before = &run;
    times.push_back(time);
  }
  return times;
}

Design synthetic_design(int pairs, uint64_t schedule_seed, int runs) {
  Design design;
  design.model = "synthetic";
  design.arms = {"a", "b"};
  design.pairs = pairs;
  design.runs = runs;
  design.seed = schedule_seed;
  design.negative_control = "head";
  design.prompts = {{"synthetic", 0, 64}};
  return design;
}

Experiment synthetic_experiment(std::span<const PlannedRun> order, const Design& design,
                                const SyntheticArms& arms) {
  Experiment e;
  e.design = design;
  e.setting.same_slots = e.setting.same_pages = true;
  e.setting.roles = {"attention", "expert_wait", "head", "unattributed"};
  const auto times = synthetic_log_times(order, arms);
  double clock_s = 0;
  for (size_t i = 0; i < order.size(); ++i) {
    Observation o;
    o.run = order[i];
    o.started_s = clock_s;
    o.metric_ns = o.wall_ns = static_cast<uint64_t>(run_ns * std::exp(times[i]));
    o.value = static_cast<double>(o.metric_ns) * 1e-6;
    const auto head =
        static_cast<uint64_t>(head_ns * std::exp(arms.noise * gauss(arms.seed ^ head_stream, i)));
    const uint64_t rest = o.metric_ns - head, unattributed = rest / 1000;
    o.role_ns = {rest / 2, rest - rest / 2 - unattributed, head, unattributed};
    o.unattributed_ns = unattributed;
    o.tokens = e.design.predict;
    o.tokens_hash = 0x0123456789abcdef;
    o.hits = 900, o.misses = 100, o.bytes_read = 100 << 20;
    o.start = {64, 64, 1, 0};
    o.peak_bytes = 1 << 30;
    o.took_s = o.value * 1e-3;
    clock_s += o.took_s;
    e.observations.push_back(std::move(o));
  }
  return e;
}

Experiment synthetic_experiment(const Design& design, const SyntheticArms& arms) {
  return synthetic_experiment(make_schedule(design), design, arms);
}

Experiment synthetic_experiment(int pairs, uint64_t schedule_seed, const SyntheticArms& arms) {
  return synthetic_experiment(synthetic_design(pairs, schedule_seed), arms);
}

std::vector<PlannedRun> blocked_order(int pairs) {
  std::vector<PlannedRun> order;
  for (const Side side : {Side::a, Side::b})
    for (int i = 0; i < pairs; ++i)
      order.push_back({RunKind::pair, i, i, side, side, 0, static_cast<int>(order.size())});
  return order;
}

std::vector<PlannedRun> alternating_order(int pairs) {
  std::vector<PlannedRun> order;
  for (int i = 0; i < pairs; ++i)
    for (const Side side : {Side::a, Side::b})
      order.push_back({RunKind::pair, i, i, side, side, 0, static_cast<int>(order.size())});
  return order;
}

}  // namespace weir::lab::ab
