// Fibers: stacks of their own on one host thread, and the switch between them. Knows nothing of blocks.
#pragma once

#include <cstddef>

namespace weir::emulation {

/// A suspended flow of control; null while it runs.
struct Context {
  void* stack_pointer = nullptr;
};

/// Suspends the caller into `from` and resumes `to`.
void switch_context(Context& from, const Context& to);
/// A context that calls entry() on the given stack (highest address) when resumed; entry must not return.
Context make_context(void* stack_top, size_t stack_bytes, void (*entry)());

/// `count` stacks with a guard page below each; memory is taken when touched.
class Stacks {
 public:
  static constexpr size_t bytes = 128 << 10;
  explicit Stacks(int count);
  Stacks(const Stacks&) = delete;
  Stacks& operator=(const Stacks&) = delete;
  ~Stacks();
  /// Staggered, so that the stacks of a block do not all lie in the same sets of the cache.
  void* top(int i) const {
    return base_ + (static_cast<size_t>(i) + 1) * bytes - static_cast<size_t>(i % 31) * 448;
  }
  /// Whether `address` is in the guard page of some stack.
  bool is_guard(const void* address) const;

 private:
  int count_;
  char* base_;
};

}  // namespace weir::emulation
