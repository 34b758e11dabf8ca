// Where tests find the project's files.
#pragma once

#include <string>

namespace weir::testing {

inline std::string source_path(const std::string& relative) {
  return std::string(WEIR_SOURCE_DIR "/") + relative;
}
inline std::string pocket_model() { return source_path("models/pocket-moe-q4.gguf"); }
inline std::string drafter_model() { return source_path("models/pocket-draft-q8.gguf"); }
inline std::string weir_binary() { return std::string(WEIR_BINARY_DIR "/weir"); }

}  // namespace weir::testing
