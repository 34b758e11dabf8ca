// One kernel read of an expert slice: which bytes of which file go where, and what a result means. Pure
// arithmetic, shared by io_uring and the thread pool, so that both treat short reads and errors alike.
#pragma once

#include <cstdint>
#include <vector>

namespace weir {

/// A slice of up to this many bytes is one read; longer ones are cut, so that one expert's bytes come with
/// several reads in flight even at queue depth one expert (docs/streaming.md has the figures).
inline constexpr uint64_t read_piece_bytes = 1u << 20;

struct ReadPiece {
  uint32_t request = 0;
  uint32_t file = 0;
  uint64_t offset = 0;             ///< in the file; aligned where unbuffered
  uint64_t bytes = 0;              ///< of the read; aligned where unbuffered
  uint64_t needed = 0;             ///< the first `needed` bytes must land: the rest is alignment
  uint8_t* destination = nullptr;  ///< where offset's byte goes
  uint64_t landed = 0;             ///< bytes from offset that have landed
  uint64_t start = 0;              ///< where the next read begins, from offset
  uint64_t transferred = 0;        ///< bytes the kernel has delivered, repeats included
  int again = 0;                   ///< EAGAIN results so far
  bool hinted = false;             ///< read-ahead was asked for
};

/// What the read of a piece came to.
enum class ReadStep : uint8_t {
  done,
  again,   ///< read on from piece.start
  ended,   ///< the file ended before the needed bytes
  failed,  ///< an error other than a passing one
};

/// Takes a read's result (bytes, or -errno) into account. `alignment` is 1 where buffered.
ReadStep advance(ReadPiece& piece, int64_t result, uint64_t alignment);

/// The pieces of the slice [offset, offset + bytes) whose first byte goes to destination + offset %
/// alignment. Unbuffered: they cover the enclosing aligned span, which may reach beyond the end of the file.
void cut_pieces(std::vector<ReadPiece>& out, uint32_t request, uint32_t file, uint64_t offset, uint64_t bytes,
                uint8_t* destination, uint64_t alignment, bool direct);

}  // namespace weir
