#include "cli/outputs.h"

#include <filesystem>

#include "base/error.h"
#include "base/log.h"
#include "ledger/report.h"
#include "ledger/trace.h"

namespace weir::cli {

namespace {

/// One name for one regular file: links resolved. Devices may be named twice.
std::string canonical(const std::string& path) {
  std::error_code ignored;
  if (std::filesystem::exists(path, ignored) && !std::filesystem::is_regular_file(path, ignored)) return {};
  const auto resolved = std::filesystem::weakly_canonical(path, ignored);
  return ignored ? path : resolved.string();
}

void complete(std::optional<AtomicFile>& file, const std::string& content) {
  file->write(content.data(), content.size());
  file->commit();
  file.reset();
}

}  // namespace

void check_output_paths(const std::string& input, const std::vector<std::string>& paths) {
  std::vector<std::string> seen;
  for (const auto& path : paths) {
    if (path.empty()) continue;
    const std::string name = canonical(path);
    if (name.empty()) continue;
    if (name == canonical(input))
      throw input_error("{}: is the input: expected another file to write", quote(path));
    for (const auto& other : seen)
      if (name == other)
        throw input_error("{}: is named for two outputs: expected a file for each", quote(path));
    seen.push_back(name);
  }
}

LedgerOutputs::LedgerOutputs(const EngineFlags& flags) {
  if (!flags.ledger_json.empty()) json_.emplace(flags.ledger_json);
  if (!flags.trace.empty()) trace_.emplace(flags.trace);
}

void LedgerOutputs::write(const Ledger* ledger) {
  if (!ledger) return;
  log_line(report_text(*ledger));
  if (json_) complete(json_, report_json(*ledger));
  if (trace_) complete(trace_, trace_json(*ledger));
}

}  // namespace weir::cli
