// Which memory budget a recorded routing would reward: hit rates of a trace at the slots that a plan could
// have. Pure: budgets come from the planner that opening a model uses, hits from the replay.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "experts/plan.h"
#include "lab/replay.h"

namespace weir::lab {

struct SlotChoice {
  int slots = 0;
  uint64_t budget_bytes = 0;  ///< of the whole process: the smallest --memory whose plan has these slots
  int prefill_chunk = 0;      ///< of that plan
  Traffic traffic;
};

struct BudgetAdvice {
  std::string trace;
  std::string command;  ///< "weir run -m FILE -c N": what a row's --memory is added to
  ExpertPolicy policy = ExpertPolicy::lfu;
  PhaseChoice phase;
  uint64_t tokens = 0;
  SlotChoice current, resident;  ///< resident: a slot for every expert
  struct Target {
    double hit_rate = 0;
    std::optional<SlotChoice> choice;  ///< none: not even with every expert resident (first reads count)
  };
  std::vector<Target> targets;
};

/// The plan of a budget (Engine::plan_for).
using Planner = std::function<ResidencyPlan(uint64_t budget)>;
/// The plan of the smallest budget that has at least `slots`, which may not exceed the experts of a layer.
/// `least` is a budget that has a plan, and no smaller one has. A larger budget's plan need not have more
/// slots: where it is worth a wider prefill round, that takes its scratch first.
ResidencyPlan smallest_plan(const Planner& planner, uint64_t least, int slots);

struct AdviceRequest {
  std::string trace_name, command;
  ExpertPolicy policy = ExpertPolicy::lfu;
  std::vector<double> targets = {0.8, 0.9, 0.95, 0.99};
};
/// The trace must be of the plan's model. Finds each target by halving the range of slots.
BudgetAdvice advise_budget(const ResidencyPlan& plan, const Planner& planner, const RouteTrace& trace,
                           const AdviceRequest& request);
/// What to paste into a shell for a row; PROMPT stands for the prompt.
std::string advice_command(const BudgetAdvice& advice, const SlotChoice& choice);
std::string advice_text(const BudgetAdvice& advice);
nlohmann::ordered_json advice_json(const BudgetAdvice& advice);

}  // namespace weir::lab
