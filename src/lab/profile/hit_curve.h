// Hits and misses of recorded routing for other numbers of slots: the same planning as the engine's, without
// the model. A narrow stand-in for the replay, enough to predict what more slots would bring.
#pragma once

#include <vector>

#include "experts/policy.h"
#include "experts/route_trace.h"
#include "lab/profile/profile.h"

namespace weir::lab {

/// From empty slots on, `slots` on each layer (fewer where it has fewer experts).
SlotTraffic slot_traffic(const RouteTrace& trace, int slots, ExpertPolicy policy);

/// Slot counts worth a look between the floor and residency, those in `extra` among them; increasing.
std::vector<int> slot_choices(int floor, int experts, const std::vector<int>& extra);

}  // namespace weir::lab
