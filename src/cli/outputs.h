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

class LedgerOutputs {
 public:
  /// Opens --ledger-json and --trace.
  explicit LedgerOutputs(const EngineFlags& flags);
  /// Writes the report to stderr and the files. Does nothing where the ledger is off.
  void write(const Ledger* ledger);

 private:
  std::optional<AtomicFile> json_, trace_;
};

}  // namespace weir::cli
