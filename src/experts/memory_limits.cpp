// What this machine and its control groups leave for the process, and what the process has used. The only
// place that reads /proc and /sys; files that are absent or odd mean "no limit", never an error.
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fstream>
#include <sstream>

#include "base/error.h"
#include "base/log.h"
#include "experts/plan.h"

namespace weir {
namespace {

constexpr uint64_t gib = uint64_t{1} << 30;
/// cgroup v1 writes a page-rounded 2^63 for "no limit".
constexpr uint64_t unlimited = uint64_t{1} << 62;

std::optional<std::string> read_text(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) return std::nullopt;
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

/// A number alone in a file; nothing for "max" or anything else.
std::optional<uint64_t> read_number(const std::string& path) {
  const auto text = read_text(path);
  if (!text) return std::nullopt;
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), value);
  if (error != std::errc()) return std::nullopt;
  if (end != text->data() + text->size() && *end != '\n') return std::nullopt;
  return value;
}

/// The value in bytes of a "Key:   123 kB" line.
std::optional<uint64_t> kib_field(const std::string& text, const std::string& key) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind(key + ":", 0) != 0) continue;
    uint64_t kib = 0;
    std::istringstream rest(line.substr(key.size() + 1));
    if (rest >> kib) return kib * 1024;
  }
  return std::nullopt;
}

struct GroupFiles {
  std::string mount;  ///< where the hierarchy is mounted
  std::string path;   ///< this process's group below it, "/" for the root
  const char* limit;
  const char* used;
};

/// The groups of /proc/self/cgroup that can limit memory. The paths of a container's host need not exist
/// here; the walk up ends at the mount, where the container's own limit then is.
std::vector<GroupFiles> memory_groups(const std::string& root) {
  std::vector<GroupFiles> groups;
  const auto text = read_text(root + "/proc/self/cgroup");
  if (!text) return groups;
  std::istringstream lines(*text);
  for (std::string line; std::getline(lines, line);) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const std::string path = line.substr(second + 1), base = root + "/sys/fs/cgroup";
    if (controllers.find(",memory,") != std::string::npos)
      groups.push_back({base + "/memory", path, "memory.limit_in_bytes", "memory.usage_in_bytes"});
    if (controllers == ",,") {
      groups.push_back({base, path, "memory.max", "memory.current"});
      groups.push_back({base + "/unified", path, "memory.max", "memory.current"});
    }
  }
  return groups;
}

void walk_up(const GroupFiles& group, MemoryLimits& limits) {
  std::string path = group.path;
  while (true) {
    while (!path.empty() && path.back() == '/') path.pop_back();
    const std::string directory = group.mount + path + "/";
    const auto limit = read_number(directory + group.limit);
    if (limit && *limit < unlimited && (!limits.cgroup_limit || *limit < *limits.cgroup_limit)) {
      limits.cgroup_limit = limit;
      limits.cgroup_used = read_number(directory + group.used);
    }
    if (path.empty()) return;
    path.resize(path.rfind('/') == std::string::npos ? 0 : path.rfind('/'));
  }
}

/// Bytes of the page cache that hold this file. The kernel's cachestat(2), since 6.5: its number and structs
/// are spelt out because the C library's headers may be older.
std::optional<uint64_t> cached_bytes(const std::string& path) {
  struct Range {
    uint64_t offset, length;
  } range{0, 0};  // length 0: to the end
  struct Stat {
    uint64_t cached, dirty, writeback, evicted, recently_evicted;
  } stat{};
  constexpr long cachestat = 451;
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return std::nullopt;
  const long result = ::syscall(cachestat, fd, &range, &stat, 0);
  ::close(fd);
  if (result != 0) return std::nullopt;
  return stat.cached * static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
}

}  // namespace

MemoryLimits read_memory_limits(const std::string& root) {
  MemoryLimits limits;
  const std::string prefix = root == "/" ? "" : root;
  if (const auto text = read_text(prefix + "/proc/meminfo")) {
    limits.total = kib_field(*text, "MemTotal").value_or(0);
    const auto available = kib_field(*text, "MemAvailable");
    limits.available = available ? *available : kib_field(*text, "MemFree").value_or(0);
  }
  for (const GroupFiles& group : memory_groups(prefix)) walk_up(group, limits);
  return limits;
}

Budget choose_budget(std::optional<uint64_t> requested, const MemoryLimits& limits) {
  Budget budget;
  if (requested) {
    if (limits.cgroup_limit && *requested > *limits.cgroup_limit)
      throw input_error("--memory {}: the memory control group's limit is {} ({} bytes); use at most that",
                        human_bytes(*requested), human_bytes(*limits.cgroup_limit), *limits.cgroup_limit);
    if (limits.available > 0 && *requested > limits.available)
      budget.warnings.push_back(fmt::format(
          "--memory {} is above the {} of memory available now (MemAvailable); the system may swap "
          "or kill the process",
          human_bytes(*requested), human_bytes(limits.available)));
    budget.bytes = *requested;
    budget.source = "--memory";
    return budget;
  }
  uint64_t smallest = limits.available;
  budget.source = "MemAvailable";
  if (limits.cgroup_limit && (smallest == 0 || *limits.cgroup_limit < smallest)) {
    smallest = *limits.cgroup_limit;
    budget.source = "cgroup limit";
  }
  if (smallest == 0)
    throw input_error("--memory is needed: neither MemAvailable nor a control group's limit can be read");
  // On a machine of under 2 GiB a whole GiB of reserve would leave nothing: half is kept back there.
  const uint64_t reserve = std::min(std::max(gib, smallest / 10), smallest / 2);
  budget.bytes = smallest - reserve;
  budget.source += fmt::format(" less {}", human_bytes(reserve));
  return budget;
}

uint64_t parse_bytes(const std::string& option, const std::string& text) {
  const auto bad = [&](const char* why) {
    return input_error("{} '{}': {}; bytes or binary units are understood, as in 3GiB, 512MiB, 1.5G, 2000000",
                       option, text, why);
  };
  double value = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value, std::chars_format::fixed);
  if (error == std::errc::result_out_of_range) throw bad("too large");
  if (error != std::errc() || !std::isfinite(value)) throw bad("not a size");
  std::string unit(rest, end);
  std::transform(unit.begin(), unit.end(), unit.begin(),
                 [](char c) { return c >= 'a' && c <= 'z' ? c - 32 : c; });
  int shift = -1;
  if (unit.empty() || unit == "B") shift = 0;
  static constexpr const char* names[] = {"K", "M", "G", "T"};
  for (int i = 0; i < 4; ++i)
    if (unit == names[i] || unit == std::string(names[i]) + "IB") shift = 10 * (i + 1);
  if (shift < 0) throw bad("unknown unit");
  if (value <= 0) throw bad("a size must be above zero");
  const double bytes = std::ldexp(value, shift);
  if (bytes >= 0x1p63) throw bad("too large");
  if (shift == 0 && bytes != std::floor(bytes)) throw bad("a fraction of a byte");
  return static_cast<uint64_t>(bytes);
}

MemoryUse read_memory_use(const std::vector<std::string>& files) {
  MemoryUse use;
  if (const auto text = read_text("/proc/self/status")) {
    use.peak_rss = kib_field(*text, "VmHWM").value_or(0);
    use.rss = kib_field(*text, "VmRSS").value_or(0);
  }
  use.page_cache = 0;
  for (const std::string& file : files) {
    const auto cached = cached_bytes(file);
    if (!cached) {
      use.page_cache.reset();
      break;
    }
    *use.page_cache += *cached;
  }
  return use;
}

}  // namespace weir
