// Cutting spans into reads, and the meaning of a read's result.
#include "experts/read_piece.h"

#include <algorithm>
#include <cerrno>

namespace weir {

ReadStep advance(ReadPiece& piece, int64_t result, uint64_t alignment) {
  constexpr int patience = 1000;
  if (result == -EINTR) return ReadStep::again;
  if (result == -EAGAIN && ++piece.again < patience) return ReadStep::again;
  if (result < 0) return ReadStep::failed;
  const uint64_t end = piece.start + static_cast<uint64_t>(result);
  piece.transferred += static_cast<uint64_t>(result);
  const bool progress = end > piece.landed;
  piece.landed = std::max(piece.landed, end);
  if (piece.landed >= piece.needed) return ReadStep::done;
  // An unbuffered read goes on from an aligned offset, so a short one at the end of the file repeats its last
  // bytes and makes no progress.
  if (!progress) return ReadStep::ended;
  piece.start = piece.landed / alignment * alignment;
  return ReadStep::again;
}

void cut_pieces(std::vector<ReadPiece>& out, uint32_t request, uint32_t file, uint64_t offset, uint64_t bytes,
                uint8_t* destination, uint64_t alignment, bool direct) {
  const uint64_t span = offset / alignment * alignment;  // lands at destination
  const uint64_t slice_end = offset + bytes;
  const uint64_t end = direct ? (slice_end + alignment - 1) / alignment * alignment : slice_end;
  const uint64_t piece_bytes = std::max(read_piece_bytes / alignment, uint64_t{1}) * alignment;
  for (uint64_t at = direct ? span : offset; at < end;) {
    const uint64_t next = std::min(end, at / alignment * alignment + piece_bytes);
    ReadPiece piece;
    piece.request = request;
    piece.file = file;
    piece.offset = at;
    piece.bytes = next - at;
    piece.needed = std::min(next, slice_end) - at;
    piece.destination = destination + (at - span);
    out.push_back(piece);
    at = next;
  }
}

}  // namespace weir
