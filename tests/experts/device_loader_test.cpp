// Ranges of files into the memory of a device that the host cannot touch.
#include "experts/device_loader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/random.h"
#include "support/deferred_device.h"
#include "support/temp_dir.h"

namespace weir {
namespace {

using test::DeferredDevice;

class DeviceLoading : public testing::Test {
 protected:
  /// A file of `bytes` random bytes.
  gguf::File file(const std::string& name, size_t bytes, uint64_t seed) {
    std::string content(bytes, 0);
    for (size_t i = 0; i < bytes; ++i) content[i] = static_cast<char>(random_u64(seed, i / 8) >> (i % 8 * 8));
    test::write_file(dir_.file(name), content);
    contents_.push_back(content);
    gguf::File f;
    f.path = dir_.file(name);
    return f;
  }
  test::TempDir dir_;
  std::vector<std::string> contents_;
  std::shared_ptr<DeferredDevice::Counters> counters_ = std::make_shared<DeferredDevice::Counters>();
  DeferredDevice device_{{}, counters_};
};

TEST_F(DeviceLoading, BringsEveryRangeWholeToItsPlace) {
  const uint64_t half = DeviceLoader::half_bytes;
  const std::vector<gguf::File> files = {file("a", 3 * half + 12'345, 1), file("b", 5'000, 2)};
  // Wider than a half, narrower than an alignment, odd offsets, nothing at all, another file, to the last
  // byte.
  std::vector<LoadRange> ranges = {{0, 7, 2 * half + 3, nullptr}, {1, 0, 1, nullptr},
                                   {1, 4'990, 10, nullptr},       {0, 100, 0, nullptr},
                                   {1, 1, 999, nullptr},          {0, half, half, nullptr}};
  uint64_t total = 0;
  std::vector<Buffer> buffers;
  for (LoadRange& range : ranges) {
    buffers.push_back(device_.allocate(range.bytes + 1, "a range"));
    range.destination = buffers.back().as<uint8_t>();
    total += range.bytes;
  }
  std::vector<uint64_t> progress;
  {
    DeviceLoader loader(device_, files, 3);
    loader.load(ranges, [&](uint64_t done) { progress.push_back(done); });
    loader.load(std::span(ranges).first(2), nullptr);
  }
  EXPECT_TRUE(std::is_sorted(progress.begin(), progress.end()));
  EXPECT_EQ(progress.back(), total);
  for (size_t i = 0; i < ranges.size(); ++i) {
    std::string got(ranges[i].bytes + 1, 'x');
    device_.download(got.data(), buffers[i].data(), got.size());
    EXPECT_EQ(got.back(), 0) << "nothing behind the range was written";
    got.pop_back();
    EXPECT_TRUE(got == contents_[ranges[i].file].substr(ranges[i].offset, ranges[i].bytes)) << i;
  }
}

TEST_F(DeviceLoading, AFileThatEndsTooSoonIsNamedWithItsOffset) {
  const std::vector<gguf::File> files = {file("short", 4'000, 1)};
  const Buffer buffer = device_.allocate(8'000, "a range");
  DeviceLoader loader(device_, files, 2);
  const LoadRange range{0, 1'000, 8'000, buffer.as<uint8_t>()};
  try {
    loader.load({&range, 1}, nullptr);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.exit_code(), 1);
    EXPECT_THAT(e.what(), ::testing::HasSubstr("short"));
  }
}

}  // namespace
}  // namespace weir
