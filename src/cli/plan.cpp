// weir plan: where the memory budget would go, without loading anything; and, by a recorded routing, which
// budget would pay.
#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "base/log.h"
#include "cli/commands.h"
#include "cli/options.h"
#include "cli/result_json.h"
#include "lab/slot_advice.h"

namespace weir::cli {

int plan(const Arguments& arguments) {
  EngineFlags flags;
  std::string trace_file;
  bool json = false;
  CommandLine line("plan",
                   "Shows where the memory budget would go and refuses what cannot fit. Loads nothing.");
  line.example("-m model.gguf --memory 3GiB");
  line.example("-m model.gguf -c 8192 --memory 3GiB --json");
  line.example("-m model.gguf --route-trace run.routes   # recorded by weir run --route-trace run.routes");
  flags.add(line, EngineFlags::With::engine_and_ledger_flag);
  line.option("--route-trace", &trace_file, "advise a budget by this recorded routing of the model");
  line.group(Group::output);
  line.flag("--json", &json, "one line of JSON on stdout instead of the table");
  if (!line.parse(arguments)) return 0;
  const Engine engine(flags.options());
  std::optional<lab::BudgetAdvice> advice;
  if (!trace_file.empty()) {
    const RouteTrace trace = RouteTrace::read(trace_file);
    lab::require_same_model(trace.header, trace_file, engine.model());
    advice = lab::advise_budget(engine.plan(), engine.options().prefill_chunk, trace, trace_file,
                                *engine.options().policy);
  }
  for (const auto& warning : engine.plan().warnings) log_warning(warning);
  if (!json) {
    fmt::print("{}\n", describe_plan(engine.plan()));
    if (advice) fmt::print("{}", lab::advice_text(*advice));
    return 0;
  }
  auto object = nlohmann::ordered_json::parse(plan_json(engine.plan()));
  if (advice) object["advice"] = lab::advice_json(*advice);
  print_json(object);
  return 0;
}

}  // namespace weir::cli
