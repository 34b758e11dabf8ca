// Block formats as data: ids, sizes, and whether weir can compute with them. Adding a computable format is
// one header (its codec) and one row in codecs.h.
#pragma once

#include <cstdint>
#include <string>

namespace weir {

/// GGUF tensor type ids (quant/types.def).
enum class Type : uint32_t {
#define WEIR_TYPE(name, id, elements, bytes) name = id,
#include "quant/types.def"
#undef WEIR_TYPE
};

/// How the activations are quantised that a weight format multiplies with (docs/arithmetic.md).
enum class ActFormat : uint8_t {
  none,    ///< float dot
  per32,   ///< int8, one scale for each 32 values
  per256,  ///< int8, one scale for each 256 values, with sums of each 32
};

struct TypeInfo {
  Type type;
  const char* name;
  int block_elements;
  int block_bytes;
  bool computable;  ///< weir has a codec and kernels
  ActFormat act;    ///< meaningful where computable
  /// Decodes `elements` (a multiple of block_elements) values from `blocks` into `out`; null where not
  /// computable.
  void (*decode)(const void* blocks, float* out, int64_t elements);
  /// Bytes of `elements` values; elements % block_elements == 0.
  uint64_t bytes(uint64_t elements) const {
    return elements / static_cast<uint64_t>(block_elements) * static_cast<uint64_t>(block_bytes);
  }
};

/// Null for an unknown id.
const TypeInfo* type_info(uint32_t id);
/// The id must be one of types.def.
const TypeInfo& type_info(Type type);
/// "Q4_K", or "type 99" for an unknown id.
std::string type_name(uint32_t id);
/// "F32, F16, ...": the computable ones, for error messages.
std::string computable_types();

}  // namespace weir
