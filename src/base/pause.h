// What a loop does between two looks at memory that another processor or a device will write.
#pragma once

namespace weir {

/// Tells the processor that this is such a loop: it saves power, and leaves more to a sibling thread.
inline void pause_processor() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace weir
