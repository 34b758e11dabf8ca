// The naming of split models: <prefix>-00001-of-00003.gguf. Knows names only.
#pragma once

#include <optional>
#include <string>

namespace weir::gguf {

inline constexpr int max_parts = 65535;  ///< split.count is a u16

/// The path of part `no` (0-based) of `count`.
std::string split_path(const std::string& prefix, int no, int count);
/// The prefix, where `path` is named as part `no` of `count`.
std::optional<std::string> split_prefix(const std::string& path, int no, int count);

}  // namespace weir::gguf
