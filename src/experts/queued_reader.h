// What both ways of reading share: requests cut into pieces, pieces waiting for their turn, finished reads,
// the account of busy time, read-ahead hints. A transport only starts pieces and collects results.
#pragma once

#include <deque>
#include <string>
#include <vector>

#include "experts/read_piece.h"
#include "experts/read_source.h"
#include "experts/reader.h"

namespace weir {

class QueuedReader : public ExpertReader {
 public:
  void submit(std::span<const ReadRequest> requests) final;
  std::optional<ReadDone> next(bool wait) final;
  int in_flight() const final { return outstanding_ + static_cast<int>(done_.size()); }
  std::string description() const final;
  bool direct() const final { return source_.direct; }
  uint64_t page_cache_bytes() const final;
  ExpertCounters take_counters() final;

 protected:
  QueuedReader(ReadSource source, const ReaderOptions& options);

  /// A piece's reads are over.
  struct Finished {
    uint32_t piece = 0;
    ReadStep step = ReadStep::done;  ///< done, ended or failed
    int error = 0;                   ///< errno where failed
    uint64_t end_ns = 0;
  };
  /// Starts waiting pieces (take_waiting) as far as the transport takes them.
  virtual void start() = 0;
  /// Hands finished pieces to finish(); where `wait`, blocks until there is one. Where the transport itself
  /// fails, it finishes every piece that it holds and that waits as failed, within seconds.
  virtual void collect(bool wait) = 0;
  /// "io_uring" or the pool, for the description.
  virtual std::string transport() const = 0;
  /// Reads that run at the same time.
  virtual size_t concurrency() const = 0;

  bool waiting() const { return !waiting_.empty(); }
  uint32_t take_waiting();
  ReadPiece& piece(uint32_t index) { return pieces_[index]; }
  const InputFile& file_of(const ReadPiece& p) const { return source_.files[p.file]; }
  /// Alignment of read offsets: 1 where buffered.
  uint64_t read_alignment() const { return source_.direct ? alignment_ : 1; }
  void finish(const Finished& finished);

 private:
  struct Request {
    ReadRequest read;
    uint32_t pieces_left = 0;
    uint64_t begin_ns = 0, end_ns = 0;
    Fault fault;
  };
  void hint();
  Fault fault_of(const Request& request, const ReadPiece& piece, const Finished& finished) const;
  void complete(uint32_t index);

  ReadSource source_;
  ReadAdvice advice_;
  std::vector<Request> requests_;
  std::vector<uint32_t> free_requests_;
  std::deque<ReadPiece> pieces_;  // a deque: workers hold references while it grows
  std::vector<uint32_t> free_pieces_;
  std::vector<ReadPiece> cut_;
  std::deque<uint32_t> waiting_;
  std::deque<ReadDone> done_;
  int outstanding_ = 0;  ///< requests whose bytes have not all landed
  uint64_t hinted_bytes_ = 0;
  ExpertCounters counters_;
  uint64_t busy_since_ns_ = 0, last_end_ns_ = 0;
};

std::unique_ptr<ExpertReader> make_pool_reader(ReadSource source, const ReaderOptions& options,
                                               const std::string& why);
/// Takes `source`; null, with `source` untouched and the reason in `why`, where the kernel refuses a ring.
std::unique_ptr<ExpertReader> make_uring_reader(ReadSource& source, const ReaderOptions& options,
                                                std::string& why);

}  // namespace weir
