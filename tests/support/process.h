// Runs a program to its end and keeps what it said: standard output and error apart, exit code or signal. A
// program that outlives its time limit is killed, so a hang is a failed test and not a stuck one.
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace weir::test {

struct ProcessOptions {
  std::vector<std::string> command;                              ///< program and arguments; no shell
  std::vector<std::pair<std::string, std::string>> environment;  ///< added to (or replacing in) ours
  std::string input;                                             ///< its standard input
  double timeout_seconds = 60;
  /// Called once, when the first byte of standard output has arrived: the program is in the midst of its
  /// work.
  std::function<void(pid_t)> on_first_output;
  /// The same for standard error.
  std::function<void(pid_t)> on_first_error;
  /// Called once the program runs, before any of its output is read.
  std::function<void(pid_t)> on_start;
};

struct ProcessResult {
  int exit_code = -1;  ///< -1 where a signal ended it
  int signal = 0;      ///< 0 where it exited
  bool timed_out = false;
  std::string out, err;
};

/// Throws std::system_error where the program cannot be started.
ProcessResult run_process(const ProcessOptions& options);

}  // namespace weir::test
