// Files as owned descriptors: reading at an offset, and replacing a file as a whole. Every error carries the
// path, and the offset where there is one. Knows no format.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/temporary.h"

namespace weir {

/// An open descriptor, closed on destruction. Movable; -1 when empty.
class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int fd) : fd_(fd) {}
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(other.release()) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept;
  ~FileDescriptor() { reset(); }
  int get() const { return fd_; }
  int release();
  void reset();
  explicit operator bool() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

/// A regular file open for reading. Its size is the one at opening; reads carry no position, so threads may
/// share it.
class InputFile {
 public:
  /// Throws Error (input) where it does not exist, cannot be read, or is not a regular file.
  /// `extra_flags` are added to open(2)'s, e.g. O_DIRECT.
  static InputFile open(const std::string& path, int extra_flags = 0);

  const std::string& path() const { return path_; }
  uint64_t size() const { return size_; }
  int fd() const { return fd_.get(); }
  /// Reads exactly `bytes` bytes at `offset` into `out`. Throws Error (failure) with path and offset where
  /// the device fails or the file ends first.
  void pread_exact(void* out, size_t bytes, uint64_t offset) const;

 private:
  InputFile(std::string path, FileDescriptor fd, uint64_t size);
  std::string path_;
  FileDescriptor fd_;
  uint64_t size_ = 0;
};

/// Replaces `path` as a whole: bytes go to a temporary file beside it, and commit() syncs and renames it over
/// `path`. Without commit() the temporary is removed, at a signal too (base/temporary.h), and `path` is as
/// it was. A symbolic link is followed; a
/// device or pipe is written through. Throws Error with the path: input where it cannot be written to,
/// failure later.
class AtomicFile {
 public:
  explicit AtomicFile(std::string path);
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;
  void write(const void* data, size_t bytes);
  void commit();

 private:
  std::string path_;
  Temporary temporary_;  ///< none where it is written through
  FileDescriptor fd_;
  uint64_t written_ = 0;
};

/// Writes all of `content` through an AtomicFile.
void write_file_atomically(const std::string& path, std::string_view content);

/// `text` in single quotes for a one-line message: bytes outside printable ASCII as \xNN, cut after 80
/// characters.
std::string quote(std::string_view text);

}  // namespace weir
