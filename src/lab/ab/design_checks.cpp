// Checks of the design: the number of pairs and their order, which nobody may choose after looking.
#include <fmt/format.h>

#include "lab/ab/checks.h"
#include "lab/ab/schedule.h"

namespace weir::lab::ab {

Check enough_pairs(std::span<const Pair> pairs) {
  Check check{"enough pairs", CheckState::passed, fmt::format("{} complete", pairs.size()), {}};
  if (static_cast<int>(pairs.size()) < fewest_pairs) {
    check.state = CheckState::failed;
    check.detail += fmt::format(": under {} no interval for the median reaches 95 %", fewest_pairs);
  }
  return check;
}

Check number_of_pairs_kept(const Experiment& e, std::span<const Pair> pairs, std::optional<int> requested) {
  const int planned = e.design.pairs;
  Check check{"pairs as planned", CheckState::passed, fmt::format("{} planned and made", planned), {}};
  if (static_cast<int>(pairs.size()) != planned) {
    check.state = CheckState::failed;
    check.detail = fmt::format(
        "{} were planned, {} are complete: a number of pairs that was not fixed before "
        "looking is no experiment",
        planned, pairs.size());
  } else if (requested && *requested != planned) {
    check.state = CheckState::failed;
    check.detail = fmt::format("{} were planned, {} are asked for now: the number was changed after looking",
                               planned, *requested);
  }
  return check;
}

Check order_is_the_seeds(const Experiment& e) {
  Check check{"order of the seed", CheckState::passed, fmt::format("seed {}", e.design.seed), {}};
  const auto schedule =
      make_schedule(e.design.pairs, e.design.seed, static_cast<int>(e.design.prompts.size()));
  const auto& runs = e.observations;
  for (size_t i = 0; i < runs.size(); ++i) {
    if (i < schedule.size() && runs[i].run == schedule[i]) continue;
    check.state = CheckState::failed;
    check.detail = fmt::format(
        "run {} is not the one that seed {} gives: in any other order, blocked or "
        "alternating, drift and position look like a difference",
        i + 1, e.design.seed);
    break;
  }
  return check;
}

}  // namespace weir::lab::ab
