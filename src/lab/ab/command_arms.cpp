#include "lab/ab/command_arms.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "lab/ab/words.h"

namespace weir::lab::ab {

namespace {

constexpr size_t kept_bytes = 4 << 20;
constexpr int poll_ms = 100;  // how soon an interrupt is seen

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

/// Takes what is there; false at the end of the stream.
bool drain(int fd, std::string& text) {
  char buffer[65536];
  const ssize_t n = read(fd, buffer, sizeof buffer);
  if (n < 0) return errno == EINTR || errno == EAGAIN;
  text.append(buffer, static_cast<size_t>(n));
  if (text.size() > 2 * kept_bytes) text.erase(0, text.size() - kept_bytes);
  return n > 0;
}

/// Reads both streams to their ends. True where `cancel` came first.
bool read_streams(pid_t child, Pipe& out, Pipe& err, CommandResult& result, std::string& errors,
                  const std::atomic<bool>* cancel) {
  pollfd fds[] = {{out.read.get(), POLLIN, 0}, {err.read.get(), POLLIN, 0}};
  std::string* const texts[] = {&result.out, &errors};
  bool interrupted = false;
  while (fds[0].fd >= 0 || fds[1].fd >= 0) {
    if (cancel && cancel->load() && !std::exchange(interrupted, true)) kill(-child, SIGTERM);
    if (poll(fds, 2, poll_ms) <= 0) continue;
    for (int i = 0; i < 2; ++i)
      if (fds[i].fd >= 0 && fds[i].revents != 0 && !drain(fds[i].fd, *texts[i])) fds[i].fd = -1;
  }
  return interrupted;
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
  const FileDescriptor nothing(open("/dev/null", O_RDONLY | O_CLOEXEC));
  const uint64_t begin_ns = now_ns();
  const pid_t child = fork();
  if (child < 0) throw failure("fork: {}", std::strerror(errno));
  if (child == 0) become(command.c_str(), nothing.get(), out.write.get(), err.write.get());
  setpgid(child, child);  // both sides set it: whichever comes first
  out.write.reset(), err.write.reset();
  CommandResult result;
  std::string errors;
  result.interrupted = read_streams(child, out, err, result, errors, cancel);
  int status = 0;
  rusage use{};
  while (wait4(child, &status, 0, &use) < 0)
    if (errno != EINTR) throw failure("wait4: {}", std::strerror(errno));
  result.wall_ns = now_ns() - begin_ns;
  result.interrupted |= cancel && cancel->load();
  result.exit_code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  result.peak_bytes = static_cast<uint64_t>(use.ru_maxrss) * 1024;
  if (result.out.size() > kept_bytes) result.out.erase(0, result.out.size() - kept_bytes);
  result.complaint = last_line(errors);
  return result;
}

std::optional<Observation> CommandArms::observe(const PlannedRun& run) {
  const std::string& prompt = options_.prompts[static_cast<size_t>(run.prompt)];
  const std::string command = replaced(options_.commands[index(run.arm)], "{prompt}", shell_quote(prompt));
  const CommandResult result = run_command(command, options_.cancel);
  if (result.interrupted) return std::nullopt;
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
