// What the process was started with, apart from its command line: the only place that reads the environment.
#pragma once

#include <optional>
#include <string>

namespace weir {

/// The value of an environment variable (empty where it is set to nothing); nullopt where it is not set.
std::optional<std::string> environment(const char* name);

}  // namespace weir
