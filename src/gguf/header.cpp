// Magic, version, counts and metadata.
#include "gguf/header.h"

#include <utility>
#include <vector>

#include "gguf/keys.h"

namespace weir::gguf {
namespace {

// The smallest a metadata entry can be (length, one byte of key, type, one byte of value) and a tensor's
// (length, one byte of name, one dimension and its count, type, offset): bounds on counts before they are
// used.
constexpr uint64_t min_entry_bytes = 8 + 1 + 4 + 1;
constexpr uint64_t min_tensor_bytes = 8 + 1 + 4 + 8 + 4 + 8;

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

uint64_t read_count(Cursor& cursor, const char* field, uint64_t min_bytes, uint64_t most) {
  const auto count = cursor.scalar<uint64_t>(field);
  if (count > cursor.remaining() / min_bytes)
    throw cursor.error("the {} is {}, which cannot fit in the {} bytes that follow: truncated or corrupt",
                       field, count, cursor.remaining());
  if (count > most) throw cursor.error("the {} is {}, at most {} are allowed", field, count, most);
  return count;
}

bool read_bool(Cursor& cursor) {
  const auto byte = cursor.scalar<uint8_t>("value");
  if (byte > 1) throw cursor.error("a bool is {}, expected 0 or 1", byte);
  return byte == 1;
}

/// Twice over the same bytes: the first pass finds the size, so that nothing grows by copying.
Array read_strings(Cursor& cursor, uint64_t count) {
  constexpr const char* field = "string in the array";
  const uint64_t begin = cursor.position();
  uint64_t bytes = 0;
  for (uint64_t i = 0; i < count; ++i) bytes += cursor.skip_string(field);
  cursor.seek(begin);
  std::string text(bytes, '\0');
  std::vector<uint32_t> ends(count);  // enough: max_header is below 2^32
  uint64_t at = 0;
  for (uint32_t& end : ends) {
    const auto length = cursor.scalar<uint64_t>(field);
    cursor.copy(text.data() + at, length, field);
    end = static_cast<uint32_t>(at += length);
  }
  return Array::of_strings(std::move(text), std::move(ends));
}

Array read_array(Cursor& cursor) {
  const auto element = cursor.scalar<uint32_t>("array element type");
  if (element == value_array) throw cursor.error("nested arrays are not supported");
  if (!value_type_name(element)) throw cursor.error("unknown array element type {}, expected 0..12", element);
  const auto count = cursor.scalar<uint64_t>("array length");
  const uint64_t width = value_type_bytes(element);
  if (count <= (cursor.size() - cursor.position()) / width && count > cursor.remaining() / width)
    throw cursor.error("an array of {} {} values takes the header past {} bytes: not a plausible header",
                       count, value_type_name(element), max_header);
  if (count > cursor.remaining() / width)
    throw cursor.error(
        "an array of {} {} values cannot fit in the {} bytes that follow: truncated or corrupt", count,
        value_type_name(element), cursor.remaining());
  if (count > max_array)
    throw cursor.error("an array has {} elements, at most {} are allowed", count, max_array);
  if (element == value_string) return read_strings(cursor, count);
  std::vector<uint8_t> bytes(count * width);
  cursor.copy(bytes.data(), bytes.size(), "array element");
  if (element == value_bool)
    for (const uint8_t byte : bytes)
      if (byte > 1) throw cursor.error("a bool is {}, expected 0 or 1", byte);
  return Array::of_numbers(element, std::move(bytes));
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
  const uint64_t tensor_count = read_count(cursor, "tensor count", min_tensor_bytes, max_tensors);
  const uint64_t entry_count = read_count(cursor, "metadata count", min_entry_bytes, max_entries);
  Header header;
  header.metadata = read_metadata(cursor, entry_count);
  read_tensor_table(cursor, tensor_count, alignment_of(header.metadata, cursor.path()), header);
  return header;
}

}  // namespace weir::gguf
