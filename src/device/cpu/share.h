// Splits unequal work over the members of a team: parts laid end to end, each of equal units with a cost, cut
// where the running cost crosses each member's share. A pure function of its arguments, so the split is the
// same every time; results never depend on it. Knows no threads.
#pragma once

#include <algorithm>
#include <cstdint>

namespace weir::cpu {

struct SharePart {
  int64_t units = 0;
  int64_t cost = 1;  ///< of one unit, any scale, >= 1
};

/// Calls visit(part, unit_begin, unit_end) for the member's units, in order. part_of(i) gives part i of
/// `parts`.
template <typename PartOf, typename Visit>
void for_share(int64_t parts, PartOf&& part_of, int member, int members, Visit&& visit) {
  int64_t total = 0;
  for (int64_t i = 0; i < parts; ++i) {
    const SharePart part = part_of(i);
    total += part.units * part.cost;
  }
  const int64_t low = total * member / members, high = total * (member + 1) / members;
  // A unit belongs to the member in whose share its cost begins.
  const auto units_before = [](int64_t cost, const SharePart& part) {
    return std::clamp<int64_t>(cost <= 0 ? 0 : (cost + part.cost - 1) / part.cost, 0, part.units);
  };
  int64_t before = 0;
  for (int64_t i = 0; i < parts && before < high; ++i) {
    const SharePart part = part_of(i);
    const int64_t begin = units_before(low - before, part), end = units_before(high - before, part);
    if (begin < end) visit(i, begin, end);
    before += part.units * part.cost;
  }
}

}  // namespace weir::cpu
