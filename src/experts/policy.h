// Which expert to put out of its slot, as pure functions on plain state: the engine, the replay and the
// planner call the same code, so a replay's hit counts equal the engine's. No I/O, no clock, no device.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace weir {

enum class ExpertPolicy : uint8_t {
  lfu,  ///< least frequently used with ageing, ties to the least recently used
  lru,  ///< least recently used
};
ExpertPolicy parse_expert_policy(const std::string& text);  ///< throws Error naming the choices
const char* policy_name(ExpertPolicy policy);

/// A layer's slots and what the policy remembers. `tick` counts plans made for this layer.
struct LayerSlots {
  std::vector<int32_t> expert_of_slot;  ///< -1: empty
  std::vector<int32_t> slot_of_expert;  ///< -1: absent
  std::vector<uint32_t> frequency;      ///< per expert, aged
  std::vector<uint64_t> last_use;       ///< per expert, tick
  uint64_t tick = 0;
  LayerSlots(int experts, int slots);
};

/// One expert's move in a wave.
struct Fetch {
  int32_t expert;
  int32_t slot;
  int32_t evicted;  ///< expert that lay in the slot before, -1 where it was empty (misses only)
};

/// Hits are computed first, while the misses are read; a wave's slots are free again when it is complete.
struct Wave {
  std::vector<Fetch> hits;    ///< increasing expert id
  std::vector<Fetch> misses;  ///< increasing expert id
};

/// What one layer of one round does with its slots. The first wave takes every needed expert that is present.
struct FetchPlan {
  std::vector<Wave> waves;
  int hits = 0, misses = 0;
};

/// A call's distinct experts (increasing ids) and how many rows use each: what plan_fetch takes. Kept between
/// calls so that a round allocates nothing.
struct ExpertDemand {
  std::vector<int32_t> needed, uses;
  std::vector<int32_t> count;  ///< scratch, per expert
};

/// Groups the ids of a call's rows, each in [0, experts). The engine and the replay of its trace both ask
/// here.
void count_demand(ExpertDemand& demand, std::span<const int32_t> ids, int experts);

/// Plans the fetches for the distinct experts `needed` (increasing ids; `uses[i]` rows need needed[i]) and
/// updates `slots` to the state after the plan. Pure otherwise: same arguments, same plan, whatever order
/// reads land in. Needs slots >= 1; slots below needed.size() make more waves.
FetchPlan plan_fetch(LayerSlots& slots, std::span<const int32_t> needed, std::span<const int32_t> uses,
                     ExpertPolicy policy);

/// A read failed: the slot is empty again.
void forget_slot(LayerSlots& slots, int32_t slot);

}  // namespace weir
