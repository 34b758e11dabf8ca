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

/// "cuda:0: NVIDIA H200"; empty where the CPU computes.
std::string gpu_name(const Engine& engine) {
  if (!engine.plan().device) return {};
  const std::string description = engine.description();
  return description.substr(0, description.find(','));
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

void say_written(const std::string& what, const std::string& path) {
  if (!path.empty()) log_line(fmt::format("weir: wrote {} to {}", what, path));
}

LedgerOutputs::LedgerOutputs(const EngineFlags& flags)
    : json_path_(flags.ledger_json), trace_path_(flags.trace), routes_path_(flags.route_trace) {
  if (!flags.ledger_json.empty()) json_.emplace(flags.ledger_json);
  if (!flags.trace.empty()) trace_.emplace(flags.trace);
}

void LedgerOutputs::write(Engine& engine) {
  if (const Ledger* ledger = engine.ledger()) {
    log_line(report_text(*ledger));
    if (json_) {
      const std::string text = report_json(*ledger);
      json_->write(text.data(), text.size());
      json_->commit();
    }
    if (trace_) {
      write_trace(*ledger, gpu_name(engine),
                  [&](std::string_view piece) { trace_->write(piece.data(), piece.size()); });
      trace_->commit();
    }
  }
  engine.close_trace();
}

void LedgerOutputs::say() const {
  say_written("the ledger", json_path_);
  say_written("the trace", trace_path_);
  say_written("the routing trace", routes_path_);
}

}  // namespace weir::cli
