// A folder that is gone when the test ends. It lies below the build folder, not /tmp, which is often tmpfs
// and then refuses unbuffered reads.
#pragma once

#include <filesystem>
#include <string>

namespace weir::test {

class TempDir {
 public:
  TempDir();
  ~TempDir();
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;

  const std::filesystem::path& path() const { return path_; }
  /// The path of `name` in it; nothing is created.
  std::string file(const std::string& name) const { return (path_ / name).string(); }

 private:
  std::filesystem::path path_;
};

/// A whole file as bytes; throws where it cannot be read or written.
std::string read_file(const std::string& path);
void write_file(const std::string& path, const void* data, size_t bytes);
void write_file(const std::string& path, const std::string& text);

}  // namespace weir::test
