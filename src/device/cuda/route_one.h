// The router for one row (route_one.cu).
#pragma once

#include "device/cuda/kernels.h"

namespace weir::cuda {

/// One row of whole segments of 512 values, at most most_one_experts experts of which at most 16 are chosen.
bool takes_route_one(const RouteArgs& args);
/// As route(), acts included where they are per256; others are left alone.
void route_one(Stream& s, const RouteArgs& args, uint32_t* tickets, const ExpertGroups& groups,
               const Acts& acts);

}  // namespace weir::cuda
