// The router for one row or a few (route_one.cu).
#pragma once

#include "device/cuda/kernels.h"

namespace weir::cuda {

/// At most small_rows rows of whole segments of 512 values, at most most_one_experts experts of which at most
/// 16 are chosen.
bool takes_route_one(const RouteArgs& args);
/// As route(), acts included where they are per256 (others are left alone); groups are made for one row
/// alone.
void route_one(Stream& s, const RouteArgs& args, uint32_t* tickets, const ExpertGroups& groups,
               const Acts& acts);

}  // namespace weir::cuda
