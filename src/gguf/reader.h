// GGUF v3 (and the layout-identical v2): header, metadata and tensor table of one model, which may be split
// over files `-00001-of-0000N`. Reads only the header bytes; tensor data is described by (file, offset,
// bytes) and never mapped. Everything is checked before use: magic, endianness, counts, string lengths, value
// types, alignment, dimensions, type ids, offsets against the file size, overlaps, duplicate names, split
// numbers.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "gguf/array.h"
#include "quant/types.h"

namespace weir::gguf {

struct Value {
  uint32_t type = 0;  ///< GGUF value type id
  std::variant<uint64_t, int64_t, double, bool, std::string, Array> data;
  bool operator==(const Value&) const = default;
};

struct File {
  std::string path;
  uint64_t size = 0;
  uint64_t data_offset = 0;  ///< where the tensor blob begins
};

struct Tensor {
  std::string name;
  Type type = Type::F32;
  const TypeInfo* info = nullptr;
  int n_dims = 0;
  std::array<int64_t, 4> dims{1, 1, 1, 1};  ///< ne0 (contiguous) first
  uint32_t file = 0;                        ///< index into Model::files()
  uint64_t offset = 0;                      ///< absolute, in that file
  uint64_t bytes = 0;
  int64_t elements() const { return dims[0] * dims[1] * dims[2] * dims[3]; }
  int64_t rows() const { return dims[1] * dims[2] * dims[3]; }
};

class Model {
 public:
  /// Opens `path` (for a split model: its first part). Throws Error (input) with file, offset and field.
  static Model open(const std::string& path);
  /// The same for the bytes of a single file, which `name` names in errors. Keeps no reference to them.
  static Model parse(std::span<const uint8_t> bytes, const std::string& name);

  const std::vector<File>& files() const { return files_; }
  const std::vector<Tensor>& tensors() const { return tensors_; }
  const std::map<std::string, Value, std::less<>>& metadata() const { return metadata_; }
  uint64_t total_bytes() const;  ///< sum of file sizes
  const std::string& path() const { return files_.front().path; }

  /// Null where there is none.
  const Tensor* find(std::string_view name) const;
  /// Throws Error naming the file and the tensor where there is none.
  const Tensor& tensor(std::string_view name) const;

  // Metadata getters. The optional ones throw only where the key exists with an unusable type or value.
  bool has(std::string_view key) const;
  std::optional<int64_t> integer(std::string_view key) const;  ///< any integer width (or bool)
  /// The same, for a number that is to be narrowed: throws Error with file, key, value and range where it is
  /// not in low..high.
  std::optional<int64_t> integer(std::string_view key, int64_t low, int64_t high) const;
  std::optional<double> real(std::string_view key) const;  ///< f32, f64 or integer
  std::optional<bool> boolean(std::string_view key) const;
  std::optional<std::string> string(std::string_view key) const;
  const Array* array(std::string_view key) const;       ///< null where absent; throws where not an array
  int64_t require_integer(std::string_view key) const;  ///< throws Error naming file and key where absent
  int64_t require_integer(std::string_view key, int64_t low, int64_t high) const;
  double require_real(std::string_view key) const;
  std::string require_string(std::string_view key) const;
  /// A scalar, or the per-layer array's element `layer` (e.g. attention.head_count_kv).
  std::optional<int64_t> integer_for_layer(std::string_view key, int layer) const;

  /// FNV-1a over names, types and dimensions of the tensors, by name: identifies the model in traces, whole
  /// or split.
  uint64_t fingerprint() const;

 private:
  std::vector<File> files_;
  std::vector<Tensor> tensors_;
  std::map<std::string, size_t, std::less<>> index_;
  std::map<std::string, Value, std::less<>> metadata_;
  friend struct ModelBuilder;
};

}  // namespace weir::gguf
