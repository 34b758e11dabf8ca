// Unbuffered reads through one io_uring: every waiting piece that the ring takes goes to the kernel in one
// system call. The kernel does not say when a read finished, so its end is when it was collected: no later
// than the next call, and never earlier than the truth.
#include <liburing.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <deque>
#include <thread>

#include "base/clock.h"
#include "base/pause.h"
#include "experts/queued_reader.h"

namespace weir {
namespace {

constexpr unsigned ring_depth = 64;
constexpr auto pause = std::chrono::milliseconds(1);
/// How often a ring that refuses is asked again, with a pause between, while nothing is in the kernel whose
/// end could help: a kernel that is short of memory for half a second is not going to read experts.
constexpr int refusals_allowed = 500;
/// And how often for the end of reads that cannot be waited for: a disk may take seconds to wake.
constexpr int misses_allowed = 10'000;
/// Of an entry whose read was given up.
constexpr uint32_t no_piece = ~uint32_t{0};

/// How long a wait looks at the ring before it sleeps (docs/streaming.md, "Two openings"): being woken costs
/// a tenth of a small expert's read, and where the thread goes on then is chance.
constexpr uint64_t spin_ns = 250'000;
constexpr int looks_per_clock_read = 32;

class UringReader final : public QueuedReader {
 public:
  UringReader(ReadSource source, const ReaderOptions& options, io_uring ring)
      : QueuedReader(std::move(source), options),
        ring_(ring),
        submit_fault_(options.submit_fault),
        wait_fault_(options.wait_fault) {}

  ~UringReader() override {
    // Hazard: the kernel writes into slots until its reads are over; their memory may go after this.
    while (!in_kernel_.empty()) await_one(), take_finished();
    io_uring_queue_exit(&ring_);
  }

 protected:
  void start() override {
    if (lost_ != 0) return fail_waiting(lost_);
    prepare_waiting();
    flush();
  }

  void collect(bool wait) override {
    if (lost_ != 0) return fail_waiting(lost_);
    if (wait && in_kernel_.empty()) insist();
    if (wait && !in_kernel_.empty() && !spin()) await_one();
    take_finished();
    flush();
  }

  std::string transport() const override { return "io_uring"; }
  size_t concurrency() const override { return ring_depth; }

 private:
  struct Entry {
    uint32_t piece;
    io_uring_sqe* sqe;  ///< in the ring: the kernel reads it when it takes it
  };

  void prepare_waiting() {
    while (waiting() && in_kernel_.size() + prepared_.size() < ring_depth) prepare(take_waiting());
  }

  void prepare(uint32_t index) {
    const ReadPiece& p = piece(index);
    io_uring_sqe* sqe = io_uring_get_sqe(&ring_);
    if (!sqe) return fail(index, EBUSY);  // full of entries that were given up and never taken
    io_uring_prep_read(sqe, file_of(p).fd(), p.destination + p.start,
                       static_cast<unsigned>(p.bytes - p.start), p.offset + p.start);
    io_uring_sqe_set_data64(sqe, index);
    // A buffered read copies within the system call; on the kernel's own threads it does not hold up this
    // one.
    if (!direct()) sqe->flags |= IOSQE_ASYNC;
    prepared_.push_back({index, sqe});
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

  /// Hands all prepared entries to the kernel. Returns 0, or why it takes no more. EAGAIN and EBUSY may pass:
  /// the rest stays prepared for the next call. At any other error the prepared reads have failed.
  int flush() {
    while (!prepared_.empty()) {
      const int fault = submit_fault_ ? submit_fault_() : 0;
      const int taken = fault != 0 ? -fault : io_uring_submit(&ring_);
      if (taken == -EINTR) continue;
      if (taken == 0) return EAGAIN;
      if (taken == -EAGAIN || taken == -EBUSY) return -taken;
      if (taken < 0) {
        give_up_prepared(-taken);
        return -taken;
      }
      for (int i = 0; i < taken; ++i) {  // in order
        if (prepared_.front().piece != no_piece) in_kernel_.push_back(prepared_.front().piece);
        prepared_.pop_front();
      }
    }
    return 0;
  }

  /// Until the kernel has a read, or none is wanted any more: at the latest when patience ends, as all have
  /// failed then.
  void insist() {
    int error = 0;
    for (int refusals = 0; refusals < refusals_allowed; ++refusals) {
      prepare_waiting();
      error = flush();
      if (!in_kernel_.empty() || error == 0) return;
      if (error != EAGAIN && error != EBUSY) break;
      std::this_thread::sleep_for(pause);
    }
    give_up_prepared(error);
    fail_waiting(error);
  }

  /// Until a read is over, or a signal has interrupted the wait. Where waiting fails, what comes anyway is
  /// seen; where nothing comes, the ring is given up for good.
  void await_one() {
    io_uring_cqe* cqe = nullptr;
    int result = 0;
    for (int misses = 0; misses < misses_allowed; ++misses) {
      const int fault = wait_fault_ ? wait_fault_() : 0;
      result = fault != 0 ? -fault : io_uring_wait_cqe(&ring_, &cqe);
      if (result == 0 || result == -EINTR || io_uring_peek_cqe(&ring_, &cqe) == 0) return;
      std::this_thread::sleep_for(pause);
    }
    // Hazard: these reads may still land, in slots that are given back now. No later read gets a slot then,
    // since lost_ fails them all, and what their slots hold counts as nothing.
    lost_ = -result;
    for (const uint32_t index : std::exchange(in_kernel_, {})) fail(index, lost_);
    give_up_prepared(lost_);
    fail_waiting(lost_);
  }

  void take_finished() {
    if (lost_ != 0) return;  // indices of failed reads may be others' by now
    const uint64_t now = now_ns();
    io_uring_cqe* cqe = nullptr;
    while (io_uring_peek_cqe(&ring_, &cqe) == 0) {
      const auto index = static_cast<uint32_t>(io_uring_cqe_get_data64(cqe));
      const int result = cqe->res;
      io_uring_cqe_seen(&ring_, cqe);
      if (index == no_piece) continue;
      std::erase(in_kernel_, index);
      take(index, result, now);
    }
  }

  void take(uint32_t index, int result, uint64_t now) {
    ReadPiece& p = piece(index);
    const ReadStep step = advance(p, result, read_alignment());
    if (step == ReadStep::again) return prepare(index);
    finish({index, step, result < 0 ? -result : 0, now});
  }

  void fail(uint32_t index, int error) { finish({index, ReadStep::failed, error, now_ns()}); }
  void fail_waiting(int error) {
    while (waiting()) fail(take_waiting(), error);
  }
  /// Hazard: an entry stays in the ring until the kernel takes it, and must not write into a slot that is
  /// given back: it becomes one that does nothing.
  void give_up_prepared(int error) {
    for (Entry& entry : prepared_) {
      if (entry.piece == no_piece) continue;
      io_uring_prep_nop(entry.sqe);
      io_uring_sqe_set_data64(entry.sqe, no_piece);
      fail(std::exchange(entry.piece, no_piece), error);
    }
  }

  io_uring ring_;
  std::function<int()> submit_fault_, wait_fault_;
  std::deque<Entry> prepared_;       ///< in the submission queue, in its order; not yet the kernel's
  std::vector<uint32_t> in_kernel_;  ///< pieces submitted, not yet collected
  int lost_ = 0;                     ///< errno: the ring is given up
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
