// Opening and probing: the alignment a file system asks for, and a read-back check that unbuffered reads
// return what buffered ones do (some file systems accept O_DIRECT and return other bytes).
#include "experts/read_source.h"

#include <fcntl.h>
#include <linux/stat.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "base/error.h"

namespace weir {
namespace {

constexpr uint64_t default_alignment = 4096;
constexpr uint64_t page = 4096;

/// What the file system asks of unbuffered reads (memory and offset alike); the default where it does not
/// say.
uint64_t direct_alignment(const std::string& path) {
#ifdef STATX_DIOALIGN
  struct statx status {};
  if (::statx(AT_FDCWD, path.c_str(), 0, STATX_DIOALIGN, &status) == 0 &&
      (status.stx_mask & STATX_DIOALIGN) && status.stx_dio_offset_align > 0)
    return std::bit_ceil(std::max<uint64_t>({512, status.stx_dio_offset_align, status.stx_dio_mem_align}));
#endif
  return default_alignment;
}

/// Regular files ignore O_NONBLOCK, but io_uring may hand out EAGAIN for it instead of waiting.
void clear_nonblocking(const InputFile& file) {
  const int flags = ::fcntl(file.fd(), F_GETFL);
  if (flags >= 0) ::fcntl(file.fd(), F_SETFL, flags & ~O_NONBLOCK);
}

struct FreeDeleter {
  void operator()(void* p) const { std::free(p); }
};

}  // namespace

std::string probe_direct(const InputFile& direct, const InputFile& buffered, uint64_t data_offset,
                         uint64_t alignment) {
  const uint64_t begin = data_offset / alignment * alignment;
  if (begin >= direct.size()) return "";
  const uint64_t bytes = (uint64_t{64 << 10} + alignment - 1) / alignment * alignment;
  const uint64_t expected = std::min(bytes, direct.size() - begin);
  const std::unique_ptr<void, FreeDeleter> memory(std::aligned_alloc(alignment, bytes));
  if (!memory) throw failure("cannot allocate {} bytes to probe {}", bytes, direct.path());
  const ssize_t got = ::pread(direct.fd(), memory.get(), bytes, static_cast<off_t>(begin));
  if (got < 0) return fmt::format("unbuffered reads fail: {}", std::strerror(errno));
  if (static_cast<uint64_t>(got) != expected)
    return fmt::format("an unbuffered read of {} bytes at offset {} gave {}", expected, begin, got);
  std::vector<char> check(expected);
  buffered.pread_exact(check.data(), expected, begin);
  drop_cached(buffered, begin, expected);
  if (std::memcmp(check.data(), memory.get(), expected) != 0)
    return fmt::format("unbuffered reads at offset {} return other bytes than buffered ones", begin);
  return "";
}

void drop_cached(const InputFile& file, uint64_t offset, uint64_t bytes) {
  // The kernel keeps pages that are only partly named, so whole ones are.
  const uint64_t begin = offset / page * page, end = (offset + bytes + page - 1) / page * page;
  ::posix_fadvise(file.fd(), static_cast<off_t>(begin), static_cast<off_t>(end - begin), POSIX_FADV_DONTNEED);
}

ReadSource open_read_source(const std::vector<gguf::File>& files, const ReaderOptions& options) {
  ReadSource source;
  source.alignment = 512;
  for (const gguf::File& file : files) {
    source.files.push_back(InputFile::open(file.path));
    source.alignment = std::max(source.alignment, direct_alignment(file.path));
  }
  if (options.alignment_override) source.alignment = options.alignment_override;
  WEIR_CHECK(std::has_single_bit(source.alignment), "alignment {}", source.alignment);
  // Read-ahead beyond a slice would fill the page cache with experts that nobody asked for.
  for (const InputFile& file : source.files) ::posix_fadvise(file.fd(), 0, 0, POSIX_FADV_RANDOM);

  if (options.mode != IoMode::buffered) {
    std::vector<InputFile> direct;
    for (size_t i = 0; i < files.size() && source.reason.empty(); ++i) {
      try {
        direct.push_back(InputFile::open(files[i].path, O_DIRECT));
        source.reason = probe_direct(direct.back(), source.files[i], files[i].data_offset, source.alignment);
      } catch (const Error& e) {
        source.reason = e.what();
      }
    }
    if (source.reason.empty()) {
      source.files = std::move(direct);
      source.direct = true;
    } else if (options.mode == IoMode::direct) {
      throw input_error("--io direct: {}: {}; use --io auto or buffered", files.front().path, source.reason);
    }
  }
  for (const InputFile& file : source.files) clear_nonblocking(file);
  return source;
}

}  // namespace weir
