// A metadata value in words, for a person or a message.
#pragma once

#include <string>

#include "gguf/reader.h"

namespace weir::gguf {

/// One line: "4", "true", "1e-06", "'text'" (cut after 80 characters), "[4, 4, 8]", "48 times 4",
/// "[4, 4, 8, 4, 4, 8] and 42 more".
std::string describe(const Value& value);

}  // namespace weir::gguf
