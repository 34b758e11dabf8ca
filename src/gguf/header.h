// One file's header: metadata and tensor table, checked against themselves and against the size of the file.
// Knows nothing of split models.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "gguf/cursor.h"
#include "gguf/reader.h"

namespace weir::gguf {

using Metadata = std::map<std::string, Value, std::less<>>;

struct Header {
  Metadata metadata;
  std::vector<Tensor> tensors;  ///< offsets absolute; `file` is 0
  uint64_t data_offset = 0;
};

/// Reads from the cursor's start. Throws Error (input).
Header read_header(Cursor& cursor);

// The two halves of it.
Metadata read_metadata(Cursor& cursor, uint64_t count);
/// The cursor stands at the first tensor info; sets tensors and data_offset.
void read_tensor_table(Cursor& cursor, uint64_t count, uint64_t alignment, Header& header);

}  // namespace weir::gguf
