// Reads expert slices into slots: io_uring with every miss of a layer in flight; a thread pool for buffered
// reads and where io_uring is refused. Unbuffered where the file system gives the true bytes that way (probed
// with a read-back check), buffered otherwise with the cache dropped behind. I/O trouble is a value, with
// file and offset.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "gguf/reader.h"
#include "ledger/ledger.h"

namespace weir {

enum class IoMode : uint8_t { automatic, direct, buffered };
enum class ReadAdvice : uint8_t { off, bounded };
IoMode parse_io_mode(const std::string& text);          ///< throws Error naming the choices
ReadAdvice parse_read_advice(const std::string& text);  ///< throws Error naming the choices

struct ReaderOptions {
  IoMode mode = IoMode::automatic;
  ReadAdvice advice =
      ReadAdvice::off;   ///< buffered only: bounded read-ahead hints for the misses just planned
  bool io_uring = true;  ///< unbuffered only; false: the thread pool (for tests)
  int pool_threads = 4;
  uint64_t alignment_override = 0;  ///< tests: pretend this alignment
  /// Tests: an errno instead of the ring's system call; 0: the call is made.
  std::function<int()> submit_fault, wait_fault;
};

/// A slice wanted at `destination`, which has room for stride(bytes); its first byte goes to destination +
/// remainder(offset).
struct ReadRequest {
  uint32_t file = 0;
  uint64_t offset = 0, bytes = 0;
  uint8_t* destination = nullptr;  ///< aligned to alignment()
  uint32_t tag = 0;                ///< the caller's: comes back with the completion
  int layer = 0, expert = 0;       ///< for the ledger's spans
};

struct ReadDone {
  uint32_t tag = 0;
  Fault fault;  ///< empty: the bytes are there
};

class ExpertReader {
 public:
  /// Opens the files. Throws Error where one cannot be opened.
  static std::unique_ptr<ExpertReader> open(const std::vector<gguf::File>& files,
                                            const ReaderOptions& options);
  virtual ~ExpertReader() = default;

  /// Alignment of destinations and of the spans that are read.
  uint64_t alignment() const { return alignment_; }
  /// Where the slice's first byte lies in its destination: offset % alignment().
  uint64_t remainder(uint64_t offset) const { return offset % alignment_; }
  /// Bytes a destination needs for a slice of `bytes` at any offset, aligned.
  uint64_t stride(uint64_t bytes) const { return (bytes + 2 * alignment_ - 1) / alignment_ * alignment_; }

  // Trouble of any kind comes back as the fault of each request that it hits, never as an exception, so that
  // what was submitted is always completed: a slot is given back when nothing writes into it any more.
  /// Queues all requests at once. May hold more than the ring takes: the rest follow as reads finish.
  virtual void submit(std::span<const ReadRequest> requests) = 0;
  /// Takes a finished read; where `wait`, blocks until there is one. Nothing where none is in flight (or
  /// ready).
  virtual std::optional<ReadDone> next(bool wait) = 0;
  virtual int in_flight() const = 0;
  /// "io_uring, unbuffered, 512-byte alignment".
  virtual std::string description() const = 0;
  virtual bool direct() const = 0;
  /// Page cache that reads in flight may hold at most (none where unbuffered): part of the plan.
  virtual uint64_t page_cache_bytes() const = 0;

  void set_ledger(Ledger* ledger) { ledger_ = ledger; }
  /// Since the last call: reads finished, bytes the kernel delivered (alignment included), and the union of
  /// times with a read in flight. io_uring reads end when they are collected (docs/streaming.md).
  virtual ExpertCounters take_counters() = 0;

 protected:
  uint64_t alignment_ = 4096;
  Ledger* ledger_ = nullptr;
};

}  // namespace weir
