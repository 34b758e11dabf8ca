// The buffered window and the wording of truncation errors.
#include "gguf/cursor.h"

#include <algorithm>

#include "gguf/keys.h"

namespace weir::gguf {
namespace {

constexpr size_t buffer_bytes = size_t{256} << 10;

}  // namespace

Cursor::Cursor(const InputFile& file)
    : path_(file.path()), file_(&file), size_(file.size()), limit_(std::min(size_, max_header)) {
  buffer_.resize(std::min<uint64_t>(limit_, buffer_bytes));
  window_ = buffer_.data();
}

Cursor::Cursor(std::string path, std::span<const uint8_t> bytes)
    : path_(std::move(path)),
      size_(bytes.size()),
      limit_(std::min(size_, max_header)),
      window_(bytes.data()),
      window_end_(limit_) {}

void Cursor::need(uint64_t bytes, const char* field) const {
  if (bytes <= remaining()) return;
  if (limit_ < size_ && bytes <= size_ - position_)
    throw error("the {} needs {} bytes, which takes the header past {} bytes: not a plausible header", field,
                bytes, max_header);
  throw error("the {} needs {} bytes, but the file ends at {}: truncated or corrupt", field, bytes, size_);
}

void Cursor::refill(size_t bytes, const char* field) {
  need(bytes, field);
  WEIR_CHECK(file_ && bytes <= buffer_.size(), "{} bytes, buffer {}", bytes, buffer_.size());
  const uint64_t count = std::min<uint64_t>(remaining(), buffer_.size());
  file_->pread_exact(buffer_.data(), count, position_);
  window_begin_ = position_;
  window_end_ = position_ + count;
}

std::string Cursor::string(const char* field, uint64_t max_bytes) {
  const auto length = scalar<uint64_t>(field);
  need(length, field);
  if (length > max_bytes)
    throw error("the {} is {} bytes long, at most {} are allowed", field, length, max_bytes);
  std::string text(length, '\0');
  copy(text.data(), length, field);
  return text;
}

uint64_t Cursor::skip_string(const char* field) {
  const auto length = scalar<uint64_t>(field);
  need(length, field);
  position_ += length;
  return length;
}

void Cursor::copy(void* out, uint64_t bytes, const char* field) {
  need(bytes, field);
  auto* to = static_cast<uint8_t*>(out);
  while (bytes > 0) {
    if (position_ >= window_end_) refill(1, field);
    const uint64_t count = std::min(bytes, window_end_ - position_);
    std::memcpy(to, window_ + (position_ - window_begin_), count);
    to += count;
    bytes -= count;
    position_ += count;
  }
}

void Cursor::seek(uint64_t position) {
  WEIR_CHECK(position <= position_, "{} from {}", position, position_);
  position_ = position;
  if (position < window_begin_) window_begin_ = window_end_ = position;  // the next read fills it
}

Error Cursor::error_with(const std::string& message) const {
  return input_error("{}: {}{}at offset {}: {}", path_, subject_, subject_.empty() ? "" : ": ", field_start_,
                     message);
}

}  // namespace weir::gguf
