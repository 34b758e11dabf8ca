// Names, descriptions and lanes of roles and phases, straight from roles.def. Knows nothing else.
#include "ledger/role.h"

#include "base/error.h"

namespace weir {
namespace {

struct RoleRow {
  const char* name;
  const char* description;
  LaneKind lane;
};

constexpr RoleRow role_rows[role_count] = {
#define WEIR_ROLE(name, lane, what) {#name, what, LaneKind::lane},
#include "ledger/roles.def"
#undef WEIR_ROLE
    {"unattributed", "time between roles that the ledger could not name", LaneKind::host},
};

const RoleRow& row(Role role) {
  const int index = static_cast<int>(role);
  WEIR_CHECK(index >= 0 && index < role_count, "role {}", index);
  return role_rows[index];
}

}  // namespace

const char* role_name(Role role) { return row(role).name; }

const char* role_description(Role role) { return row(role).description; }

LaneKind role_lane(Role role) { return row(role).lane; }

const char* phase_name(Phase phase) {
  switch (phase) {
    case Phase::prefill:
      return "prefill";
    case Phase::decode:
      return "decode";
    case Phase::verify:
      return "verify";
  }
  WEIR_CHECK(false, "phase {}", static_cast<int>(phase));
  return "";
}

}  // namespace weir
