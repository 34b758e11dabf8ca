// What a profile says: totals over its prompts, the largest block, and whether that block is flat or grows
// with the context. Pure functions of accounts.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lab/profile/profile.h"

namespace weir::lab {

/// Sums of the runs' decode accounts: times, counts and bytes; no extremes and no histograms.
PhaseAccount total_decode(std::span<const ProfileRun> runs);

inline uint64_t role_ns(const PhaseAccount& account, Role role) {
  return account.roles[static_cast<size_t>(role)].per_round.sum_ns;
}
/// Milliseconds a token; 0 without tokens.
double ms_per_token(const PhaseAccount& account, uint64_t ns);

/// The named role with the most time; nothing where no time was charged.
std::optional<Role> largest_role(const PhaseAccount& decode);

/// How a role's time a round compares between two stretches of decode.
struct Trend {
  enum class Kind { unknown, flat, grows, shrinks };
  Kind kind = Kind::unknown;
  double from_ns = 0, to_ns = 0;              ///< medians a round
  double from_position = 0, to_position = 0;  ///< mean positions
  double ratio() const { return from_ns > 0 ? to_ns / from_ns : 0; }
  double ns_per_1000_positions() const;
};
const char* trend_name(Trend::Kind kind);

/// It grows (shrinks) where the medians differ by more than a twentieth and their exact 95 % intervals do not
/// touch; unknown where a stretch has under 6 rounds.
Trend compare_stretches(std::span<const double> from_ns, std::span<const double> to_ns, double from_position,
                        double to_position);

struct Growth {
  std::optional<Trend> prompts;  ///< shortest against longest prompt; nothing where they are of one length
  std::string shortest, longest;
  Trend quarters;  ///< first against last quarter of the decode rounds of the longest prompt
  /// The verdict: across prompts where there are two lengths (the wider span), else within the one.
  Trend::Kind kind() const { return prompts ? prompts->kind : quarters.kind; }
};
Growth growth_of(Role role, std::span<const ProfileRun> runs);

}  // namespace weir::lab
