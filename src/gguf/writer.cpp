// Laying out a GGUF v3 file: header, padding, tensors each padded to the alignment.
#include "gguf/writer.h"

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "base/file.h"
#include "gguf/keys.h"
#include "gguf/split.h"

namespace weir::gguf {
namespace {

using Bytes = std::vector<uint8_t>;

template <typename T>
void append(Bytes& out, T value) {
  const auto* p = reinterpret_cast<const uint8_t*>(&value);
  out.insert(out.end(), p, p + sizeof value);
}

void append_string(Bytes& out, std::string_view text) {
  append(out, static_cast<uint64_t>(text.size()));
  out.insert(out.end(), text.begin(), text.end());
}

/// A value whose range was checked, as the type with this id.
template <typename Number>
void append_number(Bytes& out, uint32_t type, Number value) {
  switch (type) {
    case value_u8:
      return append(out, static_cast<uint8_t>(value));
    case value_i8:
      return append(out, static_cast<int8_t>(value));
    case value_u16:
      return append(out, static_cast<uint16_t>(value));
    case value_i16:
      return append(out, static_cast<int16_t>(value));
    case value_u32:
      return append(out, static_cast<uint32_t>(value));
    case value_i32:
      return append(out, static_cast<int32_t>(value));
    case value_u64:
      return append(out, static_cast<uint64_t>(value));
    case value_i64:
      return append(out, static_cast<int64_t>(value));
    case value_f32:
      return append(out, static_cast<float>(value));
    case value_f64:
      return append(out, static_cast<double>(value));
    case value_bool:
      return append(out, static_cast<uint8_t>(value));
  }
  WEIR_CHECK(false, "value type {}", type);
}

Error bad_value(const std::string& key, uint32_t type) {
  const char* name = value_type_name(type);
  return input_error("key {}: its data is not a valid {}", quote(key),
                     name ? name : fmt::format("type {}", type));
}

void append_array(Bytes& out, const Array& array) {
  append(out, array.element);
  append(out, static_cast<uint64_t>(array.size()));
  for (const std::string_view text : array.strings()) append_string(out, text);
  for (const double number : array.reals()) append_number(out, array.element, number);
  for (const int64_t number : array.integers()) append_number(out, array.element, number);
}

void append_entry(Bytes& out, const std::string& key, const Value& value) {
  append_string(out, key);
  append(out, value.type);
  if (const auto* text = std::get_if<std::string>(&value.data); text && value.type == value_string)
    return append_string(out, *text);
  if (const auto* array = std::get_if<Array>(&value.data); array && value.type == value_array)
    return append_array(out, *array);
  if (const auto* number = std::get_if<double>(&value.data); number && is_real(value.type))
    return append_number(out, value.type, *number);
  if (const auto* flag = std::get_if<bool>(&value.data); flag && value.type == value_bool)
    return append_number(out, value.type, *flag);
  if (const auto* number = std::get_if<int64_t>(&value.data);
      number && is_signed(value.type) && integer_fits(value.type, *number))
    return append_number(out, value.type, *number);
  const auto* number = std::get_if<uint64_t>(&value.data);
  const bool is_unsigned = value.type == value_u8 || value.type == value_u16 || value.type == value_u32;
  // A value above 2^63 - 1 is negative as int64 and so fits none of the narrow types.
  if (number &&
      (value.type == value_u64 || (is_unsigned && integer_fits(value.type, static_cast<int64_t>(*number)))))
    return append_number(out, value.type, *number);
  throw bad_value(key, value.type);
}

/// The bytes that `dims` values of a type take; throws where a reader would refuse them.
uint64_t tensor_bytes(const std::string& name, const TypeInfo& info, const std::vector<int64_t>& dims) {
  if (dims.empty() || dims.size() > max_dims)
    throw input_error("tensor {}: {} dimensions, expected 1 to {}", quote(name), dims.size(), max_dims);
  int64_t elements = 1;
  for (const int64_t dim : dims)
    if (dim < 1 || __builtin_mul_overflow(elements, dim, &elements))
      throw input_error("tensor {}: dimension {} is not possible", quote(name), dim);
  if (dims[0] % info.block_elements != 0)
    throw input_error("tensor {}: dimension 0 is {}, not a multiple of {}'s block of {}", quote(name),
                      dims[0], info.name, info.block_elements);
  return info.bytes(static_cast<uint64_t>(elements));
}

Value unsigned_value(uint32_t type, uint64_t value) { return {type, value}; }

}  // namespace

void Writer::set_value(const std::string& key, const Value& value) {
  if (key.empty() || key.size() > max_key)
    throw input_error("key {}: {} bytes long, expected 1 to {}", quote(key), key.size(), max_key);
  const auto same = [&](const auto& entry) { return entry.first == key; };
  const auto entry = std::find_if(metadata_.begin(), metadata_.end(), same);
  if (entry != metadata_.end())
    entry->second = value;
  else
    metadata_.emplace_back(key, value);
}

void Writer::set(const std::string& key, uint32_t value) { set_value(key, unsigned_value(value_u32, value)); }
void Writer::set(const std::string& key, float value) { set_value(key, {value_f32, double{value}}); }
void Writer::set(const std::string& key, bool value) { set_value(key, {value_bool, value}); }
void Writer::set(const std::string& key, const std::string& value) { set_value(key, {value_string, value}); }
void Writer::set(const std::string& key, const char* value) { set(key, std::string(value)); }

void Writer::set(const std::string& key, const std::vector<std::string>& values) {
  set_value(key, {value_array, Array{value_string, {}, {}, values}});
}
void Writer::set(const std::string& key, const std::vector<int32_t>& values) {
  set_value(key, {value_array, Array{value_i32, {values.begin(), values.end()}, {}, {}}});
}
void Writer::set(const std::string& key, const std::vector<float>& values) {
  set_value(key, {value_array, Array{value_f32, {}, {values.begin(), values.end()}, {}}});
}

void Writer::add_tensor(const std::string& name, Type type, const std::vector<int64_t>& dims,
                        std::vector<uint8_t> data) {
  if (name.empty() || name.size() > max_tensor_name)
    throw input_error("tensor {}: its name is {} bytes long, expected 1 to {}", quote(name), name.size(),
                      max_tensor_name);
  for (const Pending& other : tensors_)
    if (other.name == name) throw input_error("tensor {}: the name is already taken", quote(name));
  const uint64_t bytes = tensor_bytes(name, type_info(type), dims);
  if (data.size() != bytes)
    throw input_error("tensor {}: {} bytes of data, expected {}", quote(name), data.size(), bytes);
  tensors_.push_back({name, type, dims, std::move(data)});
}

uint64_t Writer::alignment() const {
  for (const auto& [key, value] : metadata_) {
    if (key != key_alignment) continue;
    const auto* number = std::get_if<uint64_t>(&value.data);
    if (value.type != value_u32 || !number || !is_power_of_two(*number))
      throw input_error("key '{}': expected a u32 that is a power of two", key_alignment);
    return *number;
  }
  return default_alignment;
}

void Writer::emit(const Entries& metadata, std::span<const Pending> tensors, const Sink& sink) const {
  const uint64_t align = alignment();
  Bytes header;
  append(header, magic);
  append(header, uint32_t{3});
  append(header, static_cast<uint64_t>(tensors.size()));
  append(header, static_cast<uint64_t>(metadata.size()));
  for (const auto& [key, value] : metadata) append_entry(header, key, value);
  uint64_t offset = 0;
  for (const Pending& tensor : tensors) {
    append_string(header, tensor.name);
    append(header, static_cast<uint32_t>(tensor.dims.size()));
    for (const int64_t dim : tensor.dims) append(header, static_cast<uint64_t>(dim));
    append(header, static_cast<uint32_t>(tensor.type));
    append(header, offset);
    offset += align_up(tensor.data.size(), align);
  }
  if (!tensors.empty()) header.resize(align_up(header.size(), align));
  sink(header.data(), header.size());
  const Bytes zeros(align);
  for (const Pending& tensor : tensors) {
    sink(tensor.data.data(), tensor.data.size());
    // The last one is padded too: some readers read the tensor data as one blob of padded sizes.
    sink(zeros.data(), align_up(tensor.data.size(), align) - tensor.data.size());
  }
}

void Writer::emit_to_file(const Entries& metadata, std::span<const Pending> tensors,
                          const std::string& path) const {
  AtomicFile file(path);
  emit(metadata, tensors, [&](const void* data, size_t bytes) { file.write(data, bytes); });
  file.commit();
}

void Writer::write(const std::string& path) const { emit_to_file(metadata_, tensors_, path); }

std::vector<std::string> Writer::write_split(const std::string& prefix, int parts) const {
  if (parts < 1 || parts > max_parts)
    throw input_error("{}: {} parts, expected 1 to {}", prefix, parts, max_parts);
  std::vector<std::string> paths;
  for (int no = 0; no < parts; ++no) {
    // Part 0 has the metadata; every part has its own alignment, because each is a complete file.
    Entries metadata;
    for (const auto& entry : metadata_) {
      const bool is_split =
          entry.first == key_split_no || entry.first == key_split_count || entry.first == key_split_tensors;
      if (!is_split && (no == 0 || entry.first == key_alignment)) metadata.push_back(entry);
    }
    metadata.emplace_back(key_split_no, unsigned_value(value_u16, static_cast<uint64_t>(no)));
    metadata.emplace_back(key_split_count, unsigned_value(value_u16, static_cast<uint64_t>(parts)));
    metadata.emplace_back(key_split_tensors, Value{value_i32, static_cast<int64_t>(tensors_.size())});
    const size_t begin = tensors_.size() * static_cast<size_t>(no) / static_cast<size_t>(parts);
    const size_t end = tensors_.size() * (static_cast<size_t>(no) + 1) / static_cast<size_t>(parts);
    paths.push_back(split_path(prefix, no, parts));
    emit_to_file(metadata, std::span(tensors_).subspan(begin, end - begin), paths.back());
  }
  return paths;
}

std::vector<uint8_t> Writer::bytes() const {
  Bytes out;
  emit(metadata_, tensors_, [&](const void* data, size_t bytes) {
    const auto* p = static_cast<const uint8_t*>(data);
    out.insert(out.end(), p, p + bytes);
  });
  return out;
}

}  // namespace weir::gguf
