// weir plan: where the memory budget would go, without loading anything; and, by a recorded routing, which
// budget would pay.
#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/log.h"
#include "cli/commands.h"
#include "cli/options.h"
#include "cli/result_json.h"
#include "lab/slot_advice.h"

namespace weir::cli {

namespace {

/// A word as a shell takes it.
std::string shell_word(const std::string& word) {
  const auto plain = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) ||
           std::string_view("_./:=,+@%-").find(c) != std::string::npos;
  };
  if (!word.empty() && std::all_of(word.begin(), word.end(), plain)) return word;
  std::string out = "'";
  for (const char c : word) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

/// A run with these options, the context that was chosen, and a budget of its own, which the caller appends.
std::string run_command(const CommandLine& line, int context) {
  std::string command = "weir run";
  for (const auto& word : line.words_besides({"--memory", "--expert-slots", "--route-trace", "--json", "-c"}))
    command += " " + shell_word(word);
  return command + fmt::format(" -c {}", context);
}

lab::BudgetAdvice advice_for(const Engine& engine, const CommandLine& line, const std::string& trace_file) {
  if (engine.plan().device)
    throw input_error(
        "--route-trace: a GPU holds all experts, so that no budget gives more hits: leave it out, or use "
        "--device cpu");
  const RouteTrace trace = RouteTrace::read(trace_file);
  lab::require_same_model(trace.header, trace_file, engine.model());
  const lab::AdviceRequest request{trace_file, run_command(line, engine.context()), *engine.options().policy};
  return lab::advise_budget(
      engine.plan(), [&](uint64_t budget) { return engine.plan_for(budget); }, trace, request);
}

}  // namespace

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
  if (!trace_file.empty()) advice = advice_for(engine, line, trace_file);
  for (const auto& warning : engine.plan().warnings) log_warning(warning);
  if (!json) {
    fmt::print("{}\n", describe_plan(engine.plan()));
    if (advice) fmt::print("{}", lab::advice_text(*advice));
    return 0;
  }
  nlohmann::ordered_json object = {{"model", engine.model().path()}};
  object.update(nlohmann::ordered_json::parse(plan_json(engine.plan())));
  if (advice) object["advice"] = lab::advice_json(*advice);
  print_json(object);
  return 0;
}

}  // namespace weir::cli
