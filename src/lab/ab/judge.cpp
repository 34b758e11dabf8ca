#include "lab/ab/judge.h"

#include <algorithm>

#include "lab/ab/checks.h"

namespace weir::lab::ab {

Verdict judge(const Experiment& experiment, std::optional<int> requested_pairs) {
  const auto pairs = complete_pairs(experiment, RunKind::pair);
  const auto nulls = complete_pairs(experiment, RunKind::null_pair);
  Verdict verdict;
  verdict.checks = {
      enough_pairs(pairs),
      number_of_pairs_kept(experiment, pairs, requested_pairs),
      order_is_the_seeds(experiment),
      openings_are_covered(experiment),
      tokens_are_equal(experiment),
      starts_are_equal(experiment),
      wall_is_covered(experiment),
      little_was_stolen(experiment),
      null_pairs_are_equal(nulls),
      order_keeps_the_verdict(pairs),
      differences_do_not_drift(pairs),
      control_did_not_move(experiment, pairs),
  };
  if (std::any_of(verdict.checks.begin(), verdict.checks.end(),
                  [](const Check& c) { return c.state == CheckState::failed; }))
    return verdict;
  verdict.estimate = estimate(log_ratios(pairs));
  if (!verdict.estimate) return verdict;
  const int direction = verdict.estimate->direction();
  verdict.outcome = direction > 0 ? Outcome::faster : direction < 0 ? Outcome::slower : Outcome::unresolved;
  return verdict;
}

int exit_code(Outcome outcome) {
  switch (outcome) {
    case Outcome::faster:
      return 0;
    case Outcome::slower:
      return 10;
    case Outcome::unresolved:
      return 11;
    case Outcome::refused:
      return 12;
  }
  return 1;
}

const char* name(Outcome outcome) {
  constexpr const char* names[] = {"faster", "slower", "unresolved", "refused"};
  return names[static_cast<size_t>(outcome)];
}

const char* name(CheckState state) {
  constexpr const char* names[] = {"passed", "failed", "skipped"};
  return names[static_cast<size_t>(state)];
}

}  // namespace weir::lab::ab
