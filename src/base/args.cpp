// See args.h.
#include "base/args.h"

#include <cstdlib>

namespace weir {

std::optional<std::string> environment(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr) return std::nullopt;
  return std::string(value);
}

}  // namespace weir
