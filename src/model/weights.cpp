#include "model/weights.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"

namespace weir {

namespace {

constexpr uint64_t pad = 64;
constexpr uint64_t piece =
    4 << 20;  // bytes a read: large enough for the disk, small enough for the progress line

uint64_t padded(uint64_t bytes) { return (bytes + pad - 1) / pad * pad; }

}  // namespace

uint64_t Weights::bytes(const std::vector<const gguf::Tensor*>& tensors) {
  uint64_t total = 0;
  for (const auto* tensor : tensors) total += padded(tensor->bytes);
  return total;
}

void Weights::load(Device& device, const gguf::Model& model,
                   const std::vector<const gguf::Tensor*>& tensors) {
  const uint64_t total = bytes(tensors);
  buffer_ = device.allocate(total, "resident weights");
  std::vector<InputFile> files;
  for (const auto& file : model.files()) files.push_back(InputFile::open(file.path));
  Progress progress("loading", total, "bytes");
  std::vector<uint8_t> staging(std::min(piece, total));
  uint64_t at = 0;
  for (const auto* tensor : tensors) {
    entries_.emplace(tensor->name, Entry{tensor, at});
    for (uint64_t done = 0; done < tensor->bytes;) {
      const uint64_t n = std::min(piece, tensor->bytes - done);
      files[tensor->file].pread_exact(staging.data(), n, tensor->offset + done);
      device.upload(buffer_.as<uint8_t>() + at + done, staging.data(), n);
      // Page cache counts against the budget: drop it behind the read.
      posix_fadvise(files[tensor->file].fd(), static_cast<off_t>(tensor->offset + done),
                    static_cast<off_t>(n), POSIX_FADV_DONTNEED);
      done += n;
      progress.update(at + done);
    }
    at += padded(tensor->bytes);
  }
  for (const auto& file : files) posix_fadvise(file.fd(), 0, 0, POSIX_FADV_DONTNEED);
}

const Weights::Entry& Weights::entry(std::string_view name) const {
  const auto found = entries_.find(name);
  WEIR_CHECK(found != entries_.end(), "tensor {} was not loaded", name);
  return found->second;
}

Matrix Weights::matrix(std::string_view name) const {
  const Entry& e = entry(name);
  return {buffer_.as<uint8_t>() + e.offset, e.tensor->type, e.tensor->dims[0], e.tensor->dims[1]};
}

std::string Weights::first_not_finite() const {
  std::vector<float> row;
  for (const auto& [name, e] : entries_) {
    const auto n = e.tensor->dims[0];
    const uint64_t row_bytes = e.tensor->info->bytes(static_cast<uint64_t>(n));
    row.resize(static_cast<size_t>(n));
    for (int64_t r = 0; r < e.tensor->rows(); ++r) {
      e.tensor->info->decode(buffer_.as<uint8_t>() + e.offset + static_cast<uint64_t>(r) * row_bytes,
                             row.data(), n);
      for (const float value : row)
        if (!std::isfinite(value)) return name;
    }
  }
  return {};
}

const float* Weights::vector(std::string_view name) const {
  const Entry& e = entry(name);
  WEIR_CHECK(e.tensor->type == Type::F32, "{} is {}", name, e.tensor->info->name);
  return reinterpret_cast<const float*>(buffer_.as<uint8_t>() + e.offset);
}

}  // namespace weir
