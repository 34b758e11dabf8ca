#include "lab/ab/command_arms.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/interrupt.h"
#include "base/log.h"
#include "lab/ab/process_group.h"
#include "lab/ab/words.h"

namespace weir::lab::ab {

namespace {

constexpr size_t kept_bytes = 4 << 20;
constexpr int poll_ms = 50;  // how soon an interrupt is seen, where it does not end the wait itself

struct Pipe {
  FileDescriptor read, write;
  Pipe() {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) throw failure("pipe: {}", std::strerror(errno));
    read = FileDescriptor(ends[0]), write = FileDescriptor(ends[1]);
  }
};

/// In the child: only calls that are safe between fork and exec. Its own process group, so that an interrupt
/// ends all it started.
[[noreturn]] void become(const char* command, int in, int out, int err) {
  setpgid(0, 0);
  dup2(in, STDIN_FILENO), dup2(out, STDOUT_FILENO), dup2(err, STDERR_FILENO);
  signal(SIGPIPE, SIG_DFL);
  execl("/bin/sh", "sh", "-c", command, static_cast<char*>(nullptr));
  _exit(127);
}

/// Tells the moment a child ends, and leaves it to be waited for: until then its number, which is its
/// group's, stays taken.
class EndOfChild {
 public:
  explicit EndOfChild(pid_t child) : thread_([this, child] { watch(child); }) {}
  ~EndOfChild() {
    if (thread_.joinable()) thread_.join();
  }
  int readable_fd() const { return pipe_.read.get(); }
  uint64_t wait_ns() {
    thread_.join();
    return ended_ns_;
  }

 private:
  void watch(pid_t child) {
    siginfo_t info{};
    while (waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT) != 0 && errno == EINTR) {
    }
    ended_ns_ = now_ns();
    pipe_.write.reset();
  }
  Pipe pipe_;
  uint64_t ended_ns_ = 0;
  std::thread thread_;  // last: it uses the others
};

/// Takes what is there: bytes, 0 at the end of the stream, below 0 where there is an error.
ssize_t drain(int fd, std::string& text) {
  char buffer[65536];
  const ssize_t n = read(fd, buffer, sizeof buffer);
  if (n <= 0) return n;
  text.append(buffer, static_cast<size_t>(n));
  if (text.size() > 2 * kept_bytes) text.erase(0, text.size() - kept_bytes);
  return n;
}

/// What lay in the pipe when the command ended, and no more: who else holds it may write for ever.
void drain_rest(int fd, std::string& text) {
  int left = 0;
  if (ioctl(fd, FIONREAD, &left) != 0) return;
  while (left > 0) {
    const ssize_t n = drain(fd, text);
    if (n == 0 || (n < 0 && errno != EINTR)) return;
    left -= static_cast<int>(std::max<ssize_t>(n, 0));
  }
}

/// SIGTERM at the interrupt, SIGKILL to what is still there half a second later.
class Interrupter {
 public:
  Interrupter(const CommandProcesses& processes, const std::atomic<bool>* cancel)
      : processes_(processes), cancel_(cancel) {}
  void look() {
    if (!cancel_ || !cancel_->load()) return;
    const uint64_t now = now_ns();
    if (since_ns_ == 0) {
      since_ns_ = now;
      processes_.send(SIGTERM);
    } else if (now - since_ns_ > patience_ns) {
      processes_.send(SIGKILL);
    }
  }

 private:
  static constexpr uint64_t patience_ns = 500'000'000;
  const CommandProcesses& processes_;
  const std::atomic<bool>* cancel_;
  uint64_t since_ns_ = 0;
};

/// Reads both streams until the command itself has ended, whoever else still holds them.
void read_streams(int ended, const Pipe& out, const Pipe& err, std::string& text, std::string& errors,
                  Interrupter interrupter) {
  pollfd fds[] = {{out.read.get(), POLLIN, 0}, {err.read.get(), POLLIN, 0}, {ended, POLLIN, 0}};
  std::string* const texts[] = {&text, &errors};
  while (fds[2].revents == 0) {
    interrupter.look();
    if (poll(fds, 3, poll_ms) <= 0) continue;
    for (int i = 0; i < 2; ++i) {
      if (fds[i].fd < 0 || fds[i].revents == 0) continue;
      const ssize_t n = drain(fds[i].fd, *texts[i]);
      if (n == 0 || (n < 0 && errno != EINTR && errno != EAGAIN)) fds[i].fd = -1;
    }
  }
  for (int i = 0; i < 2; ++i)
    if (fds[i].fd >= 0) drain_rest(fds[i].fd, *texts[i]);
}

std::string last_line(std::string text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) text.pop_back();
  const size_t newline = text.rfind('\n');
  return newline == std::string::npos ? text : text.substr(newline + 1);
}

std::string replaced(std::string text, const std::string& what, const std::string& by) {
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + by.size()))
    text.replace(at, what.size(), by);
  return text;
}

}  // namespace

CommandResult run_command(const std::string& command, const std::atomic<bool>* cancel) {
  Pipe out, err;
  EndChildrenFirst children;
  CommandProcesses processes;
  const FileDescriptor nothing(open("/dev/null", O_RDONLY | O_CLOEXEC));
  const uint64_t begin_ns = now_ns();
  const pid_t child = fork();
  if (child < 0) throw failure("fork: {}", std::strerror(errno));
  if (child == 0) become(command.c_str(), nothing.get(), out.write.get(), err.write.get());
  setpgid(child, child);  // both sides set it: whichever comes first
  children.set_group(child);
  processes.started(child);
  out.write.reset(), err.write.reset();
  CommandResult result;
  std::string errors;
  EndOfChild end(child);
  read_streams(end.readable_fd(), out, err, result.out, errors, {processes, cancel});
  result.wall_ns = end.wait_ns() - begin_ns;
  result.left_running = processes.left_running();
  processes.end();
  int status = 0;
  rusage use{};
  while (wait4(child, &status, 0, &use) < 0)
    if (errno != EINTR) throw failure("wait4: {}", std::strerror(errno));
  result.interrupted = cancel && cancel->load();
  result.exit_code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  result.peak_bytes = static_cast<uint64_t>(use.ru_maxrss) * 1024;
  if (result.out.size() > kept_bytes) result.out.erase(0, result.out.size() - kept_bytes);
  result.complaint = last_line(errors);
  return result;
}

void CommandArms::warn_of_left(Side arm, const std::vector<std::string>& names) {
  if (names.empty() || std::exchange(warned_[index(arm)], true)) return;
  warn(
      "arm {}: the command ended while {} still ran in the background: killed, so as not to disturb the next "
      "run; a command that is to include it must wait for it",
      name(arm), fmt::join(names, ", "));
}

std::optional<Observation> CommandArms::observe(const PlannedRun& run) {
  const std::string& prompt = options_.prompts[static_cast<size_t>(run.prompt)];
  const std::string command = replaced(options_.commands[index(run.arm)], "{prompt}", shell_quote(prompt));
  const CommandResult result = run_command(command, options_.cancel);
  if (result.interrupted) return std::nullopt;
  warn_of_left(run.arm, result.left_running);
  if (result.exit_code != 0)
    throw failure("arm {}: {} ended with exit code {}{}", name(run.arm), quote(command), result.exit_code,
                  result.complaint.empty() ? "" : ": " + quote(result.complaint));
  Observation o;
  o.metric_ns = o.wall_ns = result.wall_ns;
  o.peak_bytes = result.peak_bytes;
  if (options_.figure.empty()) {
    o.value = static_cast<double>(result.wall_ns) * 1e-6;
    return o;
  }
  try {
    o.value = find_figure(options_.figure, result.out);
  } catch (const Error& e) {
    throw input_error("arm {}: {}", name(run.arm), e.what());
  }
  if (o.value <= 0)
    throw input_error("arm {}: the figure is {}: a ratio needs one above 0", name(run.arm), o.value);
  return o;
}

}  // namespace weir::lab::ab
