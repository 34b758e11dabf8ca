#include "model/architecture_keys.h"

#include "base/error.h"
#include "model/config.h"

namespace weir {

ArchitectureKeys::ArchitectureKeys(const gguf::Model& model)
    : model_(model),
      architecture_(model.require_string("general.architecture")),
      prefix_(architecture_ + ".") {}

std::string ArchitectureKeys::note(std::string_view name) {
  read_.emplace(name);
  return full(name);
}

int64_t ArchitectureKeys::equal_in_all_layers(const std::string& key, const gguf::Array& array) const {
  const int64_t layers = model_.require_integer(full("block_count"), 1, most_layers);
  if (array.size() != static_cast<size_t>(layers))
    throw input_error("{}: {} has {} elements: expected a number, or one for each of the {} layers", path(),
                      key, array.size(), layers);
  const int64_t first = *model_.integer_for_layer(key, 0);
  for (int layer = 1; layer < layers; ++layer)
    if (const int64_t value = *model_.integer_for_layer(key, layer); value != first)
      throw input_error("{}: {} is {} in layer 0 but {} in layer {}: layers that differ are not supported",
                        path(), key, first, value, layer);
  return first;
}

std::optional<int64_t> ArchitectureKeys::integer(std::string_view name, int64_t low, int64_t high) {
  const std::string key = note(name);
  const auto entry = model_.metadata().find(key);
  if (entry == model_.metadata().end()) return std::nullopt;
  const auto* array = std::get_if<gguf::Array>(&entry->second.data);
  if (!array || name == "block_count") return model_.integer(key, low, high);
  const int64_t value = equal_in_all_layers(key, *array);
  if (value < low || value > high)
    throw input_error("{}: {} is {}: expected {} to {}", path(), key, value, low, high);
  return value;
}

int64_t ArchitectureKeys::require_integer(std::string_view name, int64_t low, int64_t high) {
  const auto value = integer(name, low, high);
  // Where it is missing, the model's own getter says so.
  return value ? *value : model_.require_integer(full(name), low, high);
}

}  // namespace weir
