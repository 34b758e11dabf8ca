// Requests in, finished reads out; everything but the system calls.
#include "experts/queued_reader.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstring>

#include "base/clock.h"

namespace weir {
namespace {

/// Read-ahead that may be outstanding: the page cache it fills is part of the memory promise.
constexpr uint64_t hint_limit = 32u << 20;

}  // namespace

QueuedReader::QueuedReader(ReadSource source, const ReaderOptions& options)
    : source_(std::move(source)), advice_(options.advice) {
  alignment_ = source_.alignment;
}

std::string QueuedReader::description() const {
  std::string text = fmt::format("{}, {}, {}-byte alignment", transport(),
                                 source_.direct ? "unbuffered" : "buffered", alignment_);
  if (!source_.reason.empty()) text += fmt::format(" ({})", source_.reason);
  return text;
}

uint64_t QueuedReader::page_cache_bytes() const {
  if (source_.direct) return 0;
  return concurrency() * read_piece_bytes + (advice_ == ReadAdvice::bounded ? hint_limit : 0);
}

void QueuedReader::submit(std::span<const ReadRequest> requests) {
  if (requests.empty()) return;
  // What has finished is taken first, so that an idle time between two submissions does not count as busy.
  if (outstanding_ > 0) collect(false);
  const uint64_t now = now_ns();
  if (outstanding_ == 0) busy_since_ns_ = now, last_end_ns_ = now;
  for (const ReadRequest& read : requests) {
    WEIR_CHECK(read.file < source_.files.size(), "file {} of {}", read.file, source_.files.size());
    WEIR_CHECK(read.bytes > 0 && reinterpret_cast<uintptr_t>(read.destination) % alignment_ == 0,
               "{} bytes to {}", read.bytes, static_cast<const void*>(read.destination));
    uint32_t index = static_cast<uint32_t>(requests_.size());
    if (free_requests_.empty()) {
      requests_.emplace_back();
    } else {
      index = free_requests_.back(), free_requests_.pop_back();
    }
    cut_.clear();
    cut_pieces(cut_, index, read.file, read.offset, read.bytes, read.destination, alignment_, source_.direct);
    requests_[index] = {read, static_cast<uint32_t>(cut_.size()), now, now, {}};
    ++outstanding_;
    for (const ReadPiece& p : cut_) {
      uint32_t at = static_cast<uint32_t>(pieces_.size());
      if (free_pieces_.empty()) {
        pieces_.push_back(p);
      } else {
        at = free_pieces_.back(), free_pieces_.pop_back(), pieces_[at] = p;
      }
      waiting_.push_back(at);
    }
  }
  if (advice_ == ReadAdvice::bounded && !source_.direct) hint();
  start();
}

/// Asks for read-ahead of the pieces behind those that start at once.
void QueuedReader::hint() {
  for (size_t i = concurrency(); i < waiting_.size(); ++i) {
    ReadPiece& p = pieces_[waiting_[i]];
    if (p.hinted) continue;
    if (hinted_bytes_ + p.bytes > hint_limit) return;
    ::posix_fadvise(file_of(p).fd(), static_cast<off_t>(p.offset), static_cast<off_t>(p.bytes),
                    POSIX_FADV_WILLNEED);
    p.hinted = true;
    hinted_bytes_ += p.bytes;
  }
}

uint32_t QueuedReader::take_waiting() {
  const uint32_t index = waiting_.front();
  waiting_.pop_front();
  return index;
}

std::optional<ReadDone> QueuedReader::next(bool wait) {
  if (done_.empty() && outstanding_ > 0) collect(false), start();
  while (done_.empty() && outstanding_ > 0 && wait) collect(true), start();
  if (done_.empty()) return std::nullopt;
  ReadDone done = std::move(done_.front());
  done_.pop_front();
  return done;
}

Fault QueuedReader::fault_of(const Request& request, const ReadPiece& piece, const Finished& finished) const {
  const ReadRequest& r = request.read;
  const InputFile& file = source_.files[r.file];
  const uint64_t landed_to = std::clamp(piece.offset + piece.landed, r.offset, r.offset + r.bytes);
  if (finished.step == ReadStep::failed)
    return {fmt::format("{}: reading {} bytes at offset {} failed at offset {}: {}", file.path(), r.bytes,
                        r.offset, landed_to, std::strerror(finished.error))};
  struct stat now {};
  const uint64_t size = ::fstat(file.fd(), &now) == 0 ? static_cast<uint64_t>(now.st_size) : 0;
  return {fmt::format(
      "{}: wanted {} bytes at offset {}, got {}: the file ends there; it has {} bytes now and had "
      "{} when it was opened",
      file.path(), r.bytes, r.offset, landed_to - r.offset, size, file.size())};
}

void QueuedReader::finish(const Finished& finished) {
  ReadPiece& p = pieces_[finished.piece];
  Request& request = requests_[p.request];
  counters_.bytes_read += p.transferred;
  request.end_ns = std::max(request.end_ns, finished.end_ns);
  if (finished.step != ReadStep::done && !request.fault) request.fault = fault_of(request, p, finished);
  if (p.hinted) hinted_bytes_ -= p.bytes;
  const uint32_t owner = p.request;
  free_pieces_.push_back(finished.piece);
  if (--request.pieces_left == 0) complete(owner);
}

void QueuedReader::complete(uint32_t index) {
  Request& request = requests_[index];
  ++counters_.reads;
  last_end_ns_ = std::max(last_end_ns_, request.end_ns);
  if (--outstanding_ == 0) counters_.read_busy_ns += last_end_ns_ - std::min(busy_since_ns_, last_end_ns_);
  if (ledger_)
    ledger_->read_span(request.begin_ns, request.end_ns, request.read.layer, request.read.expert,
                       request.read.bytes);
  done_.push_back({request.read.tag, std::move(request.fault)});
  free_requests_.push_back(index);
}

ExpertCounters QueuedReader::take_counters() {
  if (outstanding_ > 0) {
    const uint64_t now = now_ns();
    counters_.read_busy_ns += now - busy_since_ns_;
    busy_since_ns_ = now;
  }
  return std::exchange(counters_, {});
}

}  // namespace weir
