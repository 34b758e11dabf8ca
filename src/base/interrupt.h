// How the process ends at SIGINT, SIGTERM and SIGHUP. Whoever can stop in an orderly way looks at
// interrupted(); everything else (loading, planning, tokenising) is ended at once, with no temporary file
// left. A signal that the parent ignores stays ignored. The one place that sets handlers for these signals.
#pragma once

#include <atomic>

namespace weir {

/// The exit code of an interrupted command.
inline constexpr int interrupted_exit_code = 130;

/// From now on SIGINT ends the process with code 130, SIGTERM and SIGHUP as ever; in all cases its temporary
/// files (base/temporary.h) are removed first.
void clean_up_at_signals();

/// From now on the first SIGINT or SIGTERM only sets interrupted(), for work that looks at it, and a second
/// one ends the process at once with code 130.
void catch_interrupts();
const std::atomic<bool>& interrupted();

/// For its lifetime nobody looks at interrupted(): an interrupt, also one that has come already, ends the
/// process at once with code 130. Nothing where interrupts are not caught.
class EndAtOnce {
 public:
  EndAtOnce();
  ~EndAtOnce();
  EndAtOnce(const EndAtOnce&) = delete;
  EndAtOnce& operator=(const EndAtOnce&) = delete;
};

/// For its lifetime interrupts only set the flag, however many come: the process has children, and whoever
/// waits for them looks at the flag often and ends them in bounded time. A signal that ends the process all
/// the same ends the children's group first.
class EndChildrenFirst {
 public:
  EndChildrenFirst();
  ~EndChildrenFirst();
  void set_group(int group);
  EndChildrenFirst(const EndChildrenFirst&) = delete;
  EndChildrenFirst& operator=(const EndChildrenFirst&) = delete;
};

}  // namespace weir
