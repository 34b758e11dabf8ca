// Reads through a few threads with pread: buffered ones, whose copying would hold up the thread that submits
// to a ring, and unbuffered ones where io_uring is refused. A read's end is taken by the thread that made it,
// so busy time is exact here.
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "base/clock.h"
#include "experts/queued_reader.h"

namespace weir {
namespace {

class PoolReader final : public QueuedReader {
 public:
  PoolReader(ReadSource source, const ReaderOptions& options, std::string why)
      : QueuedReader(std::move(source), options), why_(std::move(why)) {
    const int threads = std::max(options.pool_threads, 1);
    for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { work(); });
  }

  ~PoolReader() override {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
      jobs_.clear();
    }
    job_ready_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

 protected:
  void start() override {
    if (!waiting()) return;
    {
      const std::lock_guard lock(mutex_);
      while (waiting()) {
        const uint32_t index = take_waiting();
        jobs_.push_back({index, &piece(index), &file_of(piece(index))});
      }
    }
    job_ready_.notify_all();
  }

  void collect(bool wait) override {
    {
      std::unique_lock lock(mutex_);
      if (wait) read_over_.wait(lock, [this] { return !finished_.empty(); });
      taken_.swap(finished_);
    }
    for (const Finished& f : taken_) finish(f);
    taken_.clear();
  }

  std::string transport() const override {
    const std::string name = fmt::format("{} threads", threads_.size());
    return why_.empty() ? name : fmt::format("{} ({})", name, why_);
  }
  size_t concurrency() const override { return threads_.size(); }

 private:
  /// The piece belongs to the worker until it is in finished_; the file is open as long as the reader lives.
  struct Job {
    uint32_t index;
    ReadPiece* piece;
    const InputFile* file;
  };

  void work() {
    while (true) {
      Job job{};
      {
        std::unique_lock lock(mutex_);
        job_ready_.wait(lock, [this] { return stop_ || !jobs_.empty(); });
        if (stop_) return;
        job = jobs_.front();
        jobs_.pop_front();
      }
      const Finished result = read(job);
      {
        const std::lock_guard lock(mutex_);
        finished_.push_back(result);
      }
      read_over_.notify_one();
    }
  }

  Finished read(const Job& job) const {
    ReadPiece& p = *job.piece;
    Finished result{job.index, ReadStep::again, 0, 0};
    while (result.step == ReadStep::again) {
      const ssize_t n = ::pread(job.file->fd(), p.destination + p.start, p.bytes - p.start,
                                static_cast<off_t>(p.offset + p.start));
      result.error = n < 0 ? errno : 0;
      result.step = advance(p, n < 0 ? -errno : n, read_alignment());
    }
    result.end_ns = now_ns();
    if (!direct()) drop_cached(*job.file, p.offset, p.bytes);
    return result;
  }

  const std::string why_;
  std::mutex mutex_;
  std::condition_variable job_ready_, read_over_;
  std::deque<Job> jobs_;
  std::vector<Finished> finished_, taken_;
  bool stop_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace

std::unique_ptr<ExpertReader> make_pool_reader(ReadSource source, const ReaderOptions& options,
                                               const std::string& why) {
  return std::make_unique<PoolReader>(std::move(source), options, why);
}

}  // namespace weir
