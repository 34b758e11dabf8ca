// The --logits file: "WEIRLGT1", u32 vocabulary, u32 zero, then float32[vocabulary] for positions 0, 1, 2,
// ... (little-endian).
#pragma once

#include <cstdio>
#include <span>
#include <string>

namespace weir::cli {

class LogitsFile {
 public:
  /// Writes beside `path` until close(). Throws Error (failure).
  LogitsFile(std::string path, int vocab);
  ~LogitsFile();
  LogitsFile(const LogitsFile&) = delete;
  LogitsFile& operator=(const LogitsFile&) = delete;
  void add(std::span<const float> logits);
  void close();

 private:
  std::string path_, temporary_;
  std::FILE* file_ = nullptr;
};

}  // namespace weir::cli
