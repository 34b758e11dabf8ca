#include "lab/profile/hit_curve.h"

#include <algorithm>

namespace weir::lab {

SlotTraffic slot_traffic(const Demand& demand, int slots, ExpertPolicy policy) {
  SlotTraffic traffic;
  traffic.slots = slots;
  for (const LayerDemand& layer : demand.layers) {
    const Traffic all = replay_layer(layer, slots, policy, {}),
                  decode = replay_layer(layer, slots, policy, Phase::decode);
    traffic.all_hits += all.hits;
    traffic.all_misses += all.misses;
    traffic.hits += decode.hits;
    traffic.misses += decode.misses;
  }
  return traffic;
}

std::vector<int> slot_choices(int floor, int experts, const std::vector<int>& extra) {
  std::vector<int> choices = extra;
  // Steps of about a third, so that doubling is three steps.
  for (int slots = std::max(floor, 1); slots < experts; slots += std::max(1, slots / 3))
    choices.push_back(slots);
  choices.push_back(experts);
  std::erase_if(choices, [&](int slots) { return slots < 1 || slots > experts; });
  std::sort(choices.begin(), choices.end());
  choices.erase(std::unique(choices.begin(), choices.end()), choices.end());
  return choices;
}

}  // namespace weir::lab
