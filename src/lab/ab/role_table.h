// Where the difference between the arms went: each role's paired difference. They add up to the difference of
// the whole, so that a refund (one role grew while another shrank) shows. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/stats.h"
#include "lab/ab/pairs.h"

namespace weir::lab::ab {

struct RoleRow {
  std::string role;
  uint64_t a_ns = 0, b_ns = 0;             ///< sums over the paired runs
  int64_t difference_ns = 0;               ///< b_ns - a_ns
  std::optional<MedianInterval> interval;  ///< of a pair's mean B - A in a run, ns
};

struct RoleTable {
  size_t pairs = 0;
  size_t runs = 0;            ///< of each arm
  std::vector<RoleRow> rows;  ///< in the ledger's order, without those that no run entered
  RoleRow whole;              ///< exactly the sum of the rows
};
/// No rows where the arms have no ledger.
RoleTable role_table(const Experiment& experiment, std::span<const Pair> pairs);

}  // namespace weir::lab::ab
