#include "cli/logits_file.h"

#include <cerrno>
#include <cstdint>
#include <cstring>

#include "base/error.h"

namespace weir::cli {

LogitsFile::LogitsFile(std::string path, int vocab) : path_(std::move(path)), temporary_(path_ + ".partial") {
  file_ = std::fopen(temporary_.c_str(), "wb");
  if (!file_) throw input_error("{}: cannot be written: {}", path_, std::strerror(errno));
  const uint32_t header[] = {static_cast<uint32_t>(vocab), 0};
  std::fwrite("WEIRLGT1", 1, 8, file_);
  std::fwrite(header, sizeof header, 1, file_);
}

LogitsFile::~LogitsFile() {
  if (!file_) return;
  std::fclose(file_);
  std::remove(temporary_.c_str());
}

void LogitsFile::add(std::span<const float> logits) {
  if (std::fwrite(logits.data(), sizeof(float), logits.size(), file_) != logits.size())
    throw failure("{}: writing failed: {}", path_, std::strerror(errno));
}

void LogitsFile::close() {
  const bool good = std::fclose(file_) == 0;
  file_ = nullptr;
  if (!good || std::rename(temporary_.c_str(), path_.c_str()) != 0) {
    std::remove(temporary_.c_str());
    throw failure("{}: writing failed: {}", path_, std::strerror(errno));
  }
}

}  // namespace weir::cli
