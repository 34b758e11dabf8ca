// Magic, version, counts and metadata.
#include "gguf/header.h"

#include <algorithm>

#include "gguf/keys.h"

namespace weir::gguf {
namespace {

// The smallest a metadata entry can be (length, one byte of key, type, one byte of value) and a tensor's
// (length, one byte of name, one dimension and its count, type, offset): bounds on counts before they are
// used.
constexpr uint64_t min_entry_bytes = 8 + 1 + 4 + 1;
constexpr uint64_t min_tensor_bytes = 8 + 1 + 4 + 8 + 4 + 8;
// What is reserved ahead on a count's word alone; more grows as it is read.
constexpr uint64_t max_reserve = uint64_t{1} << 18;

void read_magic(Cursor& cursor) {
  if (cursor.size() < 4)
    throw input_error("{}: not a GGUF file: {} bytes long", cursor.path(), cursor.size());
  const auto word = cursor.scalar<uint32_t>("magic");
  if (word == magic) return;
  const std::string_view found(reinterpret_cast<const char*>(&word), 4);
  // The first bytes of what is found in a clone made without git-lfs: "version https://git-lfs...".
  const char* hint = found == "vers" ? " (a Git LFS pointer? then fetch the real file)" : "";
  throw input_error("{}: not a GGUF file: it begins with {}, expected 'GGUF'{}", cursor.path(), quote(found),
                    hint);
}

void read_version(Cursor& cursor) {
  const auto version = cursor.scalar<uint32_t>("version");
  if (version == 2 || version == 3) return;
  if (version != 0 && (version & 0xffff) == 0)
    throw cursor.error(
        "the version word is {:#010x}: a big-endian GGUF file, only little-endian ones are read", version);
  throw cursor.error("GGUF version {} is not supported, expected 2 or 3", version);
}

uint64_t read_count(Cursor& cursor, const char* field, uint64_t min_bytes) {
  const auto count = cursor.scalar<uint64_t>(field);
  if (count > cursor.remaining() / min_bytes)
    throw cursor.error("the {} is {}, which cannot fit in the {} bytes that follow: truncated or corrupt",
                       field, count, cursor.remaining());
  return count;
}

bool read_bool(Cursor& cursor) {
  const auto byte = cursor.scalar<uint8_t>("value");
  if (byte > 1) throw cursor.error("a bool is {}, expected 0 or 1", byte);
  return byte == 1;
}

template <typename T, typename Element>
void read_elements(Cursor& cursor, uint64_t count, std::vector<Element>& out) {
  for (uint64_t i = 0; i < count; ++i) out.push_back(static_cast<Element>(cursor.scalar<T>("array element")));
}

Array read_array(Cursor& cursor) {
  Array array;
  array.element = cursor.scalar<uint32_t>("array element type");
  if (array.element == value_array) throw cursor.error("nested arrays are not supported");
  if (!value_type_name(array.element))
    throw cursor.error("unknown array element type {}, expected 0..12", array.element);
  const auto count = cursor.scalar<uint64_t>("array length");
  if (count > cursor.remaining() / value_type_bytes(array.element))
    throw cursor.error(
        "an array of {} {} values cannot fit in the {} bytes that follow: truncated or corrupt", count,
        value_type_name(array.element), cursor.remaining());
  if (count > max_array)
    throw cursor.error("an array has {} elements, at most {} are allowed", count, max_array);
  const size_t reserve = std::min(count, max_reserve);
  if (array.element == value_string) {
    array.strings.reserve(reserve);
    for (uint64_t i = 0; i < count; ++i) array.strings.push_back(cursor.string("string in the array"));
    return array;
  }
  const bool real = array.element == value_f32 || array.element == value_f64;
  real ? array.reals.reserve(reserve) : array.integers.reserve(reserve);
  switch (array.element) {
    case value_u8:
      read_elements<uint8_t>(cursor, count, array.integers);
      break;
    case value_i8:
      read_elements<int8_t>(cursor, count, array.integers);
      break;
    case value_u16:
      read_elements<uint16_t>(cursor, count, array.integers);
      break;
    case value_i16:
      read_elements<int16_t>(cursor, count, array.integers);
      break;
    case value_u32:
      read_elements<uint32_t>(cursor, count, array.integers);
      break;
    case value_i32:
      read_elements<int32_t>(cursor, count, array.integers);
      break;
    case value_u64:
      read_elements<uint64_t>(cursor, count, array.integers);
      break;
    case value_i64:
      read_elements<int64_t>(cursor, count, array.integers);
      break;
    case value_f32:
      read_elements<float>(cursor, count, array.reals);
      break;
    case value_f64:
      read_elements<double>(cursor, count, array.reals);
      break;
    case value_bool:
      for (uint64_t i = 0; i < count; ++i) array.integers.push_back(read_bool(cursor));
      break;
  }
  return array;
}

Value read_value(Cursor& cursor) {
  Value value;
  value.type = cursor.scalar<uint32_t>("value type");
  const char* field = "value";
  switch (value.type) {
    case value_u8:
      value.data = uint64_t{cursor.scalar<uint8_t>(field)};
      break;
    case value_i8:
      value.data = int64_t{cursor.scalar<int8_t>(field)};
      break;
    case value_u16:
      value.data = uint64_t{cursor.scalar<uint16_t>(field)};
      break;
    case value_i16:
      value.data = int64_t{cursor.scalar<int16_t>(field)};
      break;
    case value_u32:
      value.data = uint64_t{cursor.scalar<uint32_t>(field)};
      break;
    case value_i32:
      value.data = int64_t{cursor.scalar<int32_t>(field)};
      break;
    case value_u64:
      value.data = cursor.scalar<uint64_t>(field);
      break;
    case value_i64:
      value.data = cursor.scalar<int64_t>(field);
      break;
    case value_f32:
      value.data = double{cursor.scalar<float>(field)};
      break;
    case value_f64:
      value.data = cursor.scalar<double>(field);
      break;
    case value_bool:
      value.data = read_bool(cursor);
      break;
    case value_string:
      value.data = cursor.string("string");
      break;
    case value_array:
      value.data = read_array(cursor);
      break;
    default:
      throw cursor.error("unknown value type {}, expected 0..12", value.type);
  }
  return value;
}

uint64_t alignment_of(const Metadata& metadata, const std::string& path) {
  const auto entry = metadata.find(key_alignment);
  if (entry == metadata.end()) return default_alignment;
  if (entry->second.type != value_u32)
    throw input_error("{}: key '{}': its type is {}, expected u32", path, key_alignment,
                      value_type_name(entry->second.type));
  const auto alignment = std::get<uint64_t>(entry->second.data);
  if (!is_power_of_two(alignment))
    throw input_error("{}: key '{}': {} is not a power of two", path, key_alignment, alignment);
  return alignment;
}

}  // namespace

Metadata read_metadata(Cursor& cursor, uint64_t count) {
  Metadata metadata;
  for (uint64_t i = 0; i < count; ++i) {
    cursor.set_subject(fmt::format("metadata entry {} of {}", i + 1, count));
    std::string key = cursor.string("key", max_key);
    if (key.empty()) throw cursor.error("the key is empty");
    cursor.set_subject("key " + quote(key));
    const auto [entry, fresh] = metadata.try_emplace(std::move(key));
    if (!fresh) throw cursor.error("the key appears twice");
    entry->second = read_value(cursor);
  }
  cursor.set_subject({});
  return metadata;
}

Header read_header(Cursor& cursor) {
  read_magic(cursor);
  read_version(cursor);
  const uint64_t tensor_count = read_count(cursor, "tensor count", min_tensor_bytes);
  const uint64_t entry_count = read_count(cursor, "metadata count", min_entry_bytes);
  Header header;
  header.metadata = read_metadata(cursor, entry_count);
  read_tensor_table(cursor, tensor_count, alignment_of(header.metadata, cursor.path()), header);
  return header;
}

}  // namespace weir::gguf
