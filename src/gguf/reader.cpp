// Looking things up in an opened model: tensors by name, metadata by key with its type checked.
#include "gguf/reader.h"

#include <limits>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "gguf/keys.h"

namespace weir::gguf {
namespace {

Error missing(const Model& model, std::string_view key, const char* expected) {
  return input_error("{}: key {} is missing, expected {}", model.path(), quote(key), expected);
}

Error wrong_type(const Model& model, std::string_view key, const Value& value, const char* expected) {
  std::string found = value_type_name(value.type);
  if (const auto* array = std::get_if<Array>(&value.data))
    found = fmt::format("an array of {} {}", array->size(), value_type_name(array->element));
  return input_error("{}: key {} is {}, expected {}", model.path(), quote(key), found, expected);
}

const Value* find_value(const Model& model, std::string_view key) {
  const auto entry = model.metadata().find(key);
  return entry == model.metadata().end() ? nullptr : &entry->second;
}

int64_t to_integer(const Model& model, std::string_view key, const Value& value, const char* expected) {
  if (const auto* number = std::get_if<int64_t>(&value.data)) return *number;
  if (const auto* flag = std::get_if<bool>(&value.data)) return *flag;
  const auto* number = std::get_if<uint64_t>(&value.data);
  if (!number) throw wrong_type(model, key, value, expected);
  if (*number > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()))
    throw input_error("{}: key {} is {}, expected at most 2^63 - 1", model.path(), quote(key), *number);
  return static_cast<int64_t>(*number);
}

}  // namespace

uint64_t Model::total_bytes() const {
  uint64_t total = 0;
  for (const File& file : files_) total += file.size;
  return total;
}

const Tensor* Model::find(std::string_view name) const {
  const auto entry = index_.find(name);
  return entry == index_.end() ? nullptr : &tensors_[entry->second];
}

const Tensor& Model::tensor(std::string_view name) const {
  const Tensor* found = find(name);
  if (!found) throw input_error("{}: has no tensor {}", path(), quote(name));
  return *found;
}

bool Model::has(std::string_view key) const { return find_value(*this, key) != nullptr; }

std::optional<int64_t> Model::integer(std::string_view key) const {
  const Value* value = find_value(*this, key);
  if (!value) return std::nullopt;
  return to_integer(*this, key, *value, "an integer");
}

std::optional<int64_t> Model::integer(std::string_view key, int64_t low, int64_t high) const {
  const auto value = integer(key);
  if (value && (*value < low || *value > high))
    throw input_error("{}: {} is {}: expected {} to {}", path(), key, *value, low, high);
  return value;
}

std::optional<double> Model::real(std::string_view key) const {
  const Value* value = find_value(*this, key);
  if (!value) return std::nullopt;
  if (const auto* number = std::get_if<double>(&value->data)) return *number;
  if (const auto* number = std::get_if<uint64_t>(&value->data)) return static_cast<double>(*number);
  if (const auto* number = std::get_if<int64_t>(&value->data)) return static_cast<double>(*number);
  throw wrong_type(*this, key, *value, "a number");
}

std::optional<bool> Model::boolean(std::string_view key) const {
  const Value* value = find_value(*this, key);
  if (!value) return std::nullopt;
  const int64_t number = to_integer(*this, key, *value, "a bool");
  if (number != 0 && number != 1)
    throw input_error("{}: key {} is {}, expected a bool or 0 or 1", path(), quote(key), number);
  return number == 1;
}

std::optional<std::string> Model::string(std::string_view key) const {
  const Value* value = find_value(*this, key);
  if (!value) return std::nullopt;
  if (const auto* text = std::get_if<std::string>(&value->data)) return *text;
  throw wrong_type(*this, key, *value, "a string");
}

const Array* Model::array(std::string_view key) const {
  const Value* value = find_value(*this, key);
  if (!value) return nullptr;
  if (const auto* found = std::get_if<Array>(&value->data)) return found;
  throw wrong_type(*this, key, *value, "an array");
}

int64_t Model::require_integer(std::string_view key) const {
  const auto value = integer(key);
  if (!value) throw missing(*this, key, "an integer");
  return *value;
}

int64_t Model::require_integer(std::string_view key, int64_t low, int64_t high) const {
  const auto value = integer(key, low, high);
  if (!value) throw missing(*this, key, "an integer");
  return *value;
}

double Model::require_real(std::string_view key) const {
  const auto value = real(key);
  if (!value) throw missing(*this, key, "a number");
  return *value;
}

std::string Model::require_string(std::string_view key) const {
  auto value = string(key);
  if (!value) throw missing(*this, key, "a string");
  return *std::move(value);
}

std::optional<int64_t> Model::integer_for_layer(std::string_view key, int layer) const {
  constexpr const char* expected = "an integer or an array of one for each layer";
  const Value* value = find_value(*this, key);
  if (!value) return std::nullopt;
  const auto* per_layer = std::get_if<Array>(&value->data);
  if (!per_layer) return to_integer(*this, key, *value, expected);
  if (per_layer->has_reals() || per_layer->has_strings()) throw wrong_type(*this, key, *value, expected);
  if (layer < 0 || static_cast<size_t>(layer) >= per_layer->size())
    throw input_error("{}: key {} has {} elements, none for layer {}", path(), quote(key), per_layer->size(),
                      layer);
  const int64_t element = per_layer->integer(static_cast<size_t>(layer));
  if (per_layer->element == value_u64 && element < 0)
    throw input_error("{}: key {} is {} for layer {}, expected at most 2^63 - 1", path(), quote(key),
                      static_cast<uint64_t>(element), layer);
  return element;
}

uint64_t Model::fingerprint() const {
  Hash64 hash;
  for (const auto& [name, at] : index_) {  // by name: how the file is laid out and split is not the model
    // The length keeps ("ab", "c") and ("a", "bc") apart.
    hash.add_value(static_cast<uint64_t>(name.size())).add(name.data(), name.size());
    hash.add_value(static_cast<uint32_t>(tensors_[at].type));
    hash.add(tensors_[at].dims.data(), sizeof tensors_[at].dims);
  }
  return hash.value();
}

}  // namespace weir::gguf
