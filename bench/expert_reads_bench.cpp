// Reads of expert slices as a layer makes them: a batch of slices at random offsets, submitted at once and
// awaited. Arms: way of reading, transport, page size of the destination, misses a batch (three slices each),
// bytes of a slice.
// Counters: bytes a second and the time that submitting takes the computing thread.
#include <benchmark/benchmark.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <vector>

#include "base/clock.h"
#include "base/file.h"
#include "base/random.h"
#include "experts/reader.h"

namespace weir {
namespace {

constexpr uint64_t large_slice = 884'736;  // one Q4_K matrix of 2048 x 768
constexpr uint64_t small_slice = 24'576;   // about one of the pocket model's
constexpr uint64_t file_bytes = uint64_t{1} << 30;
constexpr size_t huge_page = size_t{2} << 20;

/// A file of random bytes in the working directory, gone with the program.
struct BenchFile {
  std::string path = "expert_reads_bench.tmp";
  BenchFile() {
    std::vector<uint64_t> block(1 << 17);
    AtomicFile file(path);
    for (uint64_t at = 0; at < file_bytes; at += block.size() * 8) {
      for (size_t i = 0; i < block.size(); ++i) block[i] = random_u64(at, i);
      file.write(block.data(), block.size() * 8);
    }
    file.commit();
    const InputFile written = InputFile::open(path);
    ::posix_fadvise(written.fd(), 0, 0, POSIX_FADV_DONTNEED);
  }
  ~BenchFile() { ::unlink(path.c_str()); }
};

void reads(benchmark::State& state, IoMode mode, bool io_uring, int page_advice) {
  static const BenchFile file;
  ReaderOptions options;
  options.mode = mode, options.io_uring = io_uring;
  const auto reader = ExpertReader::open({{file.path, file_bytes, 0}}, options);
  const auto slices = static_cast<size_t>(state.range(0)) * 3;
  const auto slice_bytes = static_cast<uint64_t>(state.range(1));
  const uint64_t stride = reader->stride(slice_bytes);
  const size_t bytes = (slices * stride + huge_page - 1) / huge_page * huge_page;
  auto* memory = static_cast<uint8_t*>(std::aligned_alloc(huge_page, bytes));
  ::madvise(memory, bytes, page_advice);
  std::memset(memory, 1, bytes);
  std::vector<ReadRequest> requests(slices);
  uint64_t draws = 0, submit_ns = 0;
  for (auto _ : state) {
    for (size_t i = 0; i < slices; ++i)
      requests[i] = {0,
                     random_u64(1, draws++) % (file_bytes - slice_bytes) / 32 * 32,
                     slice_bytes,
                     memory + i * stride,
                     static_cast<uint32_t>(i),
                     0};
    const uint64_t begin = now_ns();
    reader->submit(requests);
    submit_ns += now_ns() - begin;
    while (const auto done = reader->next(true))
      if (done->fault) state.SkipWithError(done->fault.message.c_str());
  }
  state.SetBytesProcessed(static_cast<int64_t>(slices * slice_bytes) * state.iterations());
  state.counters["submit_us"] =
      static_cast<double>(submit_ns) / 1e3 / static_cast<double>(state.iterations());
  std::free(memory);
}

#define WEIR_READS(name, ...)                 \
  BENCHMARK_CAPTURE(reads, name, __VA_ARGS__) \
      ->ArgsProduct({{1, 8}, {large_slice}})  \
      ->Args({2, small_slice})                \
      ->UseRealTime()                         \
      ->Unit(benchmark::kMicrosecond)
WEIR_READS(uring_direct, IoMode::direct, true, MADV_HUGEPAGE);
WEIR_READS(uring_direct_small_pages, IoMode::direct, true, MADV_NOHUGEPAGE);
WEIR_READS(pool_direct, IoMode::direct, false, MADV_HUGEPAGE);
WEIR_READS(pool_buffered, IoMode::buffered, false, MADV_HUGEPAGE);

}  // namespace
}  // namespace weir
