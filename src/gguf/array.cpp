// Packing and unpacking elements of every width.
#include "gguf/array.h"

#include <cstring>
#include <utility>

#include "base/error.h"
#include "gguf/keys.h"

namespace weir::gguf {
namespace {

template <typename T>
T load(const std::vector<uint8_t>& bytes, size_t i) {
  T value;
  std::memcpy(&value, bytes.data() + i * sizeof value, sizeof value);
  return value;
}

template <typename T>
void append(std::vector<uint8_t>& bytes, const T& value) {
  const size_t at = bytes.size();
  bytes.resize(at + sizeof value);
  std::memcpy(bytes.data() + at, &value, sizeof value);
}

Error not_of_type(uint32_t element) {
  const char* name = value_type_name(element);
  return input_error("a value of the array is not a valid {}", name ? name : fmt::format("type {}", element));
}

}  // namespace

Array::Array(uint32_t type, const std::vector<int64_t>& integers, const std::vector<double>& reals,
             const std::vector<std::string>& strings)
    : element(type) {
  const bool number = value_type_name(type) && type != value_array && !has_strings();
  if ((!strings.empty() && !has_strings()) || (!reals.empty() && !has_reals()) ||
      (!integers.empty() && (!number || has_reals())) || !value_type_name(type) || type == value_array)
    throw not_of_type(type);
  const size_t width = value_type_bytes(type);
  for (const int64_t value : integers) {
    if (!integer_fits(type, value)) throw not_of_type(type);
    const auto* first = reinterpret_cast<const uint8_t*>(&value);  // little-endian: the low bytes
    bytes_.insert(bytes_.end(), first, first + width);
  }
  for (const double value : reals)
    type == value_f32 ? append(bytes_, static_cast<float>(value)) : append(bytes_, value);
  for (const std::string& value : strings) {
    text_ += value;
    ends_.push_back(static_cast<uint32_t>(text_.size()));
  }
}

Array Array::of_numbers(uint32_t element, std::vector<uint8_t> bytes) {
  Array array;
  array.element = element;
  array.bytes_ = std::move(bytes);
  return array;
}

Array Array::of_strings(std::string text, std::vector<uint32_t> ends) {
  Array array;
  array.element = value_string;
  array.text_ = std::move(text), array.ends_ = std::move(ends);
  return array;
}

bool Array::has_strings() const { return element == value_string; }
bool Array::has_reals() const { return is_real(element); }

size_t Array::size() const {
  if (has_strings()) return ends_.size();
  const size_t width = value_type_bytes(element);
  return width == 0 ? 0 : bytes_.size() / width;
}

ArrayView<int64_t> Array::integers() const { return {this, has_strings() || has_reals() ? 0 : size()}; }
ArrayView<double> Array::reals() const { return {this, has_reals() ? size() : 0}; }
ArrayView<std::string_view> Array::strings() const { return {this, has_strings() ? size() : 0}; }

size_t Array::memory_bytes() const {
  return bytes_.capacity() + text_.capacity() + ends_.capacity() * sizeof ends_[0];
}

int64_t Array::integer(size_t i) const {
  switch (element) {
    case value_u8:
    case value_bool:
      return load<uint8_t>(bytes_, i);
    case value_i8:
      return load<int8_t>(bytes_, i);
    case value_u16:
      return load<uint16_t>(bytes_, i);
    case value_i16:
      return load<int16_t>(bytes_, i);
    case value_u32:
      return load<uint32_t>(bytes_, i);
    case value_i32:
      return load<int32_t>(bytes_, i);
    case value_u64:
    case value_i64:
      return load<int64_t>(bytes_, i);
  }
  WEIR_CHECK(false, "element type {} is no integer", element);
  return 0;
}

double Array::real(size_t i) const {
  WEIR_CHECK(has_reals(), "element type {} is no real number", element);
  return element == value_f32 ? load<float>(bytes_, i) : load<double>(bytes_, i);
}

std::string_view Array::string(size_t i) const {
  const uint32_t begin = i == 0 ? 0 : ends_[i - 1];
  return std::string_view(text_).substr(begin, ends_[i] - begin);
}

}  // namespace weir::gguf
