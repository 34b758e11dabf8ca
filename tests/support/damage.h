// Weights that are not finite, planted in a model's file.
#pragma once

#include <cstdint>
#include <cstdio>
#include <stdexcept>
#include <string>

#include "gguf/reader.h"

namespace weir::test {

/// Makes a value of `tensor` NaN or infinite, in the first block of its row `row` (of all rows, experts'
/// included: expert e's first is e * out). For F32, F16, BF16, Q8_0 and Q5_0, whose blocks begin with a scale
/// or are one value.
inline void damage(const std::string& path, const std::string& tensor, int64_t row, bool infinite = false) {
  const gguf::Model model = gguf::Model::open(path);
  const gguf::Tensor& t = model.tensor(tensor);
  const uint64_t at = t.offset + t.info->bytes(static_cast<uint64_t>(t.dims[0])) * static_cast<uint64_t>(row);
  const uint32_t f32 = infinite ? 0x7f800000u : 0x7fc00000u;
  const uint16_t half = infinite ? 0x7c00 : 0x7e00, bf16 = static_cast<uint16_t>(f32 >> 16);
  std::FILE* file = std::fopen(path.c_str(), "r+b");
  if (!file || std::fseek(file, static_cast<long>(at), SEEK_SET) != 0) throw std::runtime_error(path);
  const bool whole = t.type == Type::F32;
  const void* bytes = whole ? static_cast<const void*>(&f32) : t.type == Type::BF16 ? &bf16 : &half;
  std::fwrite(bytes, whole ? 4 : 2, 1, file);
  std::fclose(file);
}

}  // namespace weir::test
