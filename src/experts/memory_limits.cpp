// What this machine and its control groups leave for the process, and what the process has used. Files of
// /proc and /sys that are absent or odd mean "no limit", never an error.
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <sstream>

#include "base/control_groups.h"
#include "base/error.h"
#include "base/log.h"
#include "experts/plan.h"

namespace weir {
namespace {

constexpr uint64_t gib = uint64_t{1} << 30;
/// cgroup v1 writes a page-rounded 2^63 for "no limit".
constexpr uint64_t unlimited = uint64_t{1} << 62;

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

/// A line "key 123" of memory.stat.
uint64_t stat_field(const std::string& text, const std::string& key) {
  std::istringstream lines(text);
  std::string name;
  for (uint64_t value = 0; lines >> name >> value;)
    if (name == key) return value;
  return 0;
}

/// What the kernel drops before it kills: pages of files that need no writing back, and its own caches that
/// it calls reclaimable. Not what tmpfs holds, which counts as anonymous, nor what is locked. Version 1 has
/// the sums over a group's subgroups under names of their own, and no figure for caches.
uint64_t reclaimable(int version, const std::string& directory) {
  const auto text = read_small_file(directory + "memory.stat");
  if (!text) return 0;
  const auto field = [&](const char* v2, const char* v1) {
    const char* key = version == 2 ? v2 : v1;
    return key ? stat_field(*text, key) : 0;
  };
  const uint64_t clean = field("inactive_file", "total_inactive_file") +
                         field("active_file", "total_active_file") + field("slab_reclaimable", nullptr);
  const uint64_t dirty = field("file_dirty", "total_dirty") + field("file_writeback", "total_writeback");
  return clean - std::min(clean, dirty);
}

/// A limit of one level, if it has it: the one that leaves least is kept.
void add_limit(const ControlGroup& group, const std::string& directory, const char* name, bool hard,
               MemoryLimits& limits) {
  const auto limit = read_number(directory + name);
  if (!limit || *limit >= unlimited) return;
  const char* used = group.version == 2 ? "memory.current" : "memory.usage_in_bytes";
  GroupRoom room{name, *limit, read_number(directory + used).value_or(0), 0};
  room.reclaimable = std::min(room.used, reclaimable(group.version, directory));
  if (hard) limits.cgroup_limit = std::min(*limit, limits.cgroup_limit.value_or(*limit));
  if (!limits.group || room.left() < limits.group->left()) limits.group = room;
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
  if (const auto text = read_small_file(prefix + "/proc/meminfo")) {
    limits.total = kib_field(*text, "MemTotal").value_or(0);
    const auto available = kib_field(*text, "MemAvailable");
    limits.available = available ? *available : kib_field(*text, "MemFree").value_or(0);
  }
  for (const ControlGroup& group : control_groups(prefix, "memory"))
    walk_up(group, [&](const std::string& directory) {
      add_limit(group, directory, group.version == 2 ? "memory.max" : "memory.limit_in_bytes", true, limits);
      if (group.version == 2) add_limit(group, directory, "memory.high", false, limits);
    });
  return limits;
}

namespace {

/// "memory.high 4.00 GiB, 1.20 GiB used"
std::string describe(const GroupRoom& group) {
  std::string text =
      fmt::format("{} {}, {} used", group.name, human_bytes(group.limit), human_bytes(group.used));
  if (group.reclaimable > 0)
    text += fmt::format(" of which {} can be reclaimed", human_bytes(group.reclaimable));
  return text;
}

Budget asked_budget(uint64_t requested, const MemoryLimits& limits) {
  if (limits.cgroup_limit && requested > *limits.cgroup_limit)
    throw input_error("--memory {}: the memory control group's limit is {} ({} bytes); use at most that",
                      human_bytes(requested), human_bytes(*limits.cgroup_limit), *limits.cgroup_limit);
  Budget budget{requested, "--memory", {}};
  if (limits.group && requested > limits.group->left())
    budget.warnings.push_back(fmt::format(
        "--memory {} is above the {} that the memory control group leaves now ({}); the system may slow down "
        "or kill the process",
        human_bytes(requested), human_bytes(limits.group->left()), describe(*limits.group)));
  if (limits.available > 0 && requested > limits.available)
    budget.warnings.push_back(fmt::format(
        "--memory {} is above the {} of memory available now (MemAvailable); the system may swap or kill the "
        "process",
        human_bytes(requested), human_bytes(limits.available)));
  return budget;
}

}  // namespace

Budget choose_budget(std::optional<uint64_t> requested, const MemoryLimits& limits) {
  if (requested) return asked_budget(*requested, limits);
  const auto& group = limits.group;
  if (limits.available == 0 && !group)
    throw input_error("--memory is needed: neither MemAvailable nor a control group's limit can be read");
  uint64_t smallest = limits.available;
  std::string source = "MemAvailable less";
  if (group && (limits.available == 0 || group->left() < smallest)) {
    smallest = group->left();
    source = fmt::format("cgroup {} less", group->name);
    if (smallest < group->limit) source += fmt::format(" {} used and", human_bytes(group->limit - smallest));
  }
  if (smallest == 0)
    throw input_error("the memory control group leaves nothing ({}): stop what uses it, or give --memory",
                      describe(*group));
  // On a machine of under 2 GiB a whole GiB of reserve would leave nothing: half is kept back there.
  const uint64_t reserve = std::min(std::max(gib, smallest / 10), smallest / 2);
  return {smallest - reserve, fmt::format("{} {}", source, human_bytes(reserve)), {}};
}

uint64_t parse_bytes(const std::string& option, const std::string& text) {
  const auto bad = [&](const char* why) {
    return input_error(
        "{} '{}': {}; right would be 3GiB, 512MiB or 1.5G (powers of 1024), 20MB (powers of 1000), 2000000 "
        "(bytes)",
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
  double factor = unit.empty() || unit == "B" ? 1 : 0;
  double binary = 1, decimal = 1;
  for (const char* name : {"K", "M", "G", "T"}) {
    binary *= 1024, decimal *= 1000;
    if (unit == name || unit == std::string(name) + "IB") factor = binary;
    if (unit == std::string(name) + "B") factor = decimal;
  }
  if (factor == 0) throw bad("unknown unit");
  if (value <= 0) throw bad("a size must be above zero");
  const double bytes = value * factor;
  if (bytes >= 0x1p63) throw bad("too large");
  if (factor == 1 && bytes != std::floor(bytes)) throw bad("a fraction of a byte");
  return static_cast<uint64_t>(bytes);
}

MemoryUse read_memory_use(const std::vector<std::string>& files) {
  MemoryUse use;
  if (const auto text = read_small_file("/proc/self/status")) {
    use.peak_rss = kib_field(*text, "VmHWM").value_or(0);
    use.rss = kib_field(*text, "VmRSS").value_or(0);
  }
  use.page_cache = page_cache_of(files);
  return use;
}

std::optional<uint64_t> page_cache_of(const std::vector<std::string>& files) {
  uint64_t sum = 0;
  for (const std::string& file : files) {
    const auto cached = cached_bytes(file);
    if (!cached) return std::nullopt;
    sum += *cached;
  }
  return sum;
}

}  // namespace weir
