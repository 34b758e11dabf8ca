// The switch saves what the System V ABI calls callee-saved; everything else is dead across a call.
#include "emulation/fiber.h"

#include <sys/mman.h>

#include <cstdint>

#include "base/error.h"
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

#if !defined(__x86_64__)
#error "the emulator's fibers are written for x86-64: add the switch of this processor here"
#endif

extern "C" void weir_switch_context(void** from, void* to);
asm(R"(
.text
.globl weir_switch_context
.type weir_switch_context, @function
weir_switch_context:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size weir_switch_context, .-weir_switch_context
)");

namespace weir::emulation {

void switch_context(Context& from, const Context& to) {
  weir_switch_context(&from.stack_pointer, to.stack_pointer);
}

Context make_context(void* stack_top, size_t stack_bytes, void (*entry)()) {
#if defined(__SANITIZE_ADDRESS__)
  // An earlier fiber left this stack without returning: its frames' marks are stale.
  __asan_unpoison_memory_region(static_cast<char*>(stack_top) - stack_bytes, stack_bytes);
#endif
  // As if entry had just been called: the stack pointer is 8 below a multiple of 16.
  auto* top = static_cast<uint64_t*>(stack_top) - 1;
  *top = 0;  // entry's return address: never used
  *--top = reinterpret_cast<uint64_t>(entry);
  for (int i = 0; i < 6; ++i) *--top = 0;
  return {top};
}

Stacks::Stacks(int count) : count_(count) {
  void* p = mmap(nullptr, static_cast<size_t>(count) * bytes, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  WEIR_CHECK(p != MAP_FAILED, "no memory for {} stacks", count);
  base_ = static_cast<char*>(p);
  for (int i = 0; i < count; ++i) mprotect(base_ + static_cast<size_t>(i) * bytes, 4096, PROT_NONE);
}

Stacks::~Stacks() { munmap(base_, static_cast<size_t>(count_) * bytes); }

bool Stacks::is_guard(const void* address) const {
  const auto at = reinterpret_cast<uintptr_t>(address), base = reinterpret_cast<uintptr_t>(base_);
  return at >= base && at < base + static_cast<size_t>(count_) * bytes && (at - base) % bytes < 4096;
}

}  // namespace weir::emulation
