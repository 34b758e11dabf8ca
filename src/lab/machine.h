// What a measurement was made on, for its report: processor, memory, kernel, build. Reads /proc; judges
// nothing.
#pragma once

#include <cstdint>
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

}  // namespace weir::lab
