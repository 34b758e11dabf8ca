// Names and numbers of the GGUF container itself: value types, limits, and the keys that steer reading a
// file. Keys that describe a model belong to the model's configuration, not here.
#pragma once

#include <cstdint>

namespace weir::gguf {

inline constexpr char key_alignment[] = "general.alignment";
inline constexpr char key_split_no[] = "split.no";                  ///< u16, 0-based
inline constexpr char key_split_count[] = "split.count";            ///< u16
inline constexpr char key_split_tensors[] = "split.tensors.count";  ///< i32, over all parts

inline constexpr uint32_t magic = 0x46554747;  ///< "GGUF" as a little-endian word
inline constexpr uint32_t default_alignment = 32;
inline constexpr int max_dims = 4;
inline constexpr uint64_t max_tensor_name = 63;  ///< bytes; other readers keep names in 64 with a terminator
inline constexpr uint64_t max_key = 65535;       ///< bytes

// Real headers are about 10 MB, their longest array has some 500 thousand merges, and the most tensors are
// some 70 thousand (one an expert). A header is read before there is any budget: these bounds, and arrays
// that take no more memory than their bytes in the file, keep it small on a small machine, whatever a file of
// hundreds of gigabytes says.
inline constexpr uint64_t max_header = uint64_t{128} << 20;  ///< bytes before the tensor data
inline constexpr uint64_t max_array = uint64_t{1} << 24;     ///< elements
inline constexpr uint64_t max_entries = uint64_t{1} << 16;   ///< of metadata: some 200 bytes each
inline constexpr uint64_t max_tensors = uint64_t{1} << 18;   ///< some 300 bytes each; over all parts

enum ValueType : uint32_t {
  value_u8 = 0,
  value_i8 = 1,
  value_u16 = 2,
  value_i16 = 3,
  value_u32 = 4,
  value_i32 = 5,
  value_f32 = 6,
  value_bool = 7,
  value_string = 8,
  value_array = 9,
  value_u64 = 10,
  value_i64 = 11,
  value_f64 = 12,
};

/// "u8", "string", ...; null for an unknown id.
constexpr const char* value_type_name(uint32_t id) {
  constexpr const char* names[] = {"u8",   "i8",     "u16",   "i16", "u32", "i32", "f32",
                                   "bool", "string", "array", "u64", "i64", "f64"};
  return id < sizeof names / sizeof *names ? names[id] : nullptr;
}

/// Bytes of one value in a file; for a string the least (its length field); 0 for arrays and unknown ids.
constexpr uint64_t value_type_bytes(uint32_t id) {
  constexpr uint64_t bytes[] = {1, 1, 2, 2, 4, 4, 4, 1, 8, 0, 8, 8, 8};
  return id < sizeof bytes / sizeof *bytes ? bytes[id] : 0;
}

constexpr bool is_signed(uint32_t type) {
  return type == value_i8 || type == value_i16 || type == value_i32 || type == value_i64;
}
constexpr bool is_real(uint32_t type) { return type == value_f32 || type == value_f64; }

/// Whether an integer fits the integer or bool type; 64-bit types take any bits.
constexpr bool integer_fits(uint32_t type, int64_t value) {
  if (type == value_bool) return value == 0 || value == 1;
  const int bits = static_cast<int>(8 * value_type_bytes(type));
  if (bits == 64) return true;
  if (is_signed(type)) return value >= -(int64_t{1} << (bits - 1)) && value < int64_t{1} << (bits - 1);
  return value >= 0 && value < int64_t{1} << bits;
}

constexpr bool is_power_of_two(uint64_t value) { return value != 0 && (value & (value - 1)) == 0; }

/// `alignment` must be a power of two; `value` below 2^63.
constexpr uint64_t align_up(uint64_t value, uint64_t alignment) {
  return (value + alignment - 1) & ~(alignment - 1);
}

}  // namespace weir::gguf
