#include "experts/device_loader.h"

#include <fcntl.h>

#include <algorithm>
#include <exception>
#include <mutex>

namespace weir {
namespace {

/// Bytes of one read: enough of them in a half to keep all threads busy.
constexpr uint64_t piece_bytes = 1 << 20;

}  // namespace

DeviceLoader::DeviceLoader(Device& device, const std::vector<gguf::File>& files, int threads)
    : device_(device),
      team_(threads),
      staging_(device.allocate_host(staging_bytes, "staging of the weights")) {
  for (const auto& file : files) files_.push_back(InputFile::open(file.path));
}

DeviceLoader::~DeviceLoader() {
  for (const auto& file : files_) posix_fadvise(file.fd(), 0, 0, POSIX_FADV_DONTNEED);
}

void DeviceLoader::load(std::span<const LoadRange> ranges, const std::function<void(uint64_t)>& progress) {
  size_t range = 0;
  uint64_t done_of_range = 0, done = 0;
  for (int turn = 0; fill(ranges, range, done_of_range); turn ^= 1) {
    uint8_t* half = staging_.as<uint8_t>() + static_cast<uint64_t>(turn) * half_bytes;
    read_half(half);
    device_.synchronize();  // hazard: the other half, which the next turn fills, may still be read
    for (const Segment& s : half_) {
      device_.upload(s.destination, half + s.at, s.bytes);
      done += s.bytes;
    }
    if (progress) progress(done);
  }
  device_.synchronize();
}

bool DeviceLoader::fill(std::span<const LoadRange> ranges, size_t& range, uint64_t& done_of_range) {
  half_.clear(), pieces_.clear();
  for (uint64_t at = 0; range < ranges.size() && at < half_bytes;) {
    const LoadRange& r = ranges[range];
    const uint64_t n = std::min(r.bytes - done_of_range, half_bytes - at);
    if (n > 0) half_.push_back({r.file, r.offset + done_of_range, n, at, r.destination + done_of_range});
    done_of_range += n;
    if (done_of_range == r.bytes) ++range, done_of_range = 0;
    at += (n + 63) / 64 * 64;  // every upload begins aligned
  }
  for (const Segment& s : half_)
    for (uint64_t done = 0; done < s.bytes; done += piece_bytes)
      pieces_.push_back(
          {s.file, s.offset + done, std::min(piece_bytes, s.bytes - done), s.at + done, nullptr});
  return !half_.empty();
}

void DeviceLoader::read_half(uint8_t* half) {
  std::mutex mutex;
  std::exception_ptr failed;
  team_.run(static_cast<int64_t>(pieces_.size()), 1, [&](int64_t begin, int64_t end, int) {
    try {
      for (int64_t i = begin; i < end; ++i) {
        const Segment& piece = pieces_[static_cast<size_t>(i)];
        const InputFile& file = files_[piece.file];
        file.pread_exact(half + piece.at, piece.bytes, piece.offset);
        posix_fadvise(file.fd(), static_cast<off_t>(piece.offset), static_cast<off_t>(piece.bytes),
                      POSIX_FADV_DONTNEED);
      }
    } catch (...) {
      const std::lock_guard lock(mutex);
      failed = std::current_exception();
    }
  });
  if (failed) std::rethrow_exception(failed);
}

}  // namespace weir
