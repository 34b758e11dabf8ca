#include "lab/profile/hit_curve.h"

#include <algorithm>

namespace weir::lab {

SlotTraffic slot_traffic(const RouteTrace& trace, int slots, ExpertPolicy policy) {
  std::vector<LayerSlots> layers;
  std::vector<std::vector<int32_t>> count;  // rows that need each expert, of the record at hand
  for (const int experts : trace.header.experts) {
    layers.emplace_back(experts, std::min(slots, experts));
    count.emplace_back(static_cast<size_t>(experts), 0);
  }
  SlotTraffic traffic;
  traffic.slots = slots;
  std::vector<int32_t> needed, uses;
  for (const RouteRecord& record : trace.records) {
    auto& rows = count[static_cast<size_t>(record.layer)];
    for (const uint16_t id : record.ids) ++rows[id];
    needed.clear(), uses.clear();
    for (size_t e = 0; e < rows.size(); ++e) {
      if (rows[e] == 0) continue;
      needed.push_back(static_cast<int32_t>(e));
      uses.push_back(rows[e]);
      rows[e] = 0;
    }
    const FetchPlan plan = plan_fetch(layers[static_cast<size_t>(record.layer)], needed, uses, policy);
    traffic.all_hits += static_cast<uint64_t>(plan.hits);
    traffic.all_misses += static_cast<uint64_t>(plan.misses);
    if (record.phase == Phase::prefill) continue;
    traffic.hits += static_cast<uint64_t>(plan.hits);
    traffic.misses += static_cast<uint64_t>(plan.misses);
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
