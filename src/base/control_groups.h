// The Linux control groups that this process is in, versions 1 and 2, and the processors they leave. Files
// that are absent or odd mean "no limit", never an error. Knows where the files are, not what memory is for.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace weir {

/// This process's group in one hierarchy. `root` is where proc and sys are below: "" but for tests.
struct ControlGroup {
  int version = 2;
  std::string mount;  ///< where the hierarchy is mounted
  std::string path;   ///< the group below it, "/" for the mount itself
};

/// The groups of /proc/self/cgroup that can limit what `controller` ("memory", "cpu") divides.
std::vector<ControlGroup> control_groups(const std::string& root, const std::string& controller);

/// Every level from the group up to the mount, as "DIRECTORY/": limits of all of them hold. The paths of a
/// container's host need not exist here; the walk ends at the mount, where the container's own limit then is.
void walk_up(const ControlGroup& group, const std::function<void(const std::string& directory)>& visit);

/// A whole file.
std::optional<std::string> read_small_file(const std::string& path);
/// A number alone in a file; nothing for "max" or anything else.
std::optional<uint64_t> read_number(const std::string& path);

/// The smallest quota on the way up (cpu.max, cpu.cfs_quota_us), in processors: 1.5 is 150 ms every 100 ms.
std::optional<double> cpu_quota(const std::string& root = "");
/// `processors`, or the quota where that is less: rounded, at least 1. Rounded, since threads that meet after
/// every operation are all held up when the quota of a period is spent: a thread more than the quota buys is
/// worth it only where it runs for most of each period.
int threads_within_quota(int processors, std::optional<double> quota);
/// Of the affinity mask, within the quota.
int available_processors();

}  // namespace weir
