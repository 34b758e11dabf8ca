// Bytes of files on their way into the memory of a device that the host cannot write: read by several threads
// into one half of a staging buffer while the other half is uploaded. Drops the page cache behind itself.
// Knows no tensor.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/file.h"
#include "base/thread_team.h"
#include "device/device.h"
#include "gguf/reader.h"

namespace weir {

struct LoadRange {
  uint32_t file = 0;  ///< index into the files given
  uint64_t offset = 0, bytes = 0;
  uint8_t* destination = nullptr;  ///< device memory
};

class DeviceLoader {
 public:
  static constexpr uint64_t half_bytes = 8 << 20, staging_bytes = 2 * half_bytes;
  /// `threads` >= 1 read.
  DeviceLoader(Device& device, const std::vector<gguf::File>& files, int threads);
  ~DeviceLoader();

  /// Returns when all ranges are in device memory. `progress` (or null) gets the bytes done so far. Throws
  /// Error with path and offset where a read fails.
  void load(std::span<const LoadRange> ranges, const std::function<void(uint64_t done)>& progress);

 private:
  struct Segment {  ///< of one half
    uint32_t file;
    uint64_t offset, bytes;
    uint64_t at;  ///< in the half
    uint8_t* destination;
  };
  /// Fills half_ from `ranges` on, from `range` and the bytes of it that are done; false where nothing is
  /// left.
  bool fill(std::span<const LoadRange> ranges, size_t& range, uint64_t& done_of_range);
  void read_half(uint8_t* half);

  Device& device_;
  ThreadTeam team_;
  std::vector<InputFile> files_;
  Buffer staging_;
  std::vector<Segment> half_, pieces_;
};

}  // namespace weir
