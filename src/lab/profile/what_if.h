// What if a role were slower? A known delay is spun in one role in about half of the rounds; the slope of the
// round's time over the delay is the role's criticality: 1 where the work is serial, 0 where it is hidden.
// The estimate is a pure function of observed rounds; measuring drives an engine.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "lab/profile/measure.h"
#include "lab/profile/table.h"

namespace weir::lab {

/// The decode rounds of one generation, and the delay spun in each (0: none).
struct DelayedRun {
  std::vector<double> time_ns;
  std::vector<double> delay_ns;
};

struct Slope {
  double value = 0, low = 0, high = 0;
  double coverage = 0;  ///< of the interval, at least 0.95
  int rounds = 0;       ///< positions that count: with and without the delay over the runs
};

/// Runs of the same tokens: round i of each evaluated the same position. At each position, least squares of
/// time over delay across the runs, each run first moved by its own median offset; the slope is the median
/// over the positions with the exact order-statistic interval, so rounds that something else interrupted
/// count as one vote each. Nothing where under 6 positions count.
std::optional<Slope> delay_slope(const std::vector<DelayedRun>& runs);

struct Criticality {
  Role role = Role::unattributed;
  double share = 0;            ///< of decode, without any delay
  std::optional<Slope> round;  ///< of the round's wall time; nothing where the delay never came to pass
  std::optional<Slope> own;    ///< of the role's own time: 1 where the instrument is right and nothing hides
  /// Of decode's time, what the role's time is worth: share times criticality; 0 where that is unknown.
  double worth() const { return round ? share * round->value : 0; }
};

struct WhatIf {
  ProfileSettings settings;
  std::string prompt;
  int prompt_tokens = 0, runs = 0;  ///< runs without a delay, and as many for each role
  uint64_t delay_ns = 0;            ///< odd runs; even ones spin twice that
  double median_round_ns = 0;
  std::vector<Criticality> roles;  ///< by what they are worth (Criticality::worth), most first
  std::vector<Role> never_ran;     ///< asked for, but in no decode round: nothing to delay
  std::vector<Role> ran;           ///< every role that could have been asked for
};

struct WhatIfRequest {
  ProfileRequest profile;
  int runs = 4;
  uint64_t delay_ns = 0;    ///< 0: a fifth of the median round, at least 50 us
  std::vector<Role> roles;  ///< which to delay; empty: every role that runs
};

/// The engine is loaded, with options from profile_engine_options. Nothing where it was cancelled. Throws
/// Error: input where none of the roles asked for ran, failure where a delay changed a token.
std::optional<WhatIf> measure_what_if(Engine& engine, const FittedPrompt& prompt,
                                      const WhatIfRequest& request);
/// Generations that measure_what_if runs at most, for progress.
int what_if_generations(const WhatIfRequest& request);

/// Roles by their worth, most first; those whose criticality is unknown last, as they were.
void sort_by_worth(std::vector<Criticality>& roles);
/// One sentence on what to attack first, and what is not worth it.
std::string what_if_advice(const WhatIf& result);

/// One line for people on the roles that never ran, and those that did; empty where every one ran.
std::string never_ran_text(const WhatIf& result);

std::string what_if_text(const WhatIf& result, Layout layout);
nlohmann::ordered_json what_if_json(const WhatIf& result);

}  // namespace weir::lab
