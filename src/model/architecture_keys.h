// An architecture's own keys ("qwen3moe.block_count") as a configuration reads them: named without the
// prefix, integers within a range, an array of one equal value per layer as that value. Remembers which were
// asked for, so that those nobody asked for can be judged (model/known_keys.h). Knows no key but block_count.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "gguf/reader.h"

namespace weir {

class ArchitectureKeys {
 public:
  /// Throws Error where general.architecture is missing. `model` must outlive it.
  explicit ArchitectureKeys(const gguf::Model& model);

  const gguf::Model& model() const { return model_; }
  const std::string& path() const { return model_.path(); }  ///< for messages
  const std::string& architecture() const { return architecture_; }
  /// With the prefix, as the file has it.
  std::string full(std::string_view name) const { return prefix_ + std::string(name); }
  bool has(std::string_view name) const { return model_.has(full(name)); }

  // As gguf::Model's getters. The integers throw Error naming file, key, value and range outside low..high,
  // and for an array whose values differ the key, a layer that does, and both values.
  std::optional<int64_t> integer(std::string_view name, int64_t low, int64_t high);
  int64_t require_integer(std::string_view name, int64_t low, int64_t high);
  std::optional<double> real(std::string_view name) { return model_.real(note(name)); }
  double require_real(std::string_view name) { return model_.require_real(note(name)); }
  std::optional<std::string> string(std::string_view name) { return model_.string(note(name)); }
  std::optional<bool> boolean(std::string_view name) { return model_.boolean(note(name)); }

  /// True where a getter was asked for `name`, whether the file has it or not.
  bool was_read(std::string_view name) const { return read_.find(name) != read_.end(); }

 private:
  /// Remembers `name`; returns it with the prefix.
  std::string note(std::string_view name);
  int64_t equal_in_all_layers(const std::string& key, const gguf::Array& array) const;

  const gguf::Model& model_;
  std::string architecture_, prefix_;
  std::set<std::string, std::less<>> read_;
};

}  // namespace weir
