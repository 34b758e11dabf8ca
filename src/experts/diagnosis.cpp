#include "experts/diagnosis.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/file.h"
#include "base/log.h"

namespace weir {

namespace {

constexpr uint64_t piece_values = 16 << 10;  ///< a multiple of every block

class Search {
 public:
  Search(const ExpertStore& store, const std::atomic<bool>* cancel)
      : store_(store), cancel_(cancel), progress_("searching experts", store.total_bytes(), "bytes") {
    for (const auto& file : store.files()) {
      files_.push_back(InputFile::open(file.path));
      posix_fadvise(files_.back().fd(), 0, 0, POSIX_FADV_RANDOM);  // no read-ahead past the pieces
    }
  }

  std::string run() {
    for (int l = 0; l < store_.layers(); ++l)
      for (int e = 0; e < store_.layer(l).experts; ++e)
        for (const ExpertPart& part : store_.layer(l).parts) {
          if (cancel_ && cancel_->load(std::memory_order_relaxed)) return {};
          if (!finite(part, e)) return fmt::format("{}, expert {}", part.name, e);
          progress_.update(done_ += part.bytes);
        }
    return {};
  }

 private:
  bool finite(const ExpertPart& part, int expert) {
    const TypeInfo& info = type_info(part.type);
    const InputFile& file = files_[part.file];
    const auto all = static_cast<uint64_t>(part.in) * static_cast<uint64_t>(part.out);
    const uint64_t begin = part.offset + static_cast<uint64_t>(expert) * part.bytes;
    for (uint64_t i = 0; i < all; i += piece_values) {
      const uint64_t n = std::min(piece_values, all - i), bytes = info.bytes(n);
      const uint64_t offset = begin + info.bytes(i);
      bytes_.resize(bytes), values_.resize(n);
      file.pread_exact(bytes_.data(), bytes, offset);
      posix_fadvise(file.fd(), static_cast<off_t>(offset), static_cast<off_t>(bytes), POSIX_FADV_DONTNEED);
      info.decode(bytes_.data(), values_.data(), static_cast<int64_t>(n));
      if (!std::all_of(values_.begin(), values_.end(), [](float v) { return std::isfinite(v); }))
        return false;
    }
    return true;
  }

  const ExpertStore& store_;
  const std::atomic<bool>* cancel_;
  std::vector<InputFile> files_;
  std::vector<uint8_t> bytes_;
  std::vector<float> values_;
  uint64_t done_ = 0;
  Progress progress_;
};

}  // namespace

std::string first_not_finite_expert(const ExpertStore& store, const std::atomic<bool>* cancel) {
  return Search(store, cancel).run();
}

}  // namespace weir
