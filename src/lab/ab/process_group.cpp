#include "lab/ab/process_group.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <sstream>
#include <thread>

#include "base/clock.h"
#include "base/file.h"

namespace weir::lab::ab {

namespace {

struct Process {
  std::string name;
  char state = 'X';  ///< Z: ended, not waited for; X: gone
  pid_t parent = 0, group = 0;
};

/// "12 (name) S 1 12 ...": the name may hold anything, so it ends at the last parenthesis.
Process parse_stat(const std::string& line) {
  Process process;
  const size_t open = line.find('('), close = line.rfind(')');
  if (open == std::string::npos || close == std::string::npos || close < open) return process;
  process.name = line.substr(open + 1, close - open - 1);
  std::istringstream rest(line.substr(close + 1));
  rest >> process.state >> process.parent >> process.group;
  return process;
}

/// Empty where the process is gone by now, which reading may find as well as opening.
std::string read_stat(const std::string& path) {
  const FileDescriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  char buffer[1024];
  const ssize_t n = file ? read(file.get(), buffer, sizeof buffer) : -1;
  return n > 0 ? std::string(buffer, static_cast<size_t>(n)) : std::string();
}

}  // namespace

std::vector<std::string> running_in(pid_t group) {
  std::vector<std::string> names;
  std::error_code error;
  const std::filesystem::directory_iterator end;
  for (std::filesystem::directory_iterator entry("/proc", error); !error && entry != end;
       entry.increment(error)) {
    const std::string number = entry->path().filename().string();
    if (number.find_first_not_of("0123456789") != std::string::npos) continue;
    const Process process = parse_stat(read_stat("/proc/" + number + "/stat"));
    if (process.group == group && process.state != 'Z' && process.state != 'X') names.push_back(process.name);
  }
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

void end_group(pid_t group) {
  constexpr uint64_t patience_ns = 5'000'000'000;
  const uint64_t begin_ns = now_ns();
  kill(-group, SIGKILL);
  while (!running_in(group).empty() && now_ns() - begin_ns < patience_ns)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

}  // namespace weir::lab::ab
