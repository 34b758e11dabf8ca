#include "base/error.h"

#include <cstdio>
#include <cstdlib>

namespace weir {

void check_failed(const char* file, int line, const char* condition, const std::string& details) {
  std::fprintf(stderr, "weir: internal error: %s:%d: %s%s%s\n", file, line, condition,
               details.empty() ? "" : ": ", details.c_str());
  std::abort();
}

}  // namespace weir
