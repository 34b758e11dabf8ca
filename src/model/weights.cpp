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
/// Before and behind all of them: kernels read the 16-byte spans that enclose a weight row.
constexpr uint64_t slack = 256;
constexpr uint64_t piece =
    4 << 20;  // bytes a read: large enough for the disk, small enough for the progress line

constexpr uint64_t diagnosed_piece = 256 << 10;

uint64_t padded(uint64_t bytes) { return (bytes + pad - 1) / pad * pad; }

}  // namespace

uint64_t Weights::bytes(const std::vector<const gguf::Tensor*>& tensors) {
  uint64_t total = 2 * slack;
  for (const auto* tensor : tensors) total += padded(tensor->bytes);
  return total;
}

void Weights::load(Device& device, const gguf::Model& model, const std::vector<const gguf::Tensor*>& tensors,
                   DeviceLoader* loader) {
  const uint64_t total = bytes(tensors);
  buffer_ = device.allocate(total, "resident weights");
  uint64_t at = slack;
  std::vector<LoadRange> ranges;
  for (const auto* tensor : tensors) {
    entries_.emplace(tensor->name, Entry{tensor, at});
    ranges.push_back({tensor->file, tensor->offset, tensor->bytes, buffer_.as<uint8_t>() + at});
    at += padded(tensor->bytes);
  }
  if (loader) {
    Progress progress("loading", total, "bytes");
    loader->load(ranges, [&](uint64_t done) { progress.update(done); });
    return;
  }
  read_into(device, model, ranges);
}

/// One piece after the other through a small buffer: what a device in the host's memory needs.
void Weights::read_into(Device& device, const gguf::Model& model, const std::vector<LoadRange>& ranges) {
  std::vector<InputFile> files;
  for (const auto& file : model.files()) files.push_back(InputFile::open(file.path));
  Progress progress("loading", buffer_.bytes(), "bytes");
  std::vector<uint8_t> staging(std::min<uint64_t>(piece, buffer_.bytes()));
  uint64_t before = 0;
  for (const LoadRange& range : ranges) {
    const InputFile& file = files[range.file];
    for (uint64_t done = 0; done < range.bytes;) {
      const uint64_t n = std::min(piece, range.bytes - done);
      file.pread_exact(staging.data(), n, range.offset + done);
      device.upload(range.destination + done, staging.data(), n);
      // Page cache counts against the budget: drop it behind the read.
      posix_fadvise(file.fd(), static_cast<off_t>(range.offset + done), static_cast<off_t>(n),
                    POSIX_FADV_DONTNEED);
      done += n;
      progress.update(before + done);
    }
    before += range.bytes;
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

std::string Weights::first_not_finite(Device& device) const {
  std::vector<float> row;
  std::vector<uint8_t> bytes;
  for (const auto& [name, e] : entries_) {
    const auto n = e.tensor->dims[0];
    const uint64_t row_bytes = e.tensor->info->bytes(static_cast<uint64_t>(n));
    row.resize(static_cast<size_t>(n));
    const auto rows_at_once = static_cast<int64_t>(std::max<uint64_t>(1, diagnosed_piece / row_bytes));
    for (int64_t r = 0; r < e.tensor->rows(); ++r) {
      if (r % rows_at_once == 0) {
        bytes.resize(row_bytes * static_cast<uint64_t>(std::min(rows_at_once, e.tensor->rows() - r)));
        device.download(bytes.data(), buffer_.as<uint8_t>() + e.offset + static_cast<uint64_t>(r) * row_bytes,
                        bytes.size());
        device.synchronize();
      }
      e.tensor->info->decode(bytes.data() + static_cast<uint64_t>(r % rows_at_once) * row_bytes, row.data(),
                             n);
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
