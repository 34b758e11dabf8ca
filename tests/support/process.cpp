// posix_spawn with three pipes and one poll loop: nothing can fill up and block.
#include "support/process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <system_error>

extern char** environ;

namespace weir::test {
namespace {

/// Both ends of a pipe, close-on-exec, closed with it.
struct Pipe {
  int read = -1, write = -1;
  Pipe() {
    std::array<int, 2> ends{};
    if (pipe2(ends.data(), O_CLOEXEC) != 0) throw std::system_error(errno, std::generic_category(), "pipe");
    read = ends[0];
    write = ends[1];
  }
  ~Pipe() { close_read(), close_write(); }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  void close_read() { close_end(read); }
  void close_write() { close_end(write); }

 private:
  static void close_end(int& fd) {
    if (fd >= 0) close(fd);
    fd = -1;
  }
};

std::vector<std::string> merged_environment(const ProcessOptions& options) {
  std::vector<std::string> result;
  for (char** entry = environ; *entry; ++entry) {
    const std::string text = *entry;
    const std::string name = text.substr(0, text.find('='));
    const bool replaced = std::any_of(options.environment.begin(), options.environment.end(),
                                      [&](const auto& pair) { return pair.first == name; });
    if (!replaced) result.push_back(text);
  }
  for (const auto& [name, value] : options.environment) result.push_back(name + "=" + value);
  return result;
}

std::vector<char*> pointers(std::vector<std::string>& strings) {
  std::vector<char*> result;
  for (std::string& s : strings) result.push_back(s.data());
  result.push_back(nullptr);
  return result;
}

pid_t spawn(const ProcessOptions& options, const Pipe& in, const Pipe& out, const Pipe& err) {
  std::vector<std::string> arguments = options.command, environment = merged_environment(options);
  std::vector<char*> argv = pointers(arguments), envp = pointers(environment);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, in.read, STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, out.write, STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, err.write, STDERR_FILENO);
  pid_t pid = 0;
  const int error = posix_spawnp(&pid, argv[0], &actions, nullptr, argv.data(), envp.data());
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) throw std::system_error(error, std::generic_category(), options.command.front());
  return pid;
}

/// Reads what is there; closes the end at the end of the stream. Returns the bytes read.
size_t take(Pipe& from, std::string& into) {
  std::array<char, 65536> chunk;
  const ssize_t n = read(from.read, chunk.data(), chunk.size());
  if (n > 0) into.append(chunk.data(), static_cast<size_t>(n));
  if (n == 0 || (n < 0 && errno != EINTR)) from.close_read();
  return n > 0 ? static_cast<size_t>(n) : 0;
}

/// Writes what the pipe takes; closes it when all is written or the reader is gone.
void give(Pipe& to, const std::string& text, size_t& written) {
  const ssize_t n = write(to.write, text.data() + written, text.size() - written);
  if (n > 0) written += static_cast<size_t>(n);
  const bool gone = n < 0 && errno != EAGAIN && errno != EINTR;
  if (gone || written == text.size()) to.close_write();
}

}  // namespace

ProcessResult run_process(const ProcessOptions& options) {
  using Clock = std::chrono::steady_clock;
  signal(SIGPIPE, SIG_IGN);  // a program may end before it has read its input
  Pipe in, out, err;
  ProcessResult result;
  const pid_t pid = spawn(options, in, out, err);
  in.close_read(), out.close_write(), err.close_write();
  fcntl(in.write, F_SETFL, O_NONBLOCK);
  if (options.input.empty()) in.close_write();
  if (options.on_start) options.on_start(pid);

  const auto deadline = Clock::now() + std::chrono::duration<double>(options.timeout_seconds);
  size_t written = 0;
  bool told = false, told_of_error = false;
  while (out.read >= 0 || err.read >= 0) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    if (left <= 0) {
      result.timed_out = true;
      kill(pid, SIGKILL);
      break;
    }
    std::array<pollfd, 3> fds{
        {{out.read, POLLIN, 0}, {err.read, POLLIN, 0}, {in.write, POLLOUT, 0}}};  // a negative fd is skipped
    if (poll(fds.data(), fds.size(), static_cast<int>(left)) <= 0) continue;
    if (fds[0].revents && take(out, result.out) > 0 && !told) {
      told = true;
      if (options.on_first_output) options.on_first_output(pid);
    }
    if (fds[1].revents && take(err, result.err) > 0 && !told_of_error) {
      told_of_error = true;
      if (options.on_first_error) options.on_first_error(pid);
    }
    if (fds[2].revents) give(in, options.input, written);
  }
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFEXITED(status)) result.exit_code = WEXITSTATUS(status);
  if (WIFSIGNALED(status)) result.signal = WTERMSIG(status);
  return result;
}

}  // namespace weir::test
