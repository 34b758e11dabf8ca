// FNV-1a, 64 bit: fingerprints of tokens, logits and models. Not for adversaries.
#pragma once

#include <cstddef>
#include <cstdint>

namespace weir {

class Hash64 {
 public:
  Hash64& add(const void* data, size_t bytes) {
    const auto* p = static_cast<const unsigned char*>(data);
    for (size_t i = 0; i < bytes; ++i) state_ = (state_ ^ p[i]) * 0x100000001b3ull;
    return *this;
  }
  /// Eight bytes a step: for bulk data (logits). Differs from add() over the same bytes.
  Hash64& add_words(const void* data, size_t bytes) {
    const auto* p = static_cast<const unsigned char*>(data);
    size_t i = 0;
    for (; i + 8 <= bytes; i += 8) {
      uint64_t word;
      __builtin_memcpy(&word, p + i, 8);
      state_ = (state_ ^ word) * 0x100000001b3ull;
      state_ ^= state_ >> 29;
    }
    return add(p + i, bytes - i);
  }
  template <typename T>
  Hash64& add_value(const T& value) {
    return add(&value, sizeof value);
  }
  uint64_t value() const { return state_; }

 private:
  uint64_t state_ = 0xcbf29ce484222325ull;
};

}  // namespace weir
