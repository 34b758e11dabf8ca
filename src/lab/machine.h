// What a measurement was made on, for its report: processor, memory, kernel, build. Reads /proc; judges
// nothing.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace weir::lab {

struct Machine {
  std::string processor;  ///< "unknown" where /proc/cpuinfo does not say
  int processors = 0;
  uint64_t memory_bytes = 0;
  std::string system;  ///< kernel and its release
  std::string build;   ///< weir's version and the compiler
};
Machine this_machine();

/// Nanoseconds since boot, over all processors, in which a processor of this machine had work and the
/// hypervisor ran something else on it (the column `steal` of proc(5)). Steps of 10 ms. Nothing where
/// `proc_stat` does not say.
std::optional<uint64_t> stolen_ns(const std::string& proc_stat = "/proc/stat");

}  // namespace weir::lab
