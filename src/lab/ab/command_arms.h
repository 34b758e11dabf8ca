// Arms that are whole commands, run by /bin/sh: their time, or the figure that they print. There is no ledger
// in them.
#pragma once

#include <array>
#include <atomic>
#include <string>
#include <vector>

#include "lab/ab/conduct.h"

namespace weir::lab::ab {

struct CommandResult {
  std::string out;        ///< its standard output, the last 4 MiB
  std::string complaint;  ///< the last line of its standard error
  int exit_code = 0;      ///< 128 and the signal's number where one ended it
  bool interrupted = false;
  uint64_t wall_ns = 0;                   ///< to the end of the command itself
  std::vector<std::string> left_running;  ///< names of what it started that outlived it, and was killed
  uint64_t peak_bytes = 0;                ///< largest process of its tree
};
/// Runs `command` with an empty standard input, to its own end or until `cancel` is set: then its processes
/// get SIGTERM, and SIGKILL half a second later. What it left in the background is not waited for but killed
/// before this returns, whichever group or session it moved to. One at a time in a process. Throws Error
/// (failure) where /bin/sh cannot be started.
CommandResult run_command(const std::string& command, const std::atomic<bool>* cancel);

/// Throws Error (input) where `expression` is empty or does not compile, so that this shows before anything
/// runs.
void check_figure(const std::string& expression);
/// The number of the last match of `expression` (PCRE2) in `text`: its first group, or the match where there
/// is none. Throws Error (input): a bad expression, no match, no finite number.
double find_figure(const std::string& expression, const std::string& text);

struct CommandArmsOptions {
  std::array<std::string, 2> commands;  ///< "{prompt}" stands for the path of the prompt's file
  std::string figure;                   ///< empty: the command's wall time
  std::vector<std::string> prompts;     ///< paths; at least one entry, empty where there is none
  const std::atomic<bool>* cancel = nullptr;
};

class CommandArms final : public Runner {
 public:
  explicit CommandArms(CommandArmsOptions options) : options_(std::move(options)) {}
  std::optional<Observation> observe(const PlannedRun& run) override;

 private:
  /// Once an arm: every run would say the same.
  void warn_of_left(Side arm, const std::vector<std::string>& names);
  CommandArmsOptions options_;
  std::array<bool, 2> warned_{};
};

}  // namespace weir::lab::ab
