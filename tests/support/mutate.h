// Seeded damage to a model file's header, for tests that nothing a file can hold crashes weir: bytes set to
// telling values, and metadata of any type and value where something else is meant.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gguf/writer.h"

namespace weir::test {

/// `bytes` with 1 to 4 changes before `header_bytes`: bits flipped, bytes and 32-bit words set.
std::vector<uint8_t> mutated_bytes(std::vector<uint8_t> bytes, uint64_t header_bytes, uint64_t seed);
/// Gives 1 to 3 of `keys` values of random types, among them the edges of every width.
void mutate_metadata(gguf::Writer& writer, const std::vector<std::string>& keys, uint64_t seed);

}  // namespace weir::test
