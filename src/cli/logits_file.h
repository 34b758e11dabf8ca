// The --logits file: "WEIRLGT1", u32 vocabulary, u32 zero, then float32[vocabulary] for positions 0, 1, 2,
// ... (little-endian).
#pragma once

#include <span>
#include <string>

#include "base/file.h"

namespace weir::cli {

class LogitsFile {
 public:
  /// Nothing is at `path` before commit(). Throws Error (failure).
  LogitsFile(const std::string& path, int vocab);
  void add(std::span<const float> logits);
  void commit() { file_.commit(); }

 private:
  AtomicFile file_;
};

}  // namespace weir::cli
