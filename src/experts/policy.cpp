// The arithmetic of slots: which experts hit, which slots the others take, and in how many waves. Decides
// everything before a byte is read, so that no hit count depends on how reads happen to land.
#include "experts/policy.h"

#include <algorithm>
#include <tuple>

#include "base/error.h"

namespace weir {
namespace {

/// A layer's counts are halved once they reach this many uses an expert on average: history fades with a
/// half-life of about ageing_window / 2 * experts / top_k rows, however the rows were batched. Shorter
/// follows the text better, longer is truer to traffic without memory; 32 is within 0.2 points of the
/// best on the one and within one on the other (docs/replay.md).
constexpr uint64_t ageing_window = 32;

/// What keeping an expert is worth; the smallest goes first. Ids make the order total.
using Value = std::tuple<uint64_t, uint64_t, int32_t>;

Value value_of(const LayerSlots& slots, int32_t expert, ExpertPolicy policy) {
  const auto e = static_cast<size_t>(expert);
  const uint64_t frequency = slots.frequency[e], recency = slots.last_use[e];
  return policy == ExpertPolicy::lfu ? Value{frequency, recency, expert} : Value{recency, frequency, expert};
}

/// Counts the rows of this plan. The sum of a layer's counts stays below the window, so a long prompt is
/// worth at most one window of history, the same as if its rows had come one at a time.
void count_uses(LayerSlots& slots, std::span<const int32_t> needed, std::span<const int32_t> uses) {
  for (size_t i = 0; i < needed.size(); ++i) {
    const auto e = static_cast<size_t>(needed[i]);
    slots.frequency[e] += static_cast<uint32_t>(std::max(uses[i], 1));
    slots.last_use[e] = slots.tick;
  }
  uint64_t sum = 0;
  for (const uint32_t f : slots.frequency) sum += f;
  while (sum >= ageing_window * slots.frequency.size()) {
    sum = 0;
    for (uint32_t& f : slots.frequency) f /= 2, sum += f;
  }
}

/// Slots in the order in which they are given away: empty ones, then the least valued experts. Experts of the
/// wave that is being planned are left out.
std::vector<int32_t> victims(const LayerSlots& slots, const std::vector<uint8_t>& kept, ExpertPolicy policy,
                             size_t count) {
  std::vector<int32_t> order;
  for (size_t s = 0; s < slots.expert_of_slot.size(); ++s) {
    const int32_t expert = slots.expert_of_slot[s];
    if (expert < 0 || !kept[static_cast<size_t>(expert)]) order.push_back(static_cast<int32_t>(s));
  }
  const auto less = [&](int32_t a, int32_t b) {
    const int32_t ea = slots.expert_of_slot[static_cast<size_t>(a)];
    const int32_t eb = slots.expert_of_slot[static_cast<size_t>(b)];
    if (ea < 0 || eb < 0) return ea < 0 && (eb >= 0 || a < b);
    return value_of(slots, ea, policy) < value_of(slots, eb, policy);
  };
  WEIR_CHECK(count <= order.size(), "{} misses, {} slots", count, order.size());
  std::partial_sort(order.begin(), order.begin() + static_cast<ptrdiff_t>(count), order.end(), less);
  order.resize(count);
  return order;
}

/// Gives the wave's misses (increasing ids) their slots.
void place(LayerSlots& slots, std::span<const int32_t> experts, const std::vector<int32_t>& free_slots,
           Wave& wave) {
  for (size_t i = 0; i < experts.size(); ++i) {
    const int32_t slot = free_slots[i], evicted = slots.expert_of_slot[static_cast<size_t>(slot)];
    if (evicted >= 0) slots.slot_of_expert[static_cast<size_t>(evicted)] = -1;
    slots.expert_of_slot[static_cast<size_t>(slot)] = experts[i];
    slots.slot_of_expert[static_cast<size_t>(experts[i])] = slot;
    wave.misses.push_back({experts[i], slot, evicted});
  }
}

}  // namespace

ExpertPolicy parse_expert_policy(const std::string& text) {
  if (text == "lfu") return ExpertPolicy::lfu;
  if (text == "lru") return ExpertPolicy::lru;
  throw input_error("--expert-policy '{}': the policies are lfu and lru", text);
}

const char* policy_name(ExpertPolicy policy) { return policy == ExpertPolicy::lfu ? "lfu" : "lru"; }

LayerSlots::LayerSlots(int experts, int slots)
    : expert_of_slot(static_cast<size_t>(slots), -1),
      slot_of_expert(static_cast<size_t>(experts), -1),
      frequency(static_cast<size_t>(experts), 0),
      last_use(static_cast<size_t>(experts), 0) {}

void count_demand(ExpertDemand& demand, std::span<const int32_t> ids, int experts) {
  demand.count.assign(static_cast<size_t>(experts), 0);
  for (const int32_t id : ids) {
    WEIR_CHECK(id >= 0 && id < experts, "expert {} of {}", id, experts);
    ++demand.count[static_cast<size_t>(id)];
  }
  demand.needed.clear();
  demand.uses.clear();
  for (int32_t e = 0; e < experts; ++e) {
    const int32_t count = demand.count[static_cast<size_t>(e)];
    if (count == 0) continue;
    demand.needed.push_back(e);
    demand.uses.push_back(count);
  }
}

FetchPlan plan_fetch(LayerSlots& slots, std::span<const int32_t> needed, std::span<const int32_t> uses,
                     ExpertPolicy policy) {
  WEIR_CHECK(needed.size() == uses.size(), "{} ids, {} uses", needed.size(), uses.size());
  WEIR_CHECK(needed.empty() || !slots.expert_of_slot.empty(), "a layer without slots");
  ++slots.tick;
  count_uses(slots, needed, uses);

  FetchPlan plan;
  if (needed.empty()) return plan;
  Wave first;
  std::vector<uint8_t> kept(slots.frequency.size(), 0);
  std::vector<int32_t> misses;
  for (const int32_t expert : needed) {
    const int32_t slot = slots.slot_of_expert[static_cast<size_t>(expert)];
    if (slot < 0) {
      misses.push_back(expert);
    } else {
      kept[static_cast<size_t>(expert)] = 1;
      first.hits.push_back({expert, slot, -1});
    }
  }
  plan.hits = static_cast<int>(first.hits.size());
  plan.misses = static_cast<int>(misses.size());

  // The least valued experts are read first: what is read last stays. Later waves turn over at most half of
  // the slots, in as few waves as that allows and evenly, so that the most valued half outlives a wide batch.
  const size_t all = slots.expert_of_slot.size();
  const size_t in_first = std::min(misses.size(), all - first.hits.size());
  const size_t rest = misses.size() - in_first;
  const size_t turnover = (all + 1) / 2;
  const size_t later_waves = (rest + turnover - 1) / turnover;
  if (rest > 0) {
    std::sort(misses.begin(), misses.end(),
              [&](int32_t a, int32_t b) { return value_of(slots, a, policy) < value_of(slots, b, policy); });
  }
  size_t taken = 0;
  for (size_t w = 0; w <= later_waves; ++w) {
    Wave wave;
    if (w == 0) wave = std::move(first);
    const size_t count =
        w == 0 ? in_first : (misses.size() - taken + later_waves - w) / (later_waves - w + 1);
    const auto begin = misses.begin() + static_cast<ptrdiff_t>(taken);
    std::sort(begin, begin + static_cast<ptrdiff_t>(count));
    place(slots, std::span(misses).subspan(taken, count), victims(slots, kept, policy, count), wave);
    if (w == 0) std::fill(kept.begin(), kept.end(), uint8_t{0});  // its slots are free once it is complete
    taken += count;
    plan.waves.push_back(std::move(wave));
  }
  return plan;
}

void forget_slot(LayerSlots& slots, int32_t slot) {
  int32_t& expert = slots.expert_of_slot[static_cast<size_t>(slot)];
  if (expert >= 0) slots.slot_of_expert[static_cast<size_t>(expert)] = -1;
  expert = -1;
}

}  // namespace weir
