// A metadata array as the file has it: numbers in their own width, strings end to end. Its memory is that of
// the file's bytes, since a header is read before there is any budget. Knows no keys.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

namespace weir::gguf {

class Array;

/// The elements of an array as values of T, decoded at each access. Valid as long as the array.
template <typename T>
class ArrayView {
 public:
  class Iterator {
   public:
    using iterator_category = std::input_iterator_tag;
    using value_type = T;
    using difference_type = std::ptrdiff_t;
    using pointer = const T*;
    using reference = T;
    Iterator(const Array* array, size_t i) : array_(array), i_(i) {}
    T operator*() const;
    Iterator& operator++() { return ++i_, *this; }
    Iterator operator++(int) { return {array_, i_++}; }
    bool operator==(const Iterator&) const = default;

   private:
    const Array* array_;
    size_t i_;
  };

  ArrayView(const Array* array, size_t size) : array_(array), size_(size) {}
  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  T operator[](size_t i) const { return *Iterator(array_, i); }
  Iterator begin() const { return {array_, 0}; }
  Iterator end() const { return {array_, size_}; }
  std::vector<T> to_vector() const { return {begin(), end()}; }

 private:
  const Array* array_;
  size_t size_;
};

class Array {
 public:
  uint32_t element = 0;  ///< GGUF value type id of the elements

  Array() = default;
  /// From values, of which two of the three lists are empty. Throws Error (input) where they are not of the
  /// type, or outside its range; 64-bit types take any bits.
  Array(uint32_t element, const std::vector<int64_t>& integers, const std::vector<double>& reals,
        const std::vector<std::string>& strings);
  /// `bytes` as in a file, whole elements; the type is a number's or bool's.
  static Array of_numbers(uint32_t element, std::vector<uint8_t> bytes);
  /// `text`: all strings; `ends`: where in it each ends.
  static Array of_strings(std::string text, std::vector<uint32_t> ends);

  size_t size() const;
  bool has_strings() const;
  bool has_reals() const;  ///< f32, f64
  // Each is empty where the elements are of another kind.
  ArrayView<int64_t> integers() const;  ///< u8..i64 and bool; u64 above 2^63 - 1 wraps
  ArrayView<double> reals() const;
  ArrayView<std::string_view> strings() const;
  /// Bytes of memory that the elements take.
  size_t memory_bytes() const;
  bool operator==(const Array&) const = default;

  // Element i < size() of an array of that kind; the views are the usual way.
  int64_t integer(size_t i) const;
  double real(size_t i) const;
  std::string_view string(size_t i) const;

 private:
  std::vector<uint8_t> bytes_;  ///< numbers, little-endian
  std::string text_;
  std::vector<uint32_t> ends_;
};

template <>
inline int64_t ArrayView<int64_t>::Iterator::operator*() const {
  return array_->integer(i_);
}
template <>
inline double ArrayView<double>::Iterator::operator*() const {
  return array_->real(i_);
}
template <>
inline std::string_view ArrayView<std::string_view>::Iterator::operator*() const {
  return array_->string(i_);
}

}  // namespace weir::gguf
