// A bounded, buffered reader over the front of a file or over bytes in memory. Checks every length against
// what is left before anything is allocated, and words its errors with path, subject (key or tensor), field
// and offset. Knows numbers and strings; not what they mean.
#pragma once

#include <fmt/core.h>

#include <bit>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/file.h"

namespace weir::gguf {

static_assert(std::endian::native == std::endian::little, "values are copied out of the file as they lie");

class Cursor {
 public:
  /// `file` must outlive the cursor.
  explicit Cursor(const InputFile& file);
  /// `bytes` must outlive the cursor; `path` only names it in errors.
  Cursor(std::string path, std::span<const uint8_t> bytes);

  const std::string& path() const { return path_; }
  uint64_t size() const { return size_; }
  uint64_t position() const { return position_; }
  /// Bytes that the header may still take: to the end of the file or of max_header, whichever is nearer.
  uint64_t remaining() const { return limit_ - position_; }

  /// What the following fields belong to, e.g. "key 'general.name'"; empty for the file itself.
  void set_subject(std::string subject) { subject_ = std::move(subject); }

  template <typename T>
  T scalar(const char* field) {
    T value;
    field_start_ = position_;
    if (position_ + sizeof value > window_end_) refill(sizeof value, field);
    std::memcpy(&value, window_ + (position_ - window_begin_), sizeof value);
    position_ += sizeof value;
    return value;
  }
  /// A u64 length and that many bytes.
  std::string string(const char* field, uint64_t max_bytes = ~uint64_t{0});
  /// Over a string; returns its length.
  uint64_t skip_string(const char* field);
  /// The next `bytes` bytes.
  void copy(void* out, uint64_t bytes, const char* field);
  /// Back to a position that was read before.
  void seek(uint64_t position);

  /// An Error (input) with path, subject, the offset of the last field read, and the message.
  template <typename... Args>
  Error error(fmt::format_string<Args...> format, Args&&... args) const {
    return error_with(fmt::format(format, std::forward<Args>(args)...));
  }

 private:
  /// Makes the next `bytes` (at most the buffer's size) readable through the window.
  void refill(size_t bytes, const char* field);
  void need(uint64_t bytes, const char* field) const;
  Error error_with(const std::string& message) const;

  std::string path_, subject_;
  const InputFile* file_ = nullptr;
  uint64_t size_ = 0, limit_ = 0, position_ = 0, field_start_ = 0;
  std::vector<uint8_t> buffer_;
  const uint8_t* window_ = nullptr;  ///< bytes [window_begin_, window_end_) of the file
  uint64_t window_begin_ = 0, window_end_ = 0;
};

}  // namespace weir::gguf
