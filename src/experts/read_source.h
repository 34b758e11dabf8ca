// The files that expert slices are read from: opened unbuffered where that gives the true bytes, buffered
// otherwise, with the reason. Knows nothing of requests.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/file.h"
#include "experts/reader.h"

namespace weir {

struct ReadSource {
  std::vector<InputFile> files;
  bool direct = false;
  uint64_t alignment = 4096;
  std::string reason;  ///< why buffered although unbuffered was wanted; empty otherwise
};

/// Throws Error where a file cannot be opened, or where IoMode::direct was asked for and does not work.
ReadSource open_read_source(const std::vector<gguf::File>& files, const ReaderOptions& options);

/// Reads the first bytes of the tensor data through both; empty where they agree, else what is wrong with
/// `direct`.
std::string probe_direct(const InputFile& direct, const InputFile& buffered, uint64_t data_offset,
                         uint64_t alignment);

/// Lets go of the page cache over these bytes and the pages they touch.
void drop_cached(const InputFile& file, uint64_t offset, uint64_t bytes);

}  // namespace weir
