// The fast arithmetic for many rows: a block holds up to 64 query vectors (adjacent rows of one kv head's
// heads), 16 a warp, walks the chunks that they see in order and joins each to what is there in registers, by
// the formula that attention.cu applies to chunks computed apart.
#include <limits>

#include "device/cuda/attention_fast.cuh"

namespace weir::cuda::attention {
namespace {

constexpr int warps = 4, threads = 32 * warps, vectors = 16 * warps;
constexpr int tiles = fast_chunk / 8;  ///< column tiles of scores

template <int kDim>
struct WalkShared {
  static constexpr int stride = kDim + fast_pad;
  uint16_t k[fast_chunk * stride], v[fast_chunk * stride];
  uint16_t high[vectors * stride], low[vectors * stride];
};

/// A lane's share of the warp's 16 vectors: index 0 is vector g, 1 is vector g + 8.
template <int kDim>
struct State {
  float M[2], L[2];
  float O[kDim / 8][4];
};

/// Scores of 16 vectors and the whole chunk, four column tiles at a time.
template <int kDim>
__device__ __forceinline__ void scores(const WalkShared<kDim>& shared, float scale, int warp, int lane,
                                       float (&s)[tiles][4]) {
  constexpr int stride = kDim + fast_pad, together = 4;
#pragma unroll
  for (int first = 0; first < tiles; first += together) {
    float high[together][4] = {}, low[together][4] = {};
#pragma unroll 1
    for (int d = 0; d < kDim; d += 16) {
      uint32_t a[4], b[4], c[4];
      load_a(a, shared.high + 16 * warp * stride, stride, d, lane);
      load_a(c, shared.low + 16 * warp * stride, stride, d, lane);
#pragma unroll
      for (int pair = 0; pair < together; pair += 2) {
        ldmatrix_x4(
            b, shared.k + (8 * (first + pair) + lane / 16 * 8 + lane % 8) * stride + d + lane / 8 % 2 * 8);
        mma_f16(high[pair], a, b[0], b[1]);
        mma_f16(high[pair + 1], a, b[2], b[3]);
        mma_f16(low[pair], c, b[0], b[1]);
        mma_f16(low[pair + 1], c, b[2], b[3]);
      }
    }
#pragma unroll
    for (int tile = 0; tile < together; ++tile) {
#pragma unroll
      for (int i = 0; i < 4; ++i) s[first + tile][i] = (high[tile][i] + low[tile][i]) * scale;
    }
  }
}

/// Masks the scores and turns them into P, as A of the products with V. `sees`: whether the vector sees
/// anything of the chunk; where not, its P is zeros.
__device__ __forceinline__ void softmax(float (&s)[tiles][4], const Span (&seen)[2], const bool (&sees)[2],
                                        int chunk, int lane, float (&m)[2], uint32_t (&p)[fast_steps][4]) {
  constexpr float none = -std::numeric_limits<float>::infinity();
  const int begin = chunk * fast_chunk;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    if (seen[half].first > begin || seen[half].last < begin + fast_chunk - 1) {
      const int first = seen[half].first - begin - lane % 4 * 2,
                last = seen[half].last - begin - lane % 4 * 2;
#pragma unroll
      for (int tile = 0; tile < tiles; ++tile) {
#pragma unroll
        for (int i = 0; i < 2; ++i)
          if (8 * tile + i < first || 8 * tile + i > last) s[tile][2 * half + i] = none;
      }
    }
    float top = none;
#pragma unroll
    for (int tile = 0; tile < tiles; ++tile)
      top = fmaxf(top, fmaxf(s[tile][2 * half], s[tile][2 * half + 1]));
    top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 1));
    m[half] = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 2));
    const float subtract = sees[half] ? m[half] : 0.0f;
#pragma unroll
    for (int tile = 0; tile < tiles; ++tile)
      p[tile / 2][tile % 2 * 2 + half] =
          pack_halves(exp_f32(s[tile][2 * half] - subtract), exp_f32(s[tile][2 * half + 1] - subtract));
  }
}

/// The chunk's l and o onto the state of the vectors that see it. The others share the tensor core's tile:
/// their o is 0 * v, which is no zero where v is not finite.
template <int kDim>
__device__ __forceinline__ void add_values(const WalkShared<kDim>& shared, const uint32_t (&p)[fast_steps][4],
                                           const bool (&sees)[2], const float (&a)[2], const float (&b)[2],
                                           int lane, State<kDim>& state) {
  constexpr int stride = kDim + fast_pad, together = 4;
  float l[4] = {};
#pragma unroll
  for (int step = 0; step < fast_steps; ++step) sum_step(l, p[step]);
#pragma unroll
  for (int half = 0; half < 2; ++half)
    if (sees[half]) state.L[half] = fmaf(state.L[half], a[half], l[2 * half] * b[half]);
#pragma unroll
  for (int first = 0; first < kDim / 8; first += together) {
    float o[together][4] = {};
#pragma unroll
    for (int step = 0; step < fast_steps; ++step) {
#pragma unroll
      for (int pair = 0; pair < together; pair += 2) {
        uint32_t v[4];
        ldmatrix_x4_trans(v,
                          shared.v + (16 * step + lane % 16) * stride + 8 * (first + pair) + lane / 16 * 8);
        mma_f16(o[pair], p[step], v[0], v[1]);
        mma_f16(o[pair + 1], p[step], v[2], v[3]);
      }
    }
#pragma unroll
    for (int tile = 0; tile < together; ++tile) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        float& O = state.O[first + tile][i];
        if (sees[i / 2]) O = fmaf(O, a[i / 2], o[tile][i] * b[i / 2]);
      }
    }
  }
}

/// All chunks that the rows of `run` see; all threads of the block. `seen`: of the lane's two vectors, empty
/// where they are not of this run.
template <int kDim>
__device__ __forceinline__ void walk_run(const AttendArgs& args, const Place& place, const Run& run,
                                         const Span (&seen)[2], WalkShared<kDim>& shared,
                                         State<kDim>& state) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int64_t base = run.lane * args.kv.lane_stride + static_cast<int64_t>(place.kv_head) * kDim;
  const int last_chunk = run.seen.last / fast_chunk;
  int chunk = run.seen.first / fast_chunk;
  load_chunk<kDim, threads>(args.kv.k + base, args.kv.row_stride, chunk, run.seen.last, shared.k);
  cp_commit();
  load_chunk<kDim, threads>(args.kv.v + base, args.kv.row_stride, chunk, run.seen.last, shared.v);
  cp_commit();
  for (; chunk <= last_chunk; ++chunk) {
    bool sees[2];
#pragma unroll
    for (int half = 0; half < 2; ++half)
      sees[half] = seen[half].first < (chunk + 1) * fast_chunk && seen[half].last >= chunk * fast_chunk;
    const bool any = __any_sync(0xffffffffu, sees[0] || sees[1]);
    float s[tiles][4];
    cp_wait<1>();
    __syncthreads();  // the keys of all threads' copies are there
    if (any) scores<kDim>(shared, args.scale, warp, lane, s);
    __syncthreads();  // all have read the keys
    if (chunk < last_chunk)
      load_chunk<kDim, threads>(args.kv.k + base, args.kv.row_stride, chunk + 1, run.seen.last, shared.k);
    cp_commit();
    uint32_t p[fast_steps][4];
    float a[2], b[2];
    if (any) {
      float m[2];
      softmax(s, seen, sees, chunk, lane, m, p);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        // Not seen: O and L stay, by factors that leave every value as it is. The first chunk: 0 * 0 + o * 1.
        a[half] = 1, b[half] = 0;
        if (!sees[half]) continue;
        Join factors{m[half], 0, 1};
        if (seen[half].first < chunk * fast_chunk) factors = join(state.M[half], m[half]);
        state.M[half] = factors.joint, a[half] = factors.a, b[half] = factors.b;
      }
    }
    cp_wait<1>();
    __syncthreads();  // the values are there
    if (any) add_values<kDim>(shared, p, sees, a, b, lane, state);
    __syncthreads();  // all have read the values
    if (chunk < last_chunk)
      load_chunk<kDim, threads>(args.kv.v + base, args.kv.row_stride, chunk + 1, run.seen.last, shared.v);
    cp_commit();
  }
}

template <int kDim>
__global__ void __launch_bounds__(threads, kDim <= 128 ? 3 : 1)
    fast_walk_kernel(AttendArgs args, Packing packing) {
  WEIR_DYNAMIC_SHARED(bytes);
  auto& shared = *reinterpret_cast<WalkShared<kDim>*>(bytes);
  allow_next();
  // The last rows see most: they start first, so that the short blocks fill the end.
  const Place place = place_of(args, packing, gridDim.x - 1 - blockIdx.x);
  const int end_row = place.first_row + place.rows;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, t = lane % 4;
  int row[2], head[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int vector = 16 * warp + lane / 4 + 8 * half;
    row[half] = place.first_row + vector / packing.heads, head[half] = vector % packing.heads;
    if (head[half] >= place.heads) row[half] = end_row;  // none
  }
  wait_for_previous();

  State<kDim> state{};
  load_queries<kDim, vectors, threads>(args, place, packing.heads, shared.high, shared.low);
  for (int first = place.first_row; first < end_row;) {
    const Run run = run_at(args, first, end_row);
    Span seen[2];
#pragma unroll
    for (int half = 0; half < 2; ++half)
      if (row[half] >= run.begin && row[half] < run.end)
        seen[half] = span_of(args.rows.position[row[half]], args.window);
    walk_run<kDim>(args, place, run, seen, shared, state);
    first = run.end;
  }

#pragma unroll
  for (int half = 0; half < 2; ++half) {
    if (row[half] >= end_row) continue;
    const int h = place.first_head + head[half];
    const Closing end = close_row(state.M[half], state.L[half], args.sinks ? args.sinks + h : nullptr);
    float* const out = args.out + (static_cast<int64_t>(row[half]) * args.heads + h) * kDim + 2 * t;
#pragma unroll
    for (int tile = 0; tile < kDim / 8; ++tile)
      *reinterpret_cast<float2*>(out + 8 * tile) = make_float2(
          (state.O[tile][2 * half] * end.a) * end.inv, (state.O[tile][2 * half + 1] * end.a) * end.inv);
  }
}

Packing pack_walk(const AttendArgs& args) {
  Packing packing = pack(args, vectors, 1);
  packing.rows = vectors / packing.heads;
  return packing;
}

template <int kDim>
void launch_walk(Stream& s, const AttendArgs& args) {
  launch(s, "attend", fast_walk_kernel<kDim>, dim3(static_cast<unsigned>(fast_walk_blocks(args))),
         dim3(threads), sizeof(WalkShared<kDim>), args, pack_walk(args));
}

}  // namespace

int64_t fast_walk_blocks(const AttendArgs& args) {
  const Packing packing = pack_walk(args);
  return static_cast<int64_t>((args.rows.count + packing.rows - 1) / packing.rows) * packing.groups *
         args.kv_heads;
}

void fast_walk(Stream& s, const AttendArgs& args) {
  switch (args.head_dim) {
    case 64:
      return launch_walk<64>(s, args);
    case 128:
      return launch_walk<128>(s, args);
    default:
      return launch_walk<256>(s, args);
  }
}

}  // namespace weir::cuda::attention
