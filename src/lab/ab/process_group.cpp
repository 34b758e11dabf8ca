#include "lab/ab/process_group.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <functional>
#include <sstream>
#include <thread>

#include "base/clock.h"
#include "base/file.h"

namespace weir::lab::ab {

struct ProcessState {
  std::string name;
  char state = 'X';  ///< Z: ended, not waited for; X: gone
  pid_t id = 0, parent = 0, group = 0;
  bool runs() const { return state != 'Z' && state != 'X'; }
};

namespace {

/// "12 (name) S 1 12 ...": the name may hold anything, so it ends at the last parenthesis.
ProcessState parse_stat(pid_t id, const std::string& line) {
  ProcessState process;
  process.id = id;
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

/// All processes that this one sees.
std::vector<ProcessState> all_processes() {
  std::vector<ProcessState> all;
  std::error_code error;
  const std::filesystem::directory_iterator end;
  for (std::filesystem::directory_iterator entry("/proc", error); !error && entry != end;
       entry.increment(error)) {
    const std::string number = entry->path().filename().string();
    if (number.find_first_not_of("0123456789") != std::string::npos) continue;
    all.push_back(parse_stat(std::stoi(number), read_stat("/proc/" + number + "/stat")));
  }
  return all;
}

std::vector<std::string> each_once(std::vector<std::string> names) {
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

}  // namespace

CommandProcesses::CommandProcesses() {
  prctl(PR_GET_CHILD_SUBREAPER, &reaper_before_);
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  for (const ProcessState& p : all_processes())
    if (p.parent == getpid()) before_.insert(p.id);
}

CommandProcesses::~CommandProcesses() { prctl(PR_SET_CHILD_SUBREAPER, reaper_before_); }

std::vector<ProcessState> CommandProcesses::members() const {
  std::vector<ProcessState> rest = all_processes(), found;
  std::set<pid_t> ids{child_};
  const pid_t self = getpid();
  const auto belongs = [&](const ProcessState& p) {
    return p.id == child_ || p.group == child_ || ids.count(p.parent) > 0 ||
           (p.parent == self && before_.count(p.id) == 0);
  };
  for (bool more = true; more;) {  // once for each generation at most
    const auto begin = std::stable_partition(rest.begin(), rest.end(), std::not_fn(belongs));
    more = begin != rest.end();
    for (auto p = begin; p != rest.end(); ++p) ids.insert(p->id);
    found.insert(found.end(), begin, rest.end());
    rest.erase(begin, rest.end());
  }
  return found;
}

std::vector<std::string> CommandProcesses::left_running() const {
  std::vector<std::string> names;
  for (const ProcessState& p : members())
    if (p.id != child_ && p.runs()) names.push_back(p.name);
  return each_once(std::move(names));
}

void CommandProcesses::send(int signal) const {
  for (const ProcessState& p : members())
    if (p.runs()) kill(p.id, signal);
}

void CommandProcesses::end() const {
  constexpr uint64_t patience_ns = 5'000'000'000;
  const uint64_t begin_ns = now_ns();
  kill(-child_, SIGKILL);
  for (bool run = true; run && now_ns() - begin_ns < patience_ns;) {
    run = false;
    for (const ProcessState& p : members()) {
      if (p.runs()) run = true, kill(p.id, SIGKILL);
      if (p.id != child_ && p.parent == getpid()) waitpid(p.id, nullptr, WNOHANG);
    }
    if (run) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

std::vector<std::string> running_in(pid_t group) {
  std::vector<std::string> names;
  for (const auto& p : all_processes())
    if (p.group == group && p.runs()) names.push_back(p.name);
  return each_once(std::move(names));
}

}  // namespace weir::lab::ab
