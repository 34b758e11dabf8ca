// Reading /proc/self/cgroup and the files of the groups it names.
#include "base/control_groups.h"

#include <sched.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fstream>
#include <sstream>

namespace weir {
namespace {

/// "150000 100000": microseconds in every period of microseconds; nothing for "max ...".
std::optional<double> quota_of_cpu_max(const std::string& text) {
  std::istringstream fields(text);
  double quota = 0, period = 0;
  if (!(fields >> quota >> period) || quota <= 0 || period <= 0) return std::nullopt;
  return quota / period;
}

std::optional<double> quota_at(int version, const std::string& directory) {
  if (version == 2) {
    const auto text = read_small_file(directory + "cpu.max");
    return text ? quota_of_cpu_max(*text) : std::nullopt;
  }
  const auto quota = read_number(directory + "cpu.cfs_quota_us");  // -1, which is no such number: none
  const auto period = read_number(directory + "cpu.cfs_period_us");
  if (!quota || !period || *quota == 0 || *period == 0) return std::nullopt;
  return static_cast<double>(*quota) / static_cast<double>(*period);
}

}  // namespace

std::optional<std::string> read_small_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) return std::nullopt;
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

std::optional<uint64_t> read_number(const std::string& path) {
  const auto text = read_small_file(path);
  if (!text) return std::nullopt;
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), value);
  if (error != std::errc()) return std::nullopt;
  if (end != text->data() + text->size() && *end != '\n') return std::nullopt;
  return value;
}

std::vector<ControlGroup> control_groups(const std::string& root, const std::string& controller) {
  std::vector<ControlGroup> groups;
  const auto text = read_small_file(root + "/proc/self/cgroup");
  if (!text) return groups;
  std::istringstream lines(*text);
  for (std::string line; std::getline(lines, line);) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string path = line.substr(second + 1), base = root + "/sys/fs/cgroup";
    if (("," + controllers + ",").find("," + controller + ",") != std::string::npos) {
      groups.push_back({1, base + "/" + controller, path});
      if (controllers != controller) groups.push_back({1, base + "/" + controllers, path});  // "cpu,cpuacct"
    }
    if (controllers.empty()) {
      groups.push_back({2, base, path});
      groups.push_back({2, base + "/unified", path});
    }
  }
  return groups;
}

void walk_up(const ControlGroup& group, const std::function<void(const std::string&)>& visit) {
  std::string path = group.path;
  while (true) {
    while (!path.empty() && path.back() == '/') path.pop_back();
    visit(group.mount + path + "/");
    if (path.empty()) return;
    path.resize(path.rfind('/') == std::string::npos ? 0 : path.rfind('/'));
  }
}

std::optional<double> cpu_quota(const std::string& root) {
  std::optional<double> smallest;
  for (const ControlGroup& group : control_groups(root, "cpu"))
    walk_up(group, [&](const std::string& directory) {
      const auto quota = quota_at(group.version, directory);
      if (quota && (!smallest || *quota < *smallest)) smallest = quota;
    });
  return smallest;
}

int threads_within_quota(int processors, std::optional<double> quota) {
  if (!quota || *quota >= processors) return processors;
  return std::max(1, static_cast<int>(std::lround(*quota)));
}

int available_processors() {
  cpu_set_t set;
  CPU_ZERO(&set);
  const int allowed = sched_getaffinity(0, sizeof set, &set) == 0 ? std::max(1, CPU_COUNT(&set)) : 1;
  return threads_within_quota(allowed, cpu_quota());
}

}  // namespace weir
