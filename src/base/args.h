// What the process was started with, apart from its command line: the only place that reads the environment,
// or changes it.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace weir {

/// The value of an environment variable (empty where it is set to nothing); nullopt where it is not set.
std::optional<std::string> environment(const char* name);

/// Sets a variable of the process for good, where it is not set: for libraries that are steered so. Hazard:
/// no other thread may read the environment meanwhile.
void set_environment_default(const char* name, const char* value);

/// Sets variables for its lifetime and then puts back what was there. Hazard: no other thread may read the
/// environment meanwhile.
class ScopedEnvironment {
 public:
  using Settings = std::vector<std::pair<std::string, std::string>>;
  explicit ScopedEnvironment(const Settings& settings);
  ~ScopedEnvironment();
  ScopedEnvironment(const ScopedEnvironment&) = delete;
  ScopedEnvironment& operator=(const ScopedEnvironment&) = delete;

 private:
  std::vector<std::pair<std::string, std::optional<std::string>>> before_;
};

}  // namespace weir
