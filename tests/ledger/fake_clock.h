// A clock that tests set by hand, for LedgerOptions::clock. With `step` each reading also moves it on.
#pragma once

#include <cstdint>

#include "ledger/ledger.h"

namespace weir {

struct FakeClock {
  static inline uint64_t now = 0, step = 0, readings = 0;
  static uint64_t read() {
    ++readings;
    return now += step;
  }
};

/// Options on a fake clock that starts at one second and stands still.
inline LedgerOptions on_fake_clock() {
  FakeClock::now = 1'000'000'000;
  FakeClock::step = FakeClock::readings = 0;
  LedgerOptions options;
  options.enabled = true;
  options.clock = &FakeClock::read;
  return options;
}

/// Runs `role` for `ns`.
inline void spend(Ledger& ledger, Role role, uint64_t ns) {
  ledger.enter(role);
  FakeClock::now += ns;
}

inline uint64_t role_ns(const PhaseAccount& account, Role role) {
  return account.roles[static_cast<int>(role)].per_round.sum_ns;
}

inline uint64_t sum_of_roles(const PhaseAccount& account) {
  uint64_t sum = 0;
  for (const RoleAccount& role : account.roles) sum += role.per_round.sum_ns;
  return sum;
}

}  // namespace weir
