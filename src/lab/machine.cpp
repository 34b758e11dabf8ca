#include "lab/machine.h"

#include <fmt/format.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <array>
#include <fstream>

#include "experts/plan.h"

namespace weir::lab {

namespace {

std::string processor_name() {
  std::ifstream in("/proc/cpuinfo");
  for (std::string line; std::getline(in, line);) {
    if (line.rfind("model name", 0) != 0) continue;
    const size_t start = line.find_first_not_of(" \t", line.find(':') + 1);
    if (start != std::string::npos) return line.substr(start);
  }
  return "unknown";
}

}  // namespace

Machine this_machine() {
  Machine m;
  m.processor = processor_name();
  m.processors = static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
  m.memory_bytes = read_memory_limits().total;
  utsname names{};
  if (uname(&names) == 0) m.system = fmt::format("{} {} {}", names.sysname, names.release, names.machine);
  m.build = fmt::format("weir {}, compiler {}", WEIR_VERSION, __VERSION__);
  return m;
}

std::optional<uint64_t> stolen_ns(const std::string& proc_stat) {
  std::ifstream in(proc_stat);
  std::string label;
  std::array<uint64_t, 8> ticks{};  // user, nice, system, idle, iowait, irq, softirq, steal
  in >> label;
  for (auto& t : ticks) in >> t;
  const long per_second = sysconf(_SC_CLK_TCK);
  if (!in || label != "cpu" || per_second <= 0) return std::nullopt;
  return ticks.back() * (1'000'000'000 / static_cast<uint64_t>(per_second));
}

}  // namespace weir::lab
