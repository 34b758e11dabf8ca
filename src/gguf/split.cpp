// Split file names.
#include "gguf/split.h"

#include <fmt/core.h>

namespace weir::gguf {

std::string split_path(const std::string& prefix, int no, int count) {
  return fmt::format("{}-{:05}-of-{:05}.gguf", prefix, no + 1, count);
}

std::optional<std::string> split_prefix(const std::string& path, int no, int count) {
  const std::string suffix = split_path("", no, count);
  if (!path.ends_with(suffix)) return std::nullopt;
  return path.substr(0, path.size() - suffix.size());
}

}  // namespace weir::gguf
