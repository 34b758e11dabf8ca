// Checks of the design: the number of pairs and their order, which nobody may choose after looking.
#include <fmt/format.h>

#include <set>

#include "lab/ab/checks.h"
#include "lab/ab/schedule.h"
#include "lab/ab/spread.h"

namespace weir::lab::ab {

Check enough_pairs(std::span<const Pair> pairs) {
  Check check{"enough pairs", CheckState::passed, fmt::format("{} complete", pairs.size()), {}};
  if (static_cast<int>(pairs.size()) < fewest_pairs) {
    check.state = CheckState::failed;
    check.detail += fmt::format(": under {} the sign-flip test cannot reach 5 %", fewest_pairs);
  }
  return check;
}

Check number_of_pairs_kept(const Experiment& e, std::span<const Pair> pairs, std::optional<int> requested) {
  const int planned = e.design.pairs;
  Check check{"pairs as planned", CheckState::passed, fmt::format("{} planned and made", planned), {}};
  if (planned == 0) {
    check.state = CheckState::failed;
    check.detail = "none were planned yet: it ended in the pilot, which tells their number";
  } else if (static_cast<int>(pairs.size()) != planned) {
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
  const auto schedule = e.design.pairs == 0 ? make_pilot(e.design) : make_schedule(e.design);
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

Check openings_are_covered(const Experiment& e) {
  constexpr const char* name = "openings";
  if (e.design.open_once)
    return {name,
            CheckState::skipped,
            "one opening of each arm: a difference between openings is not covered",
            {}};
  std::set<int> openings;
  for (const auto& o : e.observations)
    if (o.run.kind != RunKind::pilot) openings.insert(o.run.opening);
  auto detail = fmt::format("{} of one run each", openings.size());
  if (!e.design.commands)
    detail = fmt::format("{} engines opened, {} {} of each", openings.size(), e.design.runs,
                         e.design.runs == 1 ? "run" : "runs");
  const Spread spread = spread_of(e);
  if (spread.opening) detail += fmt::format(", {:.2f} % apart", 100 * *spread.opening);
  if (spread.run) detail += fmt::format("; runs of one {:.2f} %", 100 * *spread.run);
  return {name, CheckState::passed, std::move(detail), {}};
}

}  // namespace weir::lab::ab
