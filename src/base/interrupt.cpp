// Handlers, which make only calls that are safe in one.
#include "base/interrupt.h"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>

#include "base/temporary.h"

namespace weir {

namespace {

std::atomic<bool> interrupt_flag{false}, caught{false};
std::atomic<int> at_once{0}, with_children{0}, children_group{0};
std::atomic<pthread_t> main_thread{};

[[noreturn]] void end_now() {
  remove_temporaries();
  _exit(interrupted_exit_code);
}

/// The kernel may pick any thread. Only the main one creates temporary files, so that in its handler none is
/// half-made: a name that is known, and a file that would come after its removal.
bool passed_on(int signal) {
  if (pthread_equal(pthread_self(), main_thread.load())) return false;
  const int before = errno;
  pthread_kill(main_thread.load(), signal);
  errno = before;
  return true;
}

void on_interrupt(int signal) {
  if (passed_on(signal)) return;
  const bool again = interrupt_flag.exchange(true);
  if (with_children > 0) return;
  if (again || at_once > 0) end_now();
}

void on_deadly_signal(int signal) {
  if (passed_on(signal)) return;
  if (const int group = children_group; group > 0) kill(-group, SIGKILL);
  if (signal == SIGINT) end_now();
  remove_temporaries();
  // The default action follows, so that a parent sees which signal it was.
  ::signal(signal, SIG_DFL);
  raise(signal);
}

void handle(int signal, void (*handler)(int)) {
  struct sigaction action {};
  sigaction(signal, nullptr, &action);
  if (action.sa_handler == SIG_IGN) return;  // nohup, a script's background
  action = {};
  action.sa_handler = handler;
  sigaction(signal, &action, nullptr);
}

}  // namespace

void clean_up_at_signals() {
  main_thread = pthread_self();
  for (const int signal : {SIGHUP, SIGINT, SIGTERM}) handle(signal, on_deadly_signal);
}

void catch_interrupts() {
  main_thread = pthread_self();
  caught = true;
  for (const int signal : {SIGINT, SIGTERM}) handle(signal, on_interrupt);
}

const std::atomic<bool>& interrupted() { return interrupt_flag; }

EndAtOnce::EndAtOnce() {
  ++at_once;
  if (caught && interrupt_flag && with_children == 0) end_now();
}
EndAtOnce::~EndAtOnce() { --at_once; }

EndChildrenFirst::EndChildrenFirst() { ++with_children; }
EndChildrenFirst::~EndChildrenFirst() {
  children_group = 0;
  --with_children;
}
void EndChildrenFirst::set_group(int group) { children_group = group; }

}  // namespace weir
