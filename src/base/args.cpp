// See args.h.
#include "base/args.h"

#include <cstdlib>

namespace weir {

std::optional<std::string> environment(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr) return std::nullopt;
  return std::string(value);
}

void set_environment_default(const char* name, const char* value) { setenv(name, value, 0); }

ScopedEnvironment::ScopedEnvironment(const Settings& settings) {
  for (const auto& [name, value] : settings) {
    before_.emplace_back(name, environment(name.c_str()));
    setenv(name.c_str(), value.c_str(), 1);
  }
}

ScopedEnvironment::~ScopedEnvironment() {
  // Last first: a name that was set twice ends as it began.
  for (auto it = before_.rbegin(); it != before_.rend(); ++it) {
    if (it->second)
      setenv(it->first.c_str(), it->second->c_str(), 1);
    else
      unsetenv(it->first.c_str());
  }
}

}  // namespace weir
