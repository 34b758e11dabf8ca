// The files a command writes besides stdout, opened before any work is done, so that a bad path is refused at
// once. Nothing stands under a path before it is complete.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/file.h"
#include "cli/options.h"

namespace weir::cli {

/// Refuses (input) two outputs with one path, and an output that is the file that is read (the model, a
/// trace). Empty paths are skipped.
void check_output_paths(const std::string& input, const std::vector<std::string>& paths);

/// "weir: wrote the trace to t.json" on stderr: each file that a command has written, at its end. Nothing for
/// an empty path.
void say_written(const std::string& what, const std::string& path);

class LedgerOutputs {
 public:
  /// Opens --ledger-json and --trace.
  explicit LedgerOutputs(const EngineFlags& flags);
  /// Writes the report to stderr and the files, the engine's route trace among them.
  void write(Engine& engine);
  /// Says which files were written, at the command's end.
  void say() const;

 private:
  std::string json_path_, trace_path_, routes_path_;
  std::optional<AtomicFile> json_, trace_;
};

}  // namespace weir::cli
