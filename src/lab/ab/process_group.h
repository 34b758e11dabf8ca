// What a command started: its group, its descendants, and those of them that moved to a session of their own
// and lost their parents. Linux: reads /proc.
#pragma once

#include <sys/types.h>

#include <set>
#include <string>
#include <vector>

namespace weir::lab::ab {

/// Names of the processes of `group` that still run, each once; not those that ended and were not waited for.
std::vector<std::string> running_in(pid_t group);

struct ProcessState;

/// The processes of one command. While it lives, this process adopts the orphans among its descendants, so
/// that all of them can be found; only one may live at a time.
class CommandProcesses {
 public:
  /// Before the command is started: what this process has for children already is none of the command's.
  CommandProcesses();
  ~CommandProcesses();
  CommandProcesses(const CommandProcesses&) = delete;
  CommandProcesses& operator=(const CommandProcesses&) = delete;

  /// The command itself, a child of this process that leads a group of its own. Hazard: from here until the
  /// last call of the others, its number must be taken, i.e. it is not yet waited for.
  void started(pid_t child) { child_ = child; }
  /// Names of those that run, the command's own process aside; each once.
  std::vector<std::string> left_running() const;
  void send(int signal) const;
  /// SIGKILL to all, then waits until none runs, at most 5 s, and waits for those that were adopted.
  void end() const;

 private:
  std::vector<ProcessState> members() const;

  pid_t child_ = 0;
  std::set<pid_t> before_;
  int reaper_before_ = 0;
};

}  // namespace weir::lab::ab
