// A header is read before there is any budget: its arrays take about the bytes that they have in the file.
#include <gtest/gtest.h>

#include <fstream>

#include "experts/plan.h"
#include "gguf/byte_builder.h"
#include "gguf/reader.h"
#include "support/sanitized.h"
#include "support/temp_dir.h"

namespace weir::gguf {
namespace {

constexpr uint64_t mib = uint64_t{1} << 20;

/// Peak of the process's memory above where it is now, while `work` runs; nothing where the kernel does not
/// start the peak anew.
template <typename Work>
std::optional<uint64_t> peak_growth(Work work) {
  std::ofstream("/proc/self/clear_refs") << "5";
  const MemoryUse before = read_memory_use({});
  if (before.peak_rss > before.rss + 4 * mib) return std::nullopt;
  work();
  return read_memory_use({}).peak_rss - before.rss;
}

/// A header of `arrays` arrays of `count` elements, all bytes zero: a hole in the file.
std::string write_arrays(const std::string& path, int arrays, uint32_t element, uint64_t count,
                         uint64_t bytes) {
  std::ofstream out(path, std::ios::binary);
  const auto put = [&](const std::vector<uint8_t>& data) {
    out.write(reinterpret_cast<const char*>(data.data()), static_cast<std::streamsize>(data.size()));
  };
  ByteBuilder start;
  put(start.header(0, static_cast<uint64_t>(arrays)).bytes);
  for (int i = 0; i < arrays; ++i) {
    ByteBuilder entry;
    put(entry.key("k" + std::to_string(i), 9).u32(element).u64(count).bytes);
    out.seekp(static_cast<std::streamoff>(bytes), std::ios::cur);
  }
  put({0});
  return path;
}

TEST(GgufHeaderMemory, ArraysTakeTheirBytesInTheFile) {
  if (test::sanitized) GTEST_SKIP() << "a sanitizer's own memory counts";
  const test::TempDir dir;
  const uint64_t elements = 16 * mib, string_count = 4 * mib;
  const std::string u8 = write_arrays(dir.file("u8.gguf"), 6, 0, elements, elements);
  const std::string strings = write_arrays(dir.file("strings.gguf"), 3, 8, string_count, 8 * string_count);
  for (const std::string& path : {u8, strings}) {
    const auto growth = peak_growth([&] {
      const Model model = Model::open(path);
      EXPECT_EQ(model.array("k0")->size(), path == u8 ? elements : string_count);
      uint64_t kept = 0;
      for (const auto& [key, value] : model.metadata()) kept += std::get<Array>(value.data).memory_bytes();
      EXPECT_LE(kept, 96 * mib + 1024) << "a short string's room is its own";
    });
    if (!growth) GTEST_SKIP() << "the peak cannot be started anew here";
    EXPECT_LE(*growth, 100 * mib) << path;
  }
}

TEST(GgufHeaderMemory, AHeaderAboveItsBoundIsRefused) {
  const test::TempDir dir;
  const std::string path = write_arrays(dir.file("u8.gguf"), 9, 0, 16 * mib, 16 * mib);
  try {
    Model::open(path);
    FAIL();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("past 134217728 bytes: not a plausible header"), std::string::npos)
        << e.what();
  }
}

}  // namespace
}  // namespace weir::gguf
