#include "lab/profile/levers.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/log.h"
#include "base/quantity.h"
#include "base/stats.h"
#include "lab/profile/analysis.h"
#include "ledger/report.h"

namespace weir::lab {

namespace {

/// The decode account and what the predictions take from it, in nanoseconds over all runs.
struct Base {
  const Profile& profile;
  PhaseAccount decode;
  double wall = 0, exposed = 0, busy = 0;
  std::optional<Role> largest;

  explicit Base(const Profile& p) : profile(p), decode(total_decode(p.runs)) {
    wall = static_cast<double>(decode.wall_ns);
    exposed = static_cast<double>(role_ns(decode, Role::expert_wait));
    busy = static_cast<double>(decode.experts.read_busy_ns);
    largest = largest_role(decode);
  }
  bool largest_is(Role role) const { return largest == role; }
  bool largest_computes() const { return largest && role_lane(*largest) == LaneKind::device; }
  /// Speed over the measured one where wall time shrinks by `saved` ns (Amdahl).
  double gain(double saved) const { return wall > saved ? wall / (wall - saved) : 1; }
  /// Sets the gain and its interval, from nanoseconds saved.
  void predict(Lever& lever, double low, double saved, double high) const {
    const double most = 0.98 * wall;  // something is always left
    lever.gain = gain(saved);
    lever.gain_low = gain(std::clamp(low, 0.0, saved));
    lever.gain_high = std::max(*lever.gain, gain(std::min(high, most)));
  }
};

const SlotTraffic* traffic_at(const Profile& profile, int slots) {
  for (const SlotTraffic& point : profile.curve)
    if (point.slots == slots) return &point;
  return nullptr;
}

double hit_percent(const SlotTraffic& t) { return 100 * ratio(t.hits, t.hits + t.misses); }

/// What all misses of decode cost, in nanoseconds over all runs, beyond what as many hits would have.
struct MissCost {
  double wait = 0;       ///< exposed
  double submit = 0;     ///< of `schedule`: what each miss adds
  double first = 0;      ///< of `schedule`: the rest, which a layer without a miss does not have
  double compute = 0;    ///< a missed expert is computed from cold memory, often alone
  double disturbed = 0;  ///< at most: how much faster the other roles may be without reads beside them
};

/// What one more of something in a round adds to a role: the least-squares slope over the rounds; nothing
/// where they do not differ in it.
std::optional<double> ns_for_one_more(const Profile& profile, uint64_t ExpertCounters::*count, Role role) {
  double n = 0, mean_x = 0, mean_y = 0, xx = 0, xy = 0;
  const auto each_round = [&](auto&& visit) {
    for (const ProfileRun& run : profile.runs)
      for (const RoundReport& round : run.rounds)
        visit(static_cast<double>(round.experts.*count),
              static_cast<double>(round.role_ns[static_cast<size_t>(role)]));
  };
  each_round([&](double x, double y) { n += 1, mean_x += x, mean_y += y; });
  if (n == 0) return std::nullopt;
  mean_x /= n, mean_y /= n;
  each_round(
      [&](double x, double y) { xx += (x - mean_x) * (x - mean_x), xy += (x - mean_x) * (y - mean_y); });
  if (xx <= 0) return std::nullopt;
  return std::max(0.0, xy / xx);
}

/// What the roles that compute take beyond the fastest tenth of their rounds: reads beside them share the
/// memory and the processors, and so do neighbours. A missed expert's own time is counted apart.
double disturbed_ns(const Profile& profile) {
  double sum = 0;
  for (const ProfileRun& run : profile.runs)
    for (int r = 0; r < role_count; ++r) {
      const auto role = static_cast<Role>(r);
      if (role_lane(role) != LaneKind::device || role == Role::experts_miss || role == Role::unattributed)
        continue;
      std::vector<double> times;
      for (const RoundReport& round : run.rounds)
        times.push_back(static_cast<double>(round.role_ns[static_cast<size_t>(r)]));
      if (times.empty()) continue;
      sum += std::max(0.0, mean(times) - quantile(times, 0.1)) * static_cast<double>(times.size());
    }
  return sum;
}

MissCost miss_cost(const Base& base) {
  const ExpertCounters& e = base.decode.experts;
  const auto of = [&](Role role) { return static_cast<double>(role_ns(base.decode, role)); };
  const auto misses = static_cast<double>(e.misses);
  MissCost cost;
  cost.wait = base.exposed;
  const double submit = ns_for_one_more(base.profile, &ExpertCounters::misses, Role::schedule).value_or(0);
  cost.submit = std::min(misses * submit, of(Role::schedule));
  if (misses > 0) cost.first = of(Role::schedule) - cost.submit;
  if (e.hits > 0) {
    // One more hit costs less than the hits do on average: a layer's first brings what all share.
    const double average = of(Role::experts_hit) / static_cast<double>(e.hits);
    const double hit = std::min(
        ns_for_one_more(base.profile, &ExpertCounters::hits, Role::experts_hit).value_or(average), average);
    cost.compute = std::max(0.0, of(Role::experts_miss) - misses * hit);
  }
  cost.disturbed = disturbed_ns(base.profile);
  return cost;
}

/// The share of layers and rounds with a miss, where misses fall on them by chance (Poisson), over what it is
/// now; `left` misses are there for each of now.
double layers_left(const Base& base, double left) {
  const double layer_rounds = static_cast<double>(base.decode.rounds.count) *
                              static_cast<double>(base.profile.settings.expert_layers);
  if (layer_rounds == 0) return left;
  const double now = static_cast<double>(base.decode.experts.misses) / layer_rounds;
  return now > 0 ? std::expm1(-now * left) / std::expm1(-now) : left;
}

/// Another number of slots: what misses cost shrinks as the misses of the replayed routing do.
Lever other_slots(const Base& base, std::string name, int slots) {
  const ProfileSettings& s = base.profile.settings;
  Lever lever;
  lever.name = std::move(name);
  lever.setting = fmt::format("--expert-slots {}", slots);
  lever.attacks_largest = base.largest_is(Role::expert_wait);
  const uint64_t more = static_cast<uint64_t>(slots - s.slots) * s.slot_level_bytes;
  if (lever.name == "memory")
    lever.setting = fmt::format("--memory {:.1f}MiB",
                                std::ceil(static_cast<double>(s.plan_bytes + more) * 10 / (1 << 20)) / 10);
  const SlotTraffic *now = traffic_at(base.profile, s.slots), *then = traffic_at(base.profile, slots);
  if (now == nullptr || then == nullptr) {
    lever.how = "no routing was recorded";
    return lever;
  }
  const MissCost cost = miss_cost(base);
  const double left = now->misses > 0 ? ratio(then->misses, now->misses) : 1.0;
  const double saved =
      (cost.wait + cost.submit + cost.compute) * (1 - left) + cost.first * (1 - layers_left(base, left));
  // At least: waiting alone, and that with the root of the misses, as a layer's reads run side by side.
  base.predict(lever, cost.wait * (1 - std::sqrt(left)), saved, saved + cost.disturbed * (1 - left));
  const auto ms = [&](double ns) { return ms_per_token(base.decode, static_cast<uint64_t>(ns)); };
  lever.how = fmt::format(
      "{} of {} experts in slots instead of {}: the recorded routing, replayed, hits {:.1f} % instead of "
      "{:.1f} %; each miss that is left is taken to cost what one costs now beyond a hit, in all {:.3f} ms a "
      "token of waiting, {:.3f} of submitting and {:.3f} of computing cold",
      slots, s.experts, s.slots, hit_percent(*then), hit_percent(*now), ms(cost.wait),
      ms(cost.submit + cost.first), ms(cost.compute));
  return lever;
}

Lever without_number(std::string name, std::string setting, bool attacks_largest, std::string why) {
  Lever lever;
  lever.name = std::move(name);
  lever.setting = std::move(setting);
  lever.attacks_largest = attacks_largest;
  lever.how = std::move(why);
  return lever;
}

void add_slot_levers(const Base& base, std::vector<Lever>& all) {
  const ProfileSettings& s = base.profile.settings;
  if (s.experts == 0) return;
  if (s.slots >= s.experts) {
    all.push_back(
        without_number("slots", "none", false,
                       "every expert has a slot already: what is still read is each expert's first use"));
    return;
  }
  const int fit = slots_that_fit(s);
  if (fit > s.slots) all.push_back(other_slots(base, "slots", fit));
  const int twice = std::min(s.experts, 2 * s.slots);
  if (twice > fit) all.push_back(other_slots(base, "memory", twice));
  if (s.experts > std::max(twice, fit)) all.push_back(other_slots(base, "memory", s.experts));
}

void add_read_lever(const Base& base, std::vector<Lever>& all) {
  const ExpertCounters& e = base.decode.experts;
  if (e.reads == 0 || base.busy <= 0) return;
  // What compute hides now it would hide of the shorter reads too.
  const double hidden = std::max(0.0, base.busy - base.exposed);
  const double exposed = std::min(base.exposed, std::max(0.0, base.busy / 2 - hidden));
  Lever lever;
  lever.name = "read size";
  lever.setting = "larger reads, --io, --read-advice, a faster disk";
  // At least: what is hidden shrinks with the reads.
  base.predict(lever, base.exposed / 2, base.exposed - exposed, base.exposed - exposed);
  lever.attacks_largest = base.largest_is(Role::expert_wait);
  lever.how = fmt::format(
      "if reads took half as long: now {:.2f} GB/s in reads of {} on average, {:.3f} of {:.3f} ms a token "
      "exposed; what is hidden now would stay hidden. Whether the disk can is not measured here",
      static_cast<double>(e.bytes_read) / base.busy, human_bytes(e.bytes_read / e.reads),
      ms_per_token(base.decode, static_cast<uint64_t>(base.exposed)),
      ms_per_token(base.decode, e.read_busy_ns));
  all.push_back(std::move(lever));
}

void add_thread_lever(const Base& base, std::vector<Lever>& all) {
  const ProfileSettings& s = base.profile.settings;
  const PhaseAccount& d = base.decode;
  Lever lever;
  lever.name = "threads";
  lever.attacks_largest = base.largest_computes();
  lever.at_most = true;
  if (d.tasks == 0 || d.worker_busy_ns == 0) return;
  const double team = static_cast<double>(s.threads);
  const double worked = static_cast<double>(d.worker_busy_ns) / team;
  const double waited = static_cast<double>(d.worker_barrier_ns) / team;
  const double idle = 100 * phase_figures(d).barrier_share;
  if (s.threads >= s.processors) {
    lever.setting = fmt::format("a better split of the work over {}",
                                quantity(static_cast<uint64_t>(s.threads), "thread"));
    base.predict(lever, 0, waited, waited);
    lever.how = fmt::format(
        "all {} processors have a thread; {:.1f} % of wall time is inside tasks of the thread team, and "
        "{:.1f} % "
        "of that goes to waiting for the slowest worker or for one that works alone; a perfect split of "
        "every "
        "task would save it",
        s.processors, 100 * (worked + waited) / base.wall, idle);
  } else {
    const int more = std::min(2 * s.threads, s.processors);
    lever.setting = fmt::format("-t {}", more);
    const double saved = (worked + waited) * (1 - team / more);
    base.predict(lever, 0, saved, saved);
    lever.how = fmt::format(
        "Amdahl: {:.1f} % of wall time is inside tasks of the thread team and would be split over {} instead "
        "of {} threads at today's imbalance ({:.1f} %), if memory keeps up",
        100 * (worked + waited) / base.wall, more, s.threads, idle);
  }
  all.push_back(std::move(lever));
}

void add_what_is_not_built(const Base& base, std::vector<Lever>& all) {
  double device = 0;
  for (int r = 0; r < role_count; ++r)
    if (role_lane(static_cast<Role>(r)) == LaneKind::device && static_cast<Role>(r) != Role::unattributed)
      device += static_cast<double>(role_ns(base.decode, static_cast<Role>(r)));
  all.push_back(without_number("drafting", "none yet", base.largest_computes(),
                               "not available yet, so nothing was measured and nothing is predicted"));
  if (base.profile.settings.on_gpu) return;
  all.push_back(without_number(
      "device", built_with_cuda() ? "--device cuda:N" : "a build with CUDA", base.largest_computes(),
      fmt::format("not measured here; the ceiling of any device, if all {:.1f} % of its roles' time "
                  "went away and nothing else changed, is {:.2f} times the speed",
                  100 * device / std::max(base.wall, 1.0), base.gain(device))));
}

}  // namespace

int slots_that_fit(const ProfileSettings& s) {
  if (s.slot_level_bytes == 0 || s.budget_bytes <= s.plan_bytes) return s.slots;
  const uint64_t more = (s.budget_bytes - s.plan_bytes) / s.slot_level_bytes;
  return static_cast<int>(std::min<uint64_t>(static_cast<uint64_t>(s.slots) + more,
                                             static_cast<uint64_t>(std::max(s.experts, s.slots))));
}

std::vector<Lever> levers(const Profile& profile) {
  const Base base(profile);
  std::vector<Lever> all;
  if (base.decode.wall_ns == 0) return all;
  add_slot_levers(base, all);
  add_read_lever(base, all);
  add_thread_lever(base, all);
  add_what_is_not_built(base, all);
  std::stable_sort(all.begin(), all.end(), [](const Lever& a, const Lever& b) {
    return std::tuple(a.gain.has_value(), a.attacks_largest, a.gain.value_or(0)) >
           std::tuple(b.gain.has_value(), b.attacks_largest, b.gain.value_or(0));
  });
  return all;
}

std::string lever_advice(const Profile& profile, const std::vector<Lever>& levers) {
  constexpr double worth_it = 1.02;
  const PhaseAccount decode = total_decode(profile.runs);
  const auto largest = largest_role(decode);
  if (!largest) return "Advice: give more tokens (-n): no time was charged to any role.";
  const std::string block = fmt::format("{} is the largest block, {:.1f} % of decode", role_name(*largest),
                                        100 * ratio(role_ns(decode, *largest), decode.wall_ns));
  const Lever* first = nullptr;  // an option of weir's before what is to be built or bought
  for (const bool option : {true, false})
    for (const Lever& lever : levers)
      if (first == nullptr && lever.gain.value_or(1) > worth_it && (lever.setting[0] == '-') == option)
        first = &lever;
  if (first == nullptr)
    return fmt::format(
        "Advice: leave the settings as they are: none is predicted to bring over {:.0f} %; {}.",
        100 * (worth_it - 1), block);
  return fmt::format("Advice: try {} first, for {}{:.0f} to {:.0f} % more speed; {}{}.", first->setting,
                     first->at_most ? "at most " : "", 100 * (first->gain_low - 1),
                     100 * (first->gain_high - 1), block,
                     first->attacks_largest ? ", and this attacks it" : "");
}

}  // namespace weir::lab
