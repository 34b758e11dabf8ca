// Writes GGUF v3 files, for tests and tools. Tensors are laid out densely in the order they were added.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "gguf/reader.h"

namespace weir::gguf {

class Writer {
 public:
  void set(const std::string& key, uint32_t value);  ///< u32
  void set(const std::string& key, float value);     ///< f32
  void set(const std::string& key, bool value);
  void set(const std::string& key, const std::string& value);
  void set(const std::string& key, const char* value);  ///< keeps a literal from becoming a bool
  void set(const std::string& key, const std::vector<std::string>& values);
  void set(const std::string& key, const std::vector<int32_t>& values);
  void set(const std::string& key, const std::vector<float>& values);
  /// Any value, of any type (for conformance tests). A key that is set again takes the new value.
  void set_value(const std::string& key, const Value& value);
  /// dims: ne0 first. `data` must have exactly the type's bytes for dims.
  /// Throws Error (input) for what a reader would refuse.
  void add_tensor(const std::string& name, Type type, const std::vector<int64_t>& dims,
                  std::vector<uint8_t> data);
  /// Writes to `path` (a temporary beside it, then renamed). Throws Error (failure) with the path.
  void write(const std::string& path) const;
  /// Writes `<prefix>-%05d-of-%05d.gguf`, tensors spread evenly over `parts`; returns the paths.
  std::vector<std::string> write_split(const std::string& prefix, int parts) const;
  /// The bytes of the single-file form.
  std::vector<uint8_t> bytes() const;

 private:
  struct Pending {
    std::string name;
    Type type;
    std::vector<int64_t> dims;
    std::vector<uint8_t> data;
  };
  using Entries = std::vector<std::pair<std::string, Value>>;
  using Sink = std::function<void(const void* data, size_t bytes)>;
  /// Sends one whole file to `sink`, piece by piece.
  void emit(const Entries& metadata, std::span<const Pending> tensors, const Sink& sink) const;
  void emit_to_file(const Entries& metadata, std::span<const Pending> tensors, const std::string& path) const;
  uint64_t alignment() const;

  Entries metadata_;
  std::vector<Pending> tensors_;
};

}  // namespace weir::gguf
