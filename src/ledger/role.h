// Role and Phase: the two keys of every account in the ledger. Generated from roles.def.
#pragma once

#include <cstdint>

namespace weir {

enum class Role : uint8_t {
#define WEIR_ROLE(name, lane, what) name,
#include "ledger/roles.def"
#undef WEIR_ROLE
  unattributed,  ///< time between roles: what the ledger could not name
};
inline constexpr int role_count = static_cast<int>(Role::unattributed) + 1;

enum class Phase : uint8_t { prefill, decode, verify };
inline constexpr int phase_count = 3;

enum class LaneKind : uint8_t { device, side, host };

const char* role_name(Role role);
const char* role_description(Role role);
LaneKind role_lane(Role role);
const char* phase_name(Phase phase);

}  // namespace weir
