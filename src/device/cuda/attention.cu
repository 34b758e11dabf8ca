// Attention's choices: which arithmetic's kernels, in which slices of the batch, and the joining of chunks
// that were computed apart.
#include <algorithm>

#include "device/cuda/attention.cuh"
#include "device/cuda/parameters.cuh"

namespace weir::cuda {
namespace attention {
namespace {

constexpr size_t most_partial_bytes = size_t{64} << 20;

constexpr int threads = 128, warps = threads / 32;
constexpr int part = 32;   ///< dimensions of a head that a block joins
constexpr int pass = 512;  ///< chunks whose results a block holds at a time
constexpr int early = 64;  ///< chunks that are loaded before it is known how many the row sees
static_assert(pass % 32 == 0);

/// A chunk's factors: fma(L, a, lb), fma(O, a, o * b), and the maximum after it.
struct Factors {
  float a, b, lb, M;
};

struct JoinShared {
  float* o;       ///< [capacity][part]
  float2* ml;     ///< [capacity]
  Factors* step;  ///< [capacity]
};

/// Starts the copies of chunks begin..end - 1 (begin even), one group.
__device__ __forceinline__ void load(const Partials& partials, int64_t head_at, int begin, int end,
                                     int head_dim, int first_d, const JoinShared& shared) {
  const int width = min(part, head_dim - first_d) / 4;  // in 16-byte pieces
  for (int i = threadIdx.x; i < (end - begin + 1) / 2; i += threads)
    cp_async16(shared.ml + 2 * i, partials.ml + head_at + begin + 2 * i);
  for (int i = threadIdx.x; i < (end - begin) * (part / 4); i += threads) {
    const int c = i / (part / 4), piece = i % (part / 4);
    if (piece < width)
      cp_async16(shared.o + c * part + 4 * piece,
                 partials.o + (head_at + begin + c) * head_dim + first_d + 4 * piece);
  }
  cp_commit();
}

__device__ __forceinline__ float warp_max(float x) {
#pragma unroll
  for (int width = 16; width > 0; width /= 2) x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, width));
  return x;
}

/// Factors of `count` chunks from ml[offset] on, 32 a warp, `before` being the maximum of the passes before.
/// Running maxima are exact in any order, so all steps' factors can be formed at once.
__device__ __forceinline__ void make_factors(const JoinShared& shared, int offset, int count, float before) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  for (int begin = 32 * warp; begin < count; begin += 32 * warps) {
    float top = before;
    for (int i = lane; i < begin; i += 32) top = fmaxf(top, shared.ml[offset + i].x);
    top = warp_max(top);
    const int i = begin + lane;
    const float2 ml = i < count ? shared.ml[offset + i] : make_float2(top, 0);
    float M = fmaxf(top, ml.x);
#pragma unroll
    for (int width = 1; width < 32; width *= 2) {
      const float other = __shfl_up_sync(0xffffffffu, M, width);
      if (lane >= width) M = fmaxf(M, other);
    }
    float previous = __shfl_up_sync(0xffffffffu, M, 1);
    if (lane == 0) previous = top;
    const Join factors = join(previous, ml.x);
    if (i < count) shared.step[i] = {factors.a, factors.b, ml.y * factors.b, M};
  }
}

/// Joins the chunks of one row and head, `part` dimensions: blockIdx.x = head * parts + part, blockIdx.y =
/// row.
__global__ void __launch_bounds__(threads) join_kernel(AttendArgs args, Partials partials, int capacity) {
  WEIR_DYNAMIC_SHARED(bytes);
  const JoinShared shared{reinterpret_cast<float*>(bytes),
                          reinterpret_cast<float2*>(bytes + capacity * part * 4),
                          reinterpret_cast<Factors*>(bytes + capacity * (part * 4 + 8))};
  allow_next();
  const int n = args.head_dim, parts = (n + part - 1) / part;
  const int head = static_cast<int>(blockIdx.x) / parts,
            first_d = static_cast<int>(blockIdx.x) % parts * part;
  const int row = blockIdx.y, d = threadIdx.x;
  const int64_t head_at = (static_cast<int64_t>(row) * args.heads + head) * partials.chunks;
  fetch_parameters(args, partials);
  wait_for_previous();

  // Few chunks: all are loaded at once, those that the row does not see too, while its position is on its
  // way.
  const bool at_once = partials.chunks <= early && args.window == 0;
  if (at_once) load(partials, head_at, 0, partials.chunks, n, first_d, shared);
  const Span seen = span_of(args.rows.position[row], args.window);
  const int end = seen.last / partials.chunk + 1;
  const int first = seen.first / partials.chunk;
  float M = -INFINITY, L = 0, O = 0;
  for (int begin = first; begin < end;) {
    const int base = at_once ? 0 : begin / 2 * 2;  // even: ml's copies are of two chunks
    const int stop = at_once ? end : min(end, base + capacity);
    if (!at_once) {
      __syncthreads();  // the pass before has been read
      load(partials, head_at, base, stop, n, first_d, shared);
    }
    const int offset = begin - base, count = stop - begin;
    cp_wait<0>();
    __syncthreads();  // the copies of all threads are there
    make_factors(shared, offset, count, M);
    __syncthreads();  // the factors of all warps are there
    M = shared.step[count - 1].M;
    if (d < part) {
      const float* o = shared.o + offset * part + d;
      int i = 0;
      if (begin == first) {
        L = shared.ml[offset].y, O = o[0];
        i = 1;
      }
#pragma unroll 8
      for (; i < count; ++i) {
        const Factors f = shared.step[i];
        L = fmaf(L, f.a, f.lb);
        O = fmaf(O, f.a, o[i * part] * f.b);
      }
    }
    begin = stop;
  }
  if (d < part && first_d + d < n) {
    const Closing y = close_row(M, L, args.sinks ? args.sinks + head : nullptr);
    args.out[(static_cast<int64_t>(row) * args.heads + head) * n + first_d + d] = (O * y.a) * y.inv;
  }
}

void join_chunks(Stream& s, const AttendArgs& args, const Partials& partials) {
  const int capacity = std::min(pass, (partials.chunks + 1) / 2 * 2);
  constexpr size_t chunk_bytes = part * sizeof(float) + sizeof(float2) + sizeof(Factors);
  const size_t bytes = static_cast<size_t>(capacity) * chunk_bytes;
  const int parts = (args.head_dim + part - 1) / part;
  launch(s, "attend", join_kernel,
         dim3(static_cast<unsigned>(args.heads * parts), static_cast<unsigned>(args.rows.count)),
         dim3(threads), bytes, args, partials, capacity);
}

int chunks_of(int longest, int chunk) { return ((std::max(longest, 1) + chunk - 1) / chunk + 1) / 2 * 2; }

size_t row_bytes(int heads, int head_dim, int chunks) {
  return static_cast<size_t>(heads) * static_cast<size_t>(chunks) *
         (static_cast<size_t>(head_dim) * sizeof(float) + sizeof(float2));
}

AttendArgs slice(const AttendArgs& args, int begin, int count) {
  AttendArgs part_of = args;
  part_of.q += static_cast<int64_t>(begin) * args.heads * args.head_dim;
  part_of.out += static_cast<int64_t>(begin) * args.heads * args.head_dim;
  part_of.rows.position += begin, part_of.rows.lane += begin;
  part_of.rows.count = count;
  return part_of;
}

RopeStoreArgs slice(const RopeStoreArgs& rope, int begin, int count) {
  RopeStoreArgs part_of = rope;
  part_of.q += static_cast<int64_t>(begin) * rope.heads * rope.head_dim;
  part_of.k += static_cast<int64_t>(begin) * rope.kv_heads * rope.head_dim;
  part_of.v += static_cast<int64_t>(begin) * rope.kv_heads * rope.head_dim;
  part_of.rows.position += begin, part_of.rows.lane += begin;
  part_of.rows.count = count;
  return part_of;
}

}  // namespace
}  // namespace attention

size_t attend_partial_bytes(int rows, int heads, int head_dim, int longest) {
  using namespace attention;
  // A slice has at least one row: of the chunks of the fast arithmetic, or where those are more than the
  // bound (it walks then) of the portable one.
  const size_t fast = row_bytes(heads, head_dim, chunks_of(longest, fast_chunk));
  const size_t portable = row_bytes(heads, head_dim, chunks_of(longest, portable_chunk));
  if (fast > most_partial_bytes) return std::max(portable, most_partial_bytes);
  return std::min(static_cast<size_t>(std::max(rows, 1)), most_partial_bytes / fast) * fast;
}

bool attend_rotates(const Rows& rows, int head_dim, Arithmetic arithmetic) {
  const bool fast = arithmetic == Arithmetic::fast && attention::has_fast(head_dim);
  return rows.count == 1 || (fast && rows.lone && rows.count <= small_rows);
}

bool attend(Stream& s, const AttendArgs& args, Arithmetic arithmetic, void* partials, size_t partial_bytes,
            const AttendMore& more) {
  using namespace attention;
  if (args.rows.count == 0) return false;
  WEIR_CHECK(args.head_dim % head_dim_multiple == 0 && args.head_dim <= max_head_dim &&
                 args.heads % args.kv_heads == 0,
             "attend: head_dim {}, heads {} and {}", args.head_dim, args.heads, args.kv_heads);
  WEIR_CHECK(args.rows.longest > 0, "attend: {} rows and no positions", args.rows.count);
  WEIR_CHECK(!more.rope || attend_rotates(args.rows, args.head_dim, arithmetic), "attend: {} rows to rotate",
             args.rows.count);
  const bool fast = arithmetic == Arithmetic::fast && has_fast(args.head_dim);
  Partials p;
  p.chunk = fast ? fast_chunk : portable_chunk;
  p.chunks = chunks_of(args.rows.longest, p.chunk);
  const size_t each = row_bytes(args.heads, args.head_dim, p.chunks);
  // Enough blocks to fill half the device, or no room for the chunks of one row: no partials at all.
  if (fast && (fast_walk_blocks(args) * 2 >= s.multiprocessors || each > partial_bytes)) {
    if (more.rope) rope_and_store(s, *more.rope);
    fast_walk(s, args);
    return false;
  }
  WEIR_CHECK(each <= partial_bytes, "attend: {} bytes for partial results, {} are needed", partial_bytes,
             each);
  // Rows of a launch lie in y, which ends at 65,535.
  const int most = static_cast<int>(std::min<size_t>(partial_bytes / each, 65535));
  for (int begin = 0; begin < args.rows.count; begin += most) {
    const int count = std::min(most, args.rows.count - begin);
    const AttendArgs some = slice(args, begin, count);
    p.ml = static_cast<float2*>(partials);
    p.o = reinterpret_cast<float*>(p.ml + static_cast<int64_t>(some.rows.count) * args.heads * p.chunks);
    if (!more.rope)
      (fast ? fast_chunks : portable_chunks)(s, some, p);
    else if (fast)  // the slice before writes the cache
      fused_fast_chunks(s, some, slice(*more.rope, begin, count), p, more.settled && begin == 0);
    else
      fused_portable_chunks(s, some, *more.rope, p);
    if (more.acts && count == args.rows.count && joins_quantised(args, p, *more.acts)) {
      join_quantised(s, some, p, *more.acts, more.settled);
      return true;
    }
    join_chunks(s, some, p);
  }
  return false;
}

}  // namespace weir::cuda
