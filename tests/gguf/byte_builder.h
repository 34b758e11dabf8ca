// GGUF files byte by byte, right or wrong on purpose. Knows the layout only from the format's description,
// never from the code under test.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/error.h"
#include "gguf/reader.h"

namespace weir::gguf {

class ByteBuilder {
 public:
  std::vector<uint8_t> bytes;

  ByteBuilder& number(uint64_t value, int width) {
    for (int i = 0; i < width; ++i) bytes.push_back(static_cast<uint8_t>(value >> 8 * i));
    return *this;
  }
  ByteBuilder& u8(uint64_t value) { return number(value, 1); }
  ByteBuilder& u16(uint64_t value) { return number(value, 2); }
  ByteBuilder& u32(uint64_t value) { return number(value, 4); }
  ByteBuilder& u64(uint64_t value) { return number(value, 8); }
  ByteBuilder& raw(const std::string& text) {
    bytes.insert(bytes.end(), text.begin(), text.end());
    return *this;
  }
  ByteBuilder& string(const std::string& text) { return u64(text.size()).raw(text); }
  ByteBuilder& header(uint64_t tensors, uint64_t entries, uint64_t version = 3) {
    return raw("GGUF").u32(version).u64(tensors).u64(entries);
  }
  /// A key and its value type; the value follows.
  ByteBuilder& key(const std::string& name, uint32_t type) { return string(name).u32(type); }
  ByteBuilder& tensor(const std::string& name, const std::vector<uint64_t>& dims, uint32_t type,
                      uint64_t offset) {
    string(name).u32(dims.size());
    for (const uint64_t dim : dims) u64(dim);
    return u32(type).u64(offset);
  }
  ByteBuilder& pad(size_t alignment) {
    while (bytes.size() % alignment != 0) bytes.push_back(0);
    return *this;
  }
  ByteBuilder& zeros(size_t count) {
    bytes.resize(bytes.size() + count);
    return *this;
  }
};

/// The message of the input error that parsing gives; "" where it loads.
inline std::string parse_error(const std::vector<uint8_t>& bytes) {
  try {
    Model::parse(bytes, "hand.gguf");
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), Error::Kind::input) << error.what();
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos) << error.what();
    return error.what();
  }
  return "";
}
inline std::string parse_error(const ByteBuilder& builder) { return parse_error(builder.bytes); }

/// The message of the input error that opening gives; "" where it loads.
inline std::string open_error(const std::string& path) {
  try {
    Model::open(path);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), Error::Kind::input) << error.what();
    return error.what();
  }
  return "";
}

/// A folder of its own for each test, removed at its end.
class FolderTest : public testing::Test {
 protected:
  FolderTest() {
    folder_ = testing::TempDir() + "weir_" + testing::UnitTest::GetInstance()->current_test_info()->name() +
              "_" + std::to_string(::getpid());
    std::filesystem::create_directories(folder_);
  }
  ~FolderTest() override { std::filesystem::remove_all(folder_); }
  std::string path(const std::string& name) const { return folder_ + "/" + name; }
  std::string store(const std::string& name, const std::vector<uint8_t>& bytes) const {
    std::ofstream(path(name), std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
    return path(name);
  }
  std::string folder_;
};

}  // namespace weir::gguf
