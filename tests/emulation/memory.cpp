// Allocations as page ranges, and the handler that turns faults inside kernels into failed launches. Memory
// is read-only when a launch begins: the handler sees its first write, remembers, and lets it through. Whole
// allocations: a kernel may be told of a neighbour's write.
#include "emulation/memory.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <map>

#include "base/error.h"
#include "emulation/block.h"
#include "emulation/symbols.h"

namespace weir::emulation::memory {
namespace {

constexpr size_t page = 4096, alignment = 256;

struct Allocation {
  char* pages = nullptr;  ///< guard page, memory, guard page
  size_t page_bytes = 0;  ///< of the memory between the guards
  char* data = nullptr;
  size_t bytes = 0;
  uint64_t written = 0;  ///< by this launch last; 0: by none
  char* begin() const { return pages + page; }
};

struct State {
  std::map<uintptr_t, Allocation> allocations;  ///< by `pages`
  uint64_t allocated = 0;
  uint64_t launch = 0, complete = 0;
  bool guarded = false;
};
State& state() {
  static State s;
  return s;
}

uintptr_t number(const void* p) { return reinterpret_cast<uintptr_t>(p); }

/// The allocation whose pages, guards included, hold the address.
Allocation* find(const void* address) {
  auto it = state().allocations.upper_bound(number(address));
  if (it == state().allocations.begin()) return nullptr;
  Allocation& a = std::prev(it)->second;
  return number(address) < number(a.pages) + a.page_bytes + 2 * page ? &a : nullptr;
}

void protect(const Allocation& a, int protection) {
  WEIR_CHECK(mprotect(a.begin(), a.page_bytes, protection) == 0, "mprotect failed: {}", strerror(errno));
}

std::string fault_text;
void fail_with_fault_text() { fail(fault_text); }

/// Continues at fail_with_fault_text() on the faulting thread's stack, below its red zone.
void divert(ucontext_t& context, const std::string& text) {
  fault_text = text;
  auto& rsp = context.uc_mcontext.gregs[REG_RSP];
  rsp = (rsp - 512) / 16 * 16 - 8;
  context.uc_mcontext.gregs[REG_RIP] =
      static_cast<greg_t>(number(reinterpret_cast<void*>(&fail_with_fault_text)));
}

/// True where the access may be tried again.
bool handle_access(const void* address, bool write, ucontext_t& context) {
  Allocation* a = find(address);
  const bool inside = a && address >= a->begin() && address < a->begin() + a->page_bytes;
  if (inside && write && a->written != state().launch && !state().guarded) {
    a->written = state().launch;
    protect(*a, PROT_READ | PROT_WRITE);
    return true;
  }
  std::string text = write ? "writes " : "reads ";
  text += describe(address);
  if (inside && state().guarded)
    text += write ? ", before wait_for_previous()"
                  : fmt::format(", which launch {} of {} wrote, before wait_for_previous()", a->written,
                                state().launch);
  text += " at " + code_location(reinterpret_cast<void*>(context.uc_mcontext.gregs[REG_RIP]));
  divert(context, text);
  return true;
}

void on_signal(int signal, siginfo_t* info, void* raw) {
  auto& context = *static_cast<ucontext_t*>(raw);
  if (in_kernel()) {
    if (signal == SIGSEGV && is_stack_guard(info->si_addr)) {
      const char text[] = "a kernel's thread overflows its stack in the emulation\n";
      (void)!write(2, text, sizeof text - 1);
    } else if (signal == SIGSEGV) {
      if (handle_access(info->si_addr, context.uc_mcontext.gregs[REG_ERR] & 2, context)) return;
    } else {
      divert(context, "a misaligned access, an index outside an array or a shift outside the type at " +
                          code_location(reinterpret_cast<void*>(context.uc_mcontext.gregs[REG_RIP])));
      return;
    }
  } else if (signal == SIGSEGV && find(info->si_addr)) {
    const char text[] = "the host touches emulated device memory\n";
    (void)!write(2, text, sizeof text - 1);
  }
  ::signal(signal, SIG_DFL);  // and the instruction is tried again
}

void install_handler() {
  static const bool installed = [] {
    static char alternate[64 << 10];
    stack_t stack{};
    stack.ss_sp = alternate, stack.ss_size = sizeof alternate;
    sigaltstack(&stack, nullptr);
    struct sigaction action {};
    action.sa_sigaction = on_signal;
    // Nothing is masked: a diverted handler never returns through the kernel's bookkeeping.
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
    return sigaction(SIGSEGV, &action, nullptr) == 0 && sigaction(SIGILL, &action, nullptr) == 0;
  }();
  WEIR_CHECK(installed, "no signal handler");
}

}  // namespace

void* allocate(size_t bytes) {
  install_handler();
  if (bytes > options().memory_bytes || allocated() > options().memory_bytes - bytes) return nullptr;
  const size_t rounded = std::max((bytes + alignment - 1) / alignment * alignment, alignment);
  Allocation a;
  a.page_bytes = (rounded + page - 1) / page * page;
  void* p =
      mmap(nullptr, a.page_bytes + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) return nullptr;
  a.pages = static_cast<char*>(p);
  a.data = a.begin() + a.page_bytes - rounded, a.bytes = bytes;
  protect(a, PROT_READ | PROT_WRITE);
  memset(a.begin(), 0xff, a.page_bytes);
  protect(a, PROT_READ);
  state().allocated += bytes;
  state().allocations[number(a.pages)] = a;
  return a.data;
}

bool free(void* data) {
  Allocation* a = find(data);
  if (!a || a->data != data) return false;
  protect(*a, PROT_READ);
  const char* end = a->data + a->bytes;
  const auto is_poison = [](char c) { return c == '\xff'; };
  const bool whole =
      std::all_of(static_cast<const char*>(a->begin()), static_cast<const char*>(a->data), is_poison) &&
      std::all_of(end, static_cast<const char*>(a->begin() + a->page_bytes), is_poison);
  const size_t bytes = a->bytes;
  state().allocated -= bytes;
  munmap(a->pages, a->page_bytes + 2 * page);
  state().allocations.erase(number(a->pages));
  WEIR_CHECK(whole, "a kernel wrote around an allocation of {} bytes", bytes);
  return true;
}

uint64_t allocated() { return state().allocated; }

bool contains(const void* data, size_t bytes) {
  const Allocation* a = find(data);
  return a && data >= a->data && static_cast<const char*>(data) + bytes <= a->data + a->bytes;
}

bool is_device(const void* data) { return contains(data, 0); }

void open_for_host(void* data) {
  if (const Allocation* a = find(data)) protect(*a, PROT_READ | PROT_WRITE);
}
void close_for_host(void* data) {
  if (const Allocation* a = find(data)) protect(*a, PROT_READ);
}

uint64_t current_launch() { return state().launch; }

void begin_launch(uint64_t complete) {
  for (auto& [at, a] : state().allocations)
    if (a.written == state().launch) protect(a, PROT_READ);
  ++state().launch, state().complete = complete;
}

void guard() {
  state().guarded = true;
  for (auto& [at, a] : state().allocations)
    if (a.written > state().complete) protect(a, PROT_NONE);
}
void unguard() {
  if (!state().guarded) return;
  state().guarded = false;
  for (auto& [at, a] : state().allocations)
    if (a.written > state().complete)
      protect(a, a.written == state().launch ? PROT_READ | PROT_WRITE : PROT_READ);
}

std::string describe(const void* address) {
  const Allocation* a = find(address);
  if (!a) return fmt::format("{} which is no device memory", address);
  const auto* at = static_cast<const char*>(address);
  if (at < a->data) return fmt::format("{} bytes before an allocation of {} bytes", a->data - at, a->bytes);
  if (at < a->data + a->bytes)
    return fmt::format("byte {} of an allocation of {} bytes", at - a->data, a->bytes);
  return fmt::format("{} bytes past the end of an allocation of {} bytes", at - (a->data + a->bytes),
                     a->bytes);
}

}  // namespace weir::emulation::memory
