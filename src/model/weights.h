// The resident tensors: everything that is not a routed expert, read once into device memory in the file's
// own block formats. Knows no family: a family names what it wants.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "device/device.h"
#include "experts/device_loader.h"
#include "gguf/reader.h"

namespace weir {

class Weights {
 public:
  /// Bytes load() will take for these tensors, padding included: for the plan.
  static uint64_t bytes(const std::vector<const gguf::Tensor*>& tensors);

  /// Reads the tensors (page cache dropped behind) with progress on a terminal. Throws Error with file and
  /// offset.
  /// `loader`: what brings them to a device whose memory the host cannot write; null: they are read into it.
  void load(Device& device, const gguf::Model& model, const std::vector<const gguf::Tensor*>& tensors,
            DeviceLoader* loader = nullptr);

  /// A two-dimensional weight {in, out}. The tensor must have been loaded.
  Matrix matrix(std::string_view name) const;
  bool has(std::string_view name) const { return entries_.find(name) != entries_.end(); }
  /// The first tensor that holds a NaN or an infinity, or an empty string: reads everything, for a diagnosis.
  std::string first_not_finite(Device& device) const;
  /// A one-dimensional F32 tensor.
  const float* vector(std::string_view name) const;

 private:
  struct Entry {
    const gguf::Tensor* tensor;
    uint64_t offset;  ///< in buffer_
  };
  const Entry& entry(std::string_view name) const;
  void read_into(Device& device, const gguf::Model& model, const std::vector<LoadRange>& ranges);
  Buffer buffer_;
  std::map<std::string, Entry, std::less<>> entries_;
};

}  // namespace weir
