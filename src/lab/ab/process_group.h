// What a command started and did not wait for: the processes of its group that outlive it. Linux: reads
// /proc.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace weir::lab::ab {

/// Names of the processes of `group` that still run, each once; not those that ended and were not waited for.
std::vector<std::string> running_in(pid_t group);

/// SIGKILL to the whole group, then waits until none of it runs, at most 5 s. Hazard: the number must still
/// be taken, i.e. the group's leader not yet waited for, or another group might be meant.
void end_group(pid_t group);

}  // namespace weir::lab::ab
