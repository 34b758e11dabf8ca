// Slots to budgets through the planner, slots to hit rates through the replay.
#include "lab/slot_advice.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/log.h"
#include "base/quantity.h"

namespace weir::lab {

namespace {

/// Replays each count of slots once.
class Choices {
 public:
  Choices(const Planner& planner, uint64_t least, const Demand& demand, ExpertPolicy policy,
          PhaseChoice phase)
      : planner_(planner), least_(least), demand_(demand), policy_(policy), phase_(phase) {}

  const SlotChoice& at(int slots) {
    const auto known = made_.find(slots);
    if (known != made_.end()) return known->second;
    const ResidencyPlan plan = smallest_plan(planner_, least_, slots);
    return made_[slots] = {plan.slots, plan.request.budget_bytes, plan.prefill_chunk,
                           replay_total(demand_, plan.slots, {policy_}, phase_)};
  }

  /// The fewest slots that reach the rate, given that more slots never lower it.
  std::optional<SlotChoice> reaching(double rate, int low, int high) {
    if (at(high).traffic.hit_rate() < rate) return {};
    while (low < high) {
      const int middle = low + (high - low) / 2;
      if (at(middle).traffic.hit_rate() >= rate) {
        high = middle;
      } else {
        low = middle + 1;
      }
    }
    return at(low);
  }

 private:
  const Planner& planner_;
  const uint64_t least_;
  const Demand& demand_;
  ExpertPolicy policy_;
  PhaseChoice phase_;
  std::map<int, SlotChoice> made_;
};

double bytes_per_token(const BudgetAdvice& advice, const SlotChoice& c) {
  return advice.tokens ? static_cast<double>(c.traffic.bytes) / static_cast<double>(advice.tokens) : 0.0;
}

std::string line(const BudgetAdvice& advice, const std::string& label, const SlotChoice& c) {
  return fmt::format("  {:<14}{:>5} slots{:>9.2f} % hits{:>11} a token  budget {:>8}\n    {}\n", label,
                     c.slots, 100 * c.traffic.hit_rate(),
                     human_bytes(static_cast<uint64_t>(bytes_per_token(advice, c))),
                     human_bytes(c.budget_bytes), advice_command(advice, c));
}

nlohmann::ordered_json choice_json(const BudgetAdvice& advice, const SlotChoice& c) {
  return {{"expert_slots", c.slots},
          {"budget_bytes", c.budget_bytes},
          {"prefill_chunk", c.prefill_chunk},
          {"hits", c.traffic.hits},
          {"misses", c.traffic.misses},
          {"hit_rate", c.traffic.hit_rate()},
          {"bytes_per_token", bytes_per_token(advice, c)},
          {"command", advice_command(advice, c)}};
}

}  // namespace

/// Each step takes what the slots would need beside the rounds of the budget at hand. No budget between the
/// two has them: its rounds are as wide or wider, and take as much or more.
ResidencyPlan smallest_plan(const Planner& planner, uint64_t least, int slots) {
  for (uint64_t budget = least;;) {
    ResidencyPlan plan = planner(budget);
    if (plan.slots >= slots) return plan;
    PlanRequest wanted = plan.request;
    wanted.expert_slots = slots;
    wanted.budget_bytes = UINT64_MAX;
    const uint64_t needed = make_plan(wanted).total_bytes;
    WEIR_CHECK(needed > budget, "{} slots fit {} bytes, but the plan has {}", slots, budget, plan.slots);
    budget = needed;
  }
}

BudgetAdvice advise_budget(const ResidencyPlan& plan, const Planner& planner, const RouteTrace& trace,
                           const AdviceRequest& request) {
  require_calls(trace, request.trace_name);
  const Demand demand = make_demand(trace);
  BudgetAdvice advice;
  advice.trace = request.trace_name;
  advice.command = request.command;
  advice.policy = request.policy;
  advice.phase = choose_phase(demand, request.trace_name, "");
  advice.tokens = tokens_in(demand, advice.phase);
  Choices choices(planner, plan.minimum_budget, demand, request.policy, advice.phase);
  const int most = most_experts(trace.header);
  advice.current = choices.at(std::min(plan.slots, most));
  advice.resident = choices.at(most);
  for (const double target : request.targets)
    advice.targets.push_back({target, choices.reaching(target, trace.header.top_k, most)});
  return advice;
}

std::string advice_command(const BudgetAdvice& advice, const SlotChoice& choice) {
  return fmt::format("{} --memory {} -p PROMPT", advice.command, choice.budget_bytes);
}

std::string advice_text(const BudgetAdvice& advice) {
  std::string out = fmt::format("by {} ({}, {}, {}):\n", advice.trace, quantity(advice.tokens, "token"),
                                phase_choice_name(advice.phase), policy_name(advice.policy));
  out += line(advice, "this plan", advice.current);
  for (const auto& target : advice.targets) {
    const std::string label = fmt::format("for {:g} %", 100 * target.hit_rate);
    out += target.choice ? line(advice, label, *target.choice)
                         : fmt::format(
                               "  {:<14}not reached by this trace: the first read of an expert is a "
                               "miss with any memory\n",
                               label);
  }
  return out + line(advice, "all resident", advice.resident);
}

nlohmann::ordered_json advice_json(const BudgetAdvice& advice) {
  nlohmann::ordered_json targets = nlohmann::ordered_json::array();
  for (const auto& target : advice.targets) {
    nlohmann::ordered_json json = {{"target", target.hit_rate}, {"reached", target.choice.has_value()}};
    if (target.choice) json.update(choice_json(advice, *target.choice));
    targets.push_back(json);
  }
  return {{"trace", advice.trace},
          {"policy", policy_name(advice.policy)},
          {"phase", phase_choice_name(advice.phase)},
          {"tokens", advice.tokens},
          {"current", choice_json(advice, advice.current)},
          {"targets", targets},
          {"all_resident", choice_json(advice, advice.resident)}};
}

}  // namespace weir::lab
