// The fast arithmetic for few rows: a block computes one chunk for up to 16 query vectors of one kv head, so
// that even one row's keys are spread over all multiprocessors. Its eight warps share the positions for the
// scores and the dimensions for the values.
#include <limits>

#include "device/cuda/attention_fast_chunk.cuh"
#include "device/cuda/parameters.cuh"

namespace weir::cuda::attention {
namespace {

constexpr int threads = 32 * chunk_warps, vectors = chunk_vectors;

/// The chunk for the rows of `run`; all threads of the block.
template <int kDim>
__device__ __forceinline__ void chunk_of_run(const AttendArgs& args, const Partials& partials,
                                             const Packing& packing, const Place& place, const Run& run,
                                             int chunk, bool first_run, ChunkShared<kDim>& shared) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const int64_t base = run.lane * args.kv.lane_stride + static_cast<int64_t>(place.kv_head) * kDim;
  load_chunk<kDim, threads>(args.kv.k + base, args.kv.row_stride, chunk, run.seen.last, shared.k);
  cp_commit();
  load_chunk<kDim, threads>(args.kv.v + base, args.kv.row_stride, chunk, run.seen.last, shared.v);
  cp_commit();
  if (first_run) load_queries<kDim, vectors, threads>(args, place, packing.heads, shared.high, shared.low);

  Span seen[2];
  int64_t at[2];  // of the vector's results, or -1: not of this run, or the chunk is not seen
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int vector = g + 8 * half, head = vector % packing.heads;
    const int row = place.first_row + vector / packing.heads;
    at[half] = -1;
    if (row < run.begin || row >= run.end || head >= place.heads) continue;
    seen[half] = span_of(args.rows.position[row], args.window);
    if (seen[half].last >= chunk * fast_chunk && seen[half].first < (chunk + 1) * fast_chunk)
      at[half] = (static_cast<int64_t>(row) * args.heads + place.first_head + head) * partials.chunks + chunk;
  }
  cp_wait<1>();
  __syncthreads();  // keys and queries of all threads are there

  float s[4];
  scores<kDim>(shared, args.scale, warp, lane, s);
  float m[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
#pragma unroll
    for (int i = 0; i < 2; ++i)
      if (!seen[half].has(chunk * fast_chunk + 8 * warp + 2 * t + i))
        s[2 * half + i] = -std::numeric_limits<float>::infinity();
    float top = fmaxf(s[2 * half], s[2 * half + 1]);
    top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 1));
    top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 2));
    if (t == 0) shared.top[g + 8 * half][warp] = top;
  }
  __syncthreads();  // every tile's maximum is there
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    m[half] = largest(shared, g + 8 * half);
    *reinterpret_cast<uint32_t*>(shared.p + (g + 8 * half) * (fast_chunk + fast_pad) + 8 * warp + 2 * t) =
        pack_halves(exp_f32(s[2 * half] - m[half]), exp_f32(s[2 * half + 1] - m[half]));
  }
  cp_wait<0>();
  __syncthreads();  // P and the values are there
  values<kDim>(shared, at, m, partials, warp, lane);
}

template <int kDim>
__global__ void __launch_bounds__(threads, 2)
    fast_chunks_kernel(AttendArgs args, Partials partials, Packing packing) {
  WEIR_DYNAMIC_SHARED(bytes);
  auto& shared = *reinterpret_cast<ChunkShared<kDim>*>(bytes);
  allow_next();
  const Place place = place_of(args, packing, blockIdx.x);
  const int chunk = blockIdx.y;
  fetch_parameters(args, partials, packing);
  wait_for_previous();
  bool first_run = true;
  for (int row = place.first_row; row < place.first_row + place.rows;) {
    const Run run = run_at(args, row, place.first_row + place.rows);
    row = run.end;
    if (run.seen.last < chunk * fast_chunk || run.seen.first >= (chunk + 1) * fast_chunk) continue;
    if (!first_run) __syncthreads();  // the run before has read what this one overwrites
    chunk_of_run<kDim>(args, partials, packing, place, run, chunk, first_run, shared);
    first_run = false;
  }
}

template <int kDim>
void launch_chunks(Stream& s, const AttendArgs& args, const Partials& partials) {
  // Rows share a block where several of a lane are likely; rows of different lanes would only wait for one
  // another in it. Neighbouring blocks read the same keys from L2.
  const uint64_t alone = static_cast<uint64_t>(args.rows.count) * static_cast<uint64_t>(args.rows.longest);
  Packing packing = pack(args, vectors, 1);
  if (args.rows.kv_positions * 2 <= alone) packing.rows = std::min(vectors / packing.heads, args.rows.count);
  const int row_tiles = (args.rows.count + packing.rows - 1) / packing.rows;
  const int chunks = (args.rows.longest + fast_chunk - 1) / fast_chunk;
  launch(
      s, "attend", fast_chunks_kernel<kDim>,
      dim3(static_cast<unsigned>(row_tiles * packing.groups * args.kv_heads), static_cast<unsigned>(chunks)),
      dim3(threads), sizeof(ChunkShared<kDim>), args, partials, packing);
}

}  // namespace

bool has_fast(int head_dim) { return head_dim == 64 || head_dim == 128 || head_dim == 256; }

void fast_chunks(Stream& s, const AttendArgs& args, const Partials& partials) {
  switch (args.head_dim) {
    case 64:
      return launch_chunks<64>(s, args, partials);
    case 128:
      return launch_chunks<128>(s, args, partials);
    default:
      return launch_chunks<256>(s, args, partials);
  }
}

}  // namespace weir::cuda::attention
