// The fast arithmetic for rows whose rotation and store have not run, each alone in its lane: a block is of
// one row, norms and rotates the query heads that it needs straight into shared memory, and the one whose
// chunk holds the row's own position makes the row's key and value too, for itself and for the cache. A lane
// has one such position, so no block needs what another one makes. The bits are those of rope.cu followed by
// attention_fast_chunks.cu.
#include <limits>

#include "device/cuda/attention_fast_chunk.cuh"
#include "device/cuda/parameters.cuh"
#include "device/cuda/rope.cuh"

namespace weir::cuda::attention {
namespace {

constexpr int load_threads = 32 * chunk_warps;
constexpr int threads = load_threads + 32;  ///< the last warp makes the key and the value

template <int kDim>
struct FusedShared {
  ChunkShared<kDim> chunk;
  float turn[threads / 32][kDim];
};

/// The query heads of a block: `heads` of the `ratio` that read its kv head, blockIdx.x, in `count` groups;
/// blockIdx.y = row * count + group. Chunks are slowest, blockIdx.z: those that no row sees come last.
struct Group {
  int ratio, heads, count;
};

/// One query head, as load_queries() would leave it in vector `vector`.
template <int kDim>
__device__ __forceinline__ void put_query(const float (&x)[kDim / 32], int vector, int lane,
                                          ChunkShared<kDim>& shared) {
  const int at = vector * (kDim + fast_pad) + lane;
#pragma unroll
  for (int i = 0; i < kDim / 32; ++i) {
    shared.high[at + 32 * i] = __half_as_ushort(__float2half_rn(x[i]));
    shared.low[at + 32 * i] = __half_as_ushort(__float2half_rn(x[i] - f16_part(x[i])));
  }
}

/// One row rounded, to shared memory, and to the cache where `store` is not null.
template <int kEach>
__device__ __forceinline__ void put_fresh(const float (&x)[kEach], int lane, uint16_t* to, uint16_t* store) {
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const uint16_t half = __half_as_ushort(__float2half_rn(x[i]));
    to[lane + 32 * i] = half;
    if (store) store[lane + 32 * i] = half;
  }
}

template <int kEach>
__device__ __forceinline__ void load_head(float (&x)[kEach], const float* from, int lane) {
#pragma unroll
  for (int i = 0; i < kEach; ++i) x[i] = from[lane + 32 * i];
}

/// Starts the copies of the chunk's keys and then of its values, a group each; those of the row's own
/// position are made here. By threads 0..load_threads - 1.
template <int kDim>
__device__ __forceinline__ void start_copies(const AttendArgs& args, int64_t base, int chunk, int position,
                                             ChunkShared<kDim>& shared) {
  load_chunk<kDim, load_threads, 1>(args.kv.k + base, args.kv.row_stride, chunk, position - 1, shared.k);
  cp_commit();
  load_chunk<kDim, load_threads, 1>(args.kv.v + base, args.kv.row_stride, chunk, position - 1, shared.v);
  cp_commit();
}

/// Scores that the row does not see become -inf, in s as scores() leaves it; the maxima of the warp's
/// positions go to `shared`, of the vectors that are heads.
template <int kDim>
__device__ __forceinline__ void mask_and_store_tops(const Span& seen, int begin, int heads, int warp,
                                                    int lane, float (&s)[4], ChunkShared<kDim>& shared) {
  const int g = lane / 4, t = lane % 4;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    if (8 * half >= heads) break;
#pragma unroll
    for (int i = 0; i < 2; ++i)
      if (!seen.has(begin + 8 * warp + 2 * t + i)) s[2 * half + i] = -std::numeric_limits<float>::infinity();
    float top = fmaxf(s[2 * half], s[2 * half + 1]);
    top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 1));
    top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 2));
    if (t == 0) shared.top[g + 8 * half][warp] = top;
  }
}

/// P of the warp's positions, and m, the maximum over all, of the vectors that are heads.
template <int kDim>
__device__ __forceinline__ void store_p(const float (&s)[4], int heads, int warp, int lane,
                                        ChunkShared<kDim>& shared, float (&m)[2]) {
  const int g = lane / 4, t = lane % 4;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    if (8 * half >= heads) break;
    m[half] = largest(shared, g + 8 * half);
    *reinterpret_cast<uint32_t*>(shared.p + (g + 8 * half) * (fast_chunk + fast_pad) + 8 * warp + 2 * t) =
        pack_halves(exp_f32(s[2 * half] - m[half]), exp_f32(s[2 * half + 1] - m[half]));
  }
}

template <int kDim>
__global__ void __launch_bounds__(threads, 2)
    fused_chunks_kernel(AttendArgs args, RopeStoreArgs rope, Partials partials, Group group, bool settled) {
  constexpr int each = kDim / 32, stride = kDim + fast_pad;
  WEIR_DYNAMIC_SHARED(bytes);
  auto& fused = *reinterpret_cast<FusedShared<kDim>*>(bytes);
  auto& shared = fused.chunk;
  allow_next();
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const bool makes_key = warp == chunk_warps;
  const int kv_head = blockIdx.x, chunk = blockIdx.z, row = static_cast<int>(blockIdx.y) / group.count;
  const int in_group = (static_cast<int>(blockIdx.y) - row * group.count) * group.heads;
  const int first_head = kv_head * group.ratio + in_group;
  const int heads = min(group.heads, group.ratio - in_group);
  const float* const norm = makes_key ? rope.k_norm : rope.q_norm;
  float weight[each];
  rope::load_weight(weight, norm, lane, kDim);
  const int row_head = row * args.heads + first_head, row_kv_head = row * args.kv_heads + kv_head;
  const float* const from =
      makes_key ? rope.k + row_kv_head * kDim : rope.q + (row_head + min(warp, heads - 1)) * kDim;
  const float* const value_from = rope.v + row_kv_head * kDim;
  fetch_parameters(args, rope, partials);
  float x[each], value[each];
  const auto wait_and_load = [&] {
    wait_for_previous();
    load_head(x, from, lane);
    if (makes_key) load_head(value, value_from, lane);
  };
  if (!settled) wait_and_load();

  // Past the first-level cache, which may hold an earlier round's.
  const int position = __ldcg(args.rows.position + row), kv_lane = __ldcg(args.rows.lane + row);
  const Span seen = span_of(position, args.window);
  const int begin = chunk * fast_chunk;
  const bool sees = begin <= seen.last && seen.first < begin + fast_chunk;
  const auto turn = rope::load_turn<each>(rope.rope, position, lane);
  const int64_t base = kv_lane * args.kv.lane_stride + static_cast<int64_t>(kv_head) * kDim;
  const int own = position - begin;  // of this chunk where it is below fast_chunk
  if (sees && !makes_key) start_copies(args, base, chunk, position, shared);
  if (settled) wait_and_load();
  if (!sees) return;
  if (makes_key ? own < fast_chunk : warp < heads) {
    if (norm) rope::apply_norm(x, weight, rope.eps, lane, kDim);
    rope::turn_head(x, turn, rope.rope, fused.turn[warp], lane, kDim);
    if (makes_key) {
      const bool stores = in_group == 0;
      const int64_t at = base + position * args.kv.row_stride;
      put_fresh(x, lane, shared.k + own * stride, stores ? rope.kv.k + at : nullptr);
      put_fresh(value, lane, shared.v + own * stride, stores ? rope.kv.v + at : nullptr);
    } else {
      put_query<kDim>(x, warp, lane, shared);
    }
  }
  if (warp + chunk_warps < heads) {  // more heads than warps
    load_head(x, from + chunk_warps * kDim, lane);
    if (norm) rope::apply_norm(x, weight, rope.eps, lane, kDim);
    rope::turn_head(x, turn, rope.rope, fused.turn[warp], lane, kDim);
    put_query<kDim>(x, warp + chunk_warps, lane, shared);
  }
  cp_wait<1>();
  __syncthreads();  // keys and queries of all threads are there

  // Vectors that are no heads hold what was there: their rows of the products go nowhere.
  float s[4], m[2] = {};
  if (!makes_key) {
    scores<kDim>(shared, args.scale, warp, lane, s);
    mask_and_store_tops(seen, begin, heads, warp, lane, s, shared);
  }
  __syncthreads();  // every tile's maximum is there
  if (!makes_key) store_p(s, heads, warp, lane, shared, m);
  cp_wait<0>();
  __syncthreads();  // P and the values are there
  if (makes_key) return;
  int64_t at[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int head = lane / 4 + 8 * half;
    at[half] = head < heads ? static_cast<int64_t>(row_head + head) * partials.chunks + chunk : -1;
  }
  values<kDim>(shared, at, m, partials, warp, lane);
}

template <int kDim>
void launch_fused(Stream& s, const AttendArgs& args, const RopeStoreArgs& rope, const Partials& partials,
                  bool settled) {
  const Packing packing = pack(args, chunk_vectors, 1);
  const int chunks = (args.rows.longest + fast_chunk - 1) / fast_chunk;
  launch(s, "attend", fused_chunks_kernel<kDim>,
         dim3(static_cast<unsigned>(args.kv_heads), static_cast<unsigned>(args.rows.count * packing.groups),
              static_cast<unsigned>(chunks)),
         dim3(threads), sizeof(FusedShared<kDim>), args, rope, partials,
         Group{args.heads / args.kv_heads, packing.heads, packing.groups}, settled);
}

}  // namespace

void fused_fast_chunks(Stream& s, const AttendArgs& args, const RopeStoreArgs& rope, const Partials& partials,
                       bool settled) {
  switch (args.head_dim) {
    case 64:
      return launch_fused<64>(s, args, rope, partials, settled);
    case 128:
      return launch_fused<128>(s, args, rope, partials, settled);
    default:
      return launch_fused<256>(s, args, rope, partials, settled);
  }
}

}  // namespace weir::cuda::attention
