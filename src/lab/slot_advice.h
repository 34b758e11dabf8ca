// Which memory budget a recorded routing would reward: hit rates of a trace at the slots that a plan could
// have. Pure: sizes come from the plan, hits from the replay.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "experts/plan.h"
#include "lab/replay.h"

namespace weir::lab {

struct SlotChoice {
  int slots = 0;
  uint64_t budget_bytes = 0;  ///< of the whole process: the smallest --memory that gives these slots
  Traffic traffic;
};

struct BudgetAdvice {
  std::string trace;
  ExpertPolicy policy = ExpertPolicy::lfu;
  PhaseChoice phase;
  uint64_t tokens = 0;
  int prefill_chunk = 0;         ///< the budgets hold this chunk's scratch: the plan of another may differ
  SlotChoice current, resident;  ///< resident: a slot for every expert
  struct Target {
    double hit_rate = 0;
    std::optional<SlotChoice> choice;  ///< none: not even with every expert resident (first reads count)
  };
  std::vector<Target> targets;
};

/// The trace must be of the plan's model. Finds each target by halving the range of slots.
/// `chunk` is the plan's, for the report.
BudgetAdvice advise_budget(const ResidencyPlan& plan, int chunk, const RouteTrace& trace,
                           const std::string& name, ExpertPolicy policy,
                           const std::vector<double>& targets = {0.8, 0.9, 0.95, 0.99});
std::string advice_text(const BudgetAdvice& advice);
nlohmann::ordered_json advice_json(const BudgetAdvice& advice);

}  // namespace weir::lab
