#include "cli/logits_file.h"

#include <cstdint>

namespace weir::cli {

LogitsFile::LogitsFile(const std::string& path, int vocab) : file_(path) {
  const uint32_t header[] = {static_cast<uint32_t>(vocab), 0};
  file_.write("WEIRLGT1", 8);
  file_.write(header, sizeof header);
}

void LogitsFile::add(std::span<const float> logits) { file_.write(logits.data(), logits.size_bytes()); }

}  // namespace weir::cli
