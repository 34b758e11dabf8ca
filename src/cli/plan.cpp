// weir plan: where the memory budget would go, without loading anything.
#include <fmt/core.h>

#include "base/log.h"
#include "cli/commands.h"
#include "cli/options.h"

namespace weir::cli {

int plan(const Arguments& arguments) {
  EngineFlags flags;
  bool json = false;
  CommandLine line("plan",
                   "Shows where the memory budget would go and refuses what cannot fit. Loads nothing.");
  flags.add(line, EngineFlags::With::engine);
  line.flag("--json", &json, "one line of JSON on stdout instead of the table");
  if (!line.parse(arguments)) return 0;
  const Engine engine(flags.options());
  for (const auto& warning : engine.plan().warnings) log_warning(warning);
  fmt::print("{}\n", json ? plan_json(engine.plan()) : describe_plan(engine.plan()));
  return 0;
}

}  // namespace weir::cli
