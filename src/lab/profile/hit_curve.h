// Hits and misses of recorded routing for other numbers of slots, as far as a profile needs them: the replay
// without its waits and bounds.
#pragma once

#include <vector>

#include "experts/policy.h"
#include "lab/profile/profile.h"
#include "lab/replay.h"

namespace weir::lab {

/// From empty slots on, `slots` on each layer (fewer where it has fewer experts).
SlotTraffic slot_traffic(const Demand& demand, int slots, ExpertPolicy policy);

/// Slot counts worth a look between the floor and residency, those in `extra` among them; increasing.
std::vector<int> slot_choices(int floor, int experts, const std::vector<int>& extra);

}  // namespace weir::lab
