// Writes GGUF v3 files, for tests and tools. Tensors are laid out densely in the order they were added.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gguf/reader.h"

namespace weir::gguf {

class Writer {
 public:
  void set(const std::string& key, uint32_t value);  ///< u32
  void set(const std::string& key, float value);     ///< f32
  void set(const std::string& key, bool value);
  void set(const std::string& key, const std::string& value);
  void set(const std::string& key, const std::vector<std::string>& values);
  void set(const std::string& key, const std::vector<int32_t>& values);
  void set(const std::string& key, const std::vector<float>& values);
  /// Any value, of any type (for conformance tests).
  void set_value(const std::string& key, const Value& value);
  /// dims: ne0 first. `data` must have exactly the type's bytes for dims.
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
  std::vector<std::pair<std::string, Value>> metadata_;
  std::vector<Pending> tensors_;
};

}  // namespace weir::gguf
