// Unbuffered reads through one io_uring: every waiting piece that the ring takes goes to the kernel in one
// system call. The kernel does not say when a read finished, so its end is when it was collected: no later
// than the next call, and never earlier than the truth.
#include <liburing.h>

#include <algorithm>
#include <cstring>

#include "base/clock.h"
#include "base/pause.h"
#include "experts/queued_reader.h"

namespace weir {
namespace {

constexpr unsigned ring_depth = 64;

/// How long a wait looks at the ring before it sleeps. Six reads of 24 KB took 244 us where each wait slept
/// and 215 where it looked (bench_expert_reads); and a thread that is woken goes on where chance puts it,
/// beside the processor that takes the disk's interrupts or on it, which makes another tenth.
constexpr uint64_t spin_ns = 250'000;
constexpr int looks_per_clock_read = 32;

class UringReader final : public QueuedReader {
 public:
  UringReader(ReadSource source, const ReaderOptions& options, io_uring ring)
      : QueuedReader(std::move(source), options), ring_(ring) {}

  ~UringReader() override {
    // Hazard: the kernel writes into slots until its reads are over; their memory may go after this.
    while (in_kernel_ > 0) wait_and_drain();
    io_uring_queue_exit(&ring_);
  }

 protected:
  void start() override {
    while (waiting() && in_kernel_ + prepared_ < ring_depth) prepare(take_waiting());
    flush();
  }

  void collect(bool wait) override {
    io_uring_cqe* cqe = nullptr;
    if (wait && in_kernel_ == 0) flush();
    if (wait && in_kernel_ > 0 && !spin()) {
      const int result = io_uring_wait_cqe(&ring_, &cqe);  // a signal interrupts it
      if (result < 0 && result != -EINTR && result != -EAGAIN)
        throw failure("waiting for expert reads failed: {}", std::strerror(-result));
    }
    const uint64_t now = now_ns();
    while (io_uring_peek_cqe(&ring_, &cqe) == 0) {
      const auto index = static_cast<uint32_t>(io_uring_cqe_get_data64(cqe));
      const int result = cqe->res;
      io_uring_cqe_seen(&ring_, cqe);
      --in_kernel_;
      take(index, result, now);
    }
    flush();
  }

  std::string transport() const override { return "io_uring"; }
  size_t concurrency() const override { return ring_depth; }

 private:
  void prepare(uint32_t index) {
    const ReadPiece& p = piece(index);
    io_uring_sqe* sqe = io_uring_get_sqe(&ring_);
    WEIR_CHECK(sqe, "{} in the kernel, {} prepared", in_kernel_, prepared_);
    io_uring_prep_read(sqe, file_of(p).fd(), p.destination + p.start,
                       static_cast<unsigned>(p.bytes - p.start), p.offset + p.start);
    io_uring_sqe_set_data64(sqe, index);
    // A buffered read copies within the system call; on the kernel's own threads it does not hold up this
    // one.
    if (!direct()) sqe->flags |= IOSQE_ASYNC;
    ++prepared_;
  }

  /// Looks at the ring for a while; whether a read has finished.
  bool spin() {
    const uint64_t deadline = now_ns() + spin_ns;
    do {
      for (int i = 0; i < looks_per_clock_read; ++i) {
        if (io_uring_cq_ready(&ring_) > 0) return true;
        pause_processor();
      }
    } while (now_ns() < deadline);
    return false;
  }

  /// Hands all prepared reads to the kernel. What it is too busy to take stays prepared for the next call.
  void flush() {
    while (prepared_ > 0) {
      const int taken = io_uring_submit(&ring_);
      if (taken == -EINTR) continue;
      if (taken == -EAGAIN || taken == -EBUSY) return;
      if (taken < 0) throw failure("submitting expert reads failed: {}", std::strerror(-taken));
      if (taken == 0) return;
      prepared_ -= static_cast<unsigned>(taken);
      in_kernel_ += static_cast<unsigned>(taken);
    }
  }

  void take(uint32_t index, int result, uint64_t now) {
    ReadPiece& p = piece(index);
    const ReadStep step = advance(p, result, read_alignment());
    if (step == ReadStep::again) return prepare(index);
    finish({index, step, result < 0 ? -result : 0, now});
  }

  void wait_and_drain() noexcept {
    io_uring_cqe* cqe = nullptr;
    if (io_uring_wait_cqe(&ring_, &cqe) != 0) return;
    io_uring_cqe_seen(&ring_, cqe);
    --in_kernel_;
  }

  io_uring ring_;
  unsigned prepared_ = 0;   ///< in the submission queue, not yet the kernel's
  unsigned in_kernel_ = 0;  ///< submitted, not yet collected
};

}  // namespace

std::unique_ptr<ExpertReader> make_uring_reader(ReadSource& source, const ReaderOptions& options,
                                                std::string& why) {
  io_uring ring;
  const int result = io_uring_queue_init(ring_depth, &ring, 0);
  if (result < 0) {
    why = fmt::format("io_uring refused: {}", std::strerror(-result));
    return nullptr;
  }
  return std::make_unique<UringReader>(std::move(source), options, ring);
}

}  // namespace weir
