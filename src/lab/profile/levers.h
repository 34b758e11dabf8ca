// Which lever attacks what a profile found, and what each is predicted to bring. Every prediction says how it
// was made; where nothing sound can be said, there is no number. Pure functions.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lab/profile/profile.h"

namespace weir::lab {

struct Lever {
  std::string name;            ///< slots, memory, threads, read size, drafting, device
  std::string setting;         ///< what to change
  std::optional<double> gain;  ///< predicted decode speed over the measured one; none: no prediction
  double gain_low = 1,
         gain_high = 1;  ///< what the gain may be by the prediction's weakest and widest reading
  bool at_most = false;  ///< the gain is an upper bound
  bool attacks_largest = false;
  std::string how;  ///< how it was predicted, or why it was not
};

/// Those that attack the largest block first, then by gain, those without a number last.
std::vector<Lever> levers(const Profile& profile);

/// One sentence on what to do first.
std::string lever_advice(const Profile& profile, const std::vector<Lever>& levers);

/// Slots that the budget would hold, given what the plan left over: at least those in use.
int slots_that_fit(const ProfileSettings& settings);

}  // namespace weir::lab
