// Owned descriptors over open, pread, write and rename.
#include "base/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "base/error.h"

namespace weir {
namespace {

// Linux moves at most 0x7ffff000 bytes a call; a round number below it keeps offsets aligned.
constexpr size_t max_transfer = size_t{1} << 30;

}  // namespace

FileDescriptor& FileDescriptor::operator=(FileDescriptor&& other) noexcept {
  if (this != &other) {
    reset();
    fd_ = other.release();
  }
  return *this;
}

int FileDescriptor::release() { return std::exchange(fd_, -1); }

void FileDescriptor::reset() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

InputFile::InputFile(std::string path, FileDescriptor fd, uint64_t size)
    : path_(std::move(path)), fd_(std::move(fd)), size_(size) {}

InputFile InputFile::open(const std::string& path, int extra_flags) {
  // Without O_NONBLOCK, opening a named pipe would wait for a writer; regular files ignore it.
  FileDescriptor fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | extra_flags));
  if (!fd) throw input_error("{}: cannot open: {}", path, std::strerror(errno));
  struct stat status {};
  if (::fstat(fd.get(), &status) != 0) throw input_error("{}: cannot stat: {}", path, std::strerror(errno));
  if (S_ISDIR(status.st_mode)) throw input_error("{}: is a directory, expected a file", path);
  if (!S_ISREG(status.st_mode)) throw input_error("{}: is not a regular file", path);
  return InputFile(path, std::move(fd), static_cast<uint64_t>(status.st_size));
}

void InputFile::pread_exact(void* out, size_t bytes, uint64_t offset) const {
  auto* destination = static_cast<char*>(out);
  const uint64_t end = offset + bytes;
  while (bytes > 0) {
    const ssize_t n =
        ::pread(fd_.get(), destination, std::min(bytes, max_transfer), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0)
      throw failure("{}: reading {} bytes at offset {} failed: {}", path_, bytes, offset,
                    std::strerror(errno));
    if (n == 0) throw failure("{}: the file ends at offset {}, wanted bytes up to {}", path_, offset, end);
    destination += n;
    bytes -= static_cast<size_t>(n);
    offset += static_cast<uint64_t>(n);
  }
}

AtomicFile::AtomicFile(std::string path) : path_(std::move(path)) {
  struct stat status {};
  if (path_.empty()) throw input_error("the path of an output file is empty: expected a file");
  if (::stat(path_.c_str(), &status) == 0) {
    if (S_ISDIR(status.st_mode))
      throw input_error("{}: is a directory: expected a file to write", quote(path_));
    if (!S_ISREG(status.st_mode)) {
      fd_ = FileDescriptor(::open(path_.c_str(), O_WRONLY | O_CLOEXEC));
      if (!fd_) throw input_error("{}: cannot be written: {}", quote(path_), std::strerror(errno));
      return;
    }
    if (char* real = ::realpath(path_.c_str(), nullptr)) {
      path_ = real;
      std::free(real);
    }
  }
  // The name is unique among processes by the pid and within this one by the counter; a leftover of a crashed
  // process with our pid is stepped over.
  static std::atomic<unsigned> counter{0};
  do {
    temporary_.release();
    temporary_ = Temporary(fmt::format("{}.{}.{}.tmp", path_, ::getpid(), counter++));
    fd_ = FileDescriptor(::open(temporary_.path().c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  } while (!fd_ && errno == EEXIST);
  if (!fd_) throw input_error("{}: cannot be written: {}", quote(path_), std::strerror(errno));
}

void AtomicFile::write(const void* data, size_t bytes) {
  WEIR_CHECK(fd_, "write after commit to {}", path_);
  const auto* source = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t n = ::write(fd_.get(), source, std::min(bytes, max_transfer));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0)
      throw failure("{}: writing {} bytes at offset {} failed: {}", path_, bytes, written_,
                    std::strerror(errno));
    source += n;
    bytes -= static_cast<size_t>(n);
    written_ += static_cast<uint64_t>(n);
  }
}

void AtomicFile::commit() {
  WEIR_CHECK(fd_, "second commit to {}", path_);
  if (temporary_.path().empty()) return fd_.reset();  // written through
  // Hazard: without the sync a crash after the rename may leave an empty file under the final name.
  if (::fsync(fd_.get()) != 0) throw failure("{}: cannot sync: {}", path_, std::strerror(errno));
  if (::rename(temporary_.path().c_str(), path_.c_str()) != 0)
    throw failure("{}: cannot rename {} to it: {}", path_, temporary_.path(), std::strerror(errno));
  temporary_.release();
  fd_.reset();
}

void write_file_atomically(const std::string& path, std::string_view content) {
  AtomicFile file(path);
  file.write(content.data(), content.size());
  file.commit();
}

std::string quote(std::string_view text) {
  constexpr size_t shown = 80;
  std::string out = "'";
  for (const char c : text.substr(0, shown)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte < 0x7f)
      out += c;
    else
      out += fmt::format("\\x{:02x}", byte);
  }
  if (text.size() > shown) out += "...";
  return out + "'";
}

}  // namespace weir
