// The portable arithmetic of attention, bit for bit docs/arithmetic.md: a block computes one chunk of 256
// positions for some heads of one kv head and one or more rows. Scores: a thread for each position; values: a
// thread for two dimensions of a head, which walks the positions in order.
#include <cuda_fp16.h>

#include <cstring>
#include <limits>

#include "device/cuda/attention.cuh"
#include "device/cuda/rope.cuh"

namespace weir::cuda::attention {
namespace {

constexpr int threads = 512, warps = threads / 32;
constexpr int chunk_size = portable_chunk;
constexpr int sides = threads / chunk_size;  ///< of the block's heads, each side scores its share
constexpr int most_heads = warps;            ///< a warp makes one head's weights
constexpr int most_rows = 8;
constexpr int most_shared = 227 << 10;  ///< bytes that a block can have
constexpr float none = -std::numeric_limits<float>::infinity();

/// Where a block's shared memory lies, in bytes. Rows of keys are padded by 16 bytes, so that eight threads'
/// 16-byte loads of eight rows meet no bank twice.
struct Layout {
  int k_stride = 0;  ///< elements
  int v = 0, q = 0, s = 0, bytes = 0;
  bool one_buffer = false;  ///< the values take the place of the keys: both would not fit
};

Layout layout_of(int head_dim, int heads) {
  Layout l;
  l.k_stride = head_dim + 8;
  const int k = chunk_size * l.k_stride * 2, v = chunk_size * head_dim * 2;
  const int rest = heads * (head_dim + chunk_size) * 4;
  l.one_buffer = k + v + rest > most_shared;
  l.v = l.one_buffer ? 0 : k;
  l.q = l.one_buffer ? k : k + v;
  l.s = l.q + heads * head_dim * 4;
  l.bytes = l.s + heads * chunk_size * 4;
  return l;
}

/// The row that is rotated and stored here, or nothing.
template <bool kFused>
struct Fresh {};
template <>
struct Fresh<true> {
  RopeStoreArgs rope;
};

__device__ __forceinline__ float2 halves(uint32_t bits) {
  __half2 pair;
  std::memcpy(&pair, &bits, sizeof bits);
  return __half22float2(pair);
}

/// Starts the copy of the chunk's rows up to `last`.
__device__ __forceinline__ void load(const uint16_t* base, int64_t row_stride, int chunk, int last,
                                     int head_dim, uint16_t* to, int stride) {
  const int pieces = head_dim / 8;  // of 16 bytes
  const int rows = min(chunk_size, last - chunk * chunk_size + 1);
#pragma unroll 1
  for (int i = threadIdx.x; i < rows * pieces; i += threads) {
    const int j = i / pieces, d = i % pieces * 8;
    cp_async16(to + j * stride + d, base + (chunk * chunk_size + j) * row_stride + d);
  }
}

/// The partial sums of elements 8k..8k + 7 of every 32: sum[e] over i = e + 8k, + 32, ..., for kHeads
/// queries.
template <int kHeads>
__device__ __forceinline__ void partial_sums(const uint16_t* key, const float* q, int head_dim, int k,
                                             float (&sum)[kHeads][8]) {
#pragma unroll
  for (int h = 0; h < kHeads; ++h)
#pragma unroll
    for (int e = 0; e < 8; ++e) sum[h][e] = 0;
#pragma unroll 1
  for (int i = 8 * k; i < head_dim; i += 32) {
    const uint4 x = *reinterpret_cast<const uint4*>(key + i);
    const float2 v0 = halves(x.x), v1 = halves(x.y), v2 = halves(x.z), v3 = halves(x.w);
    const float value[8] = {v0.x, v0.y, v1.x, v1.y, v2.x, v2.y, v3.x, v3.y};
#pragma unroll
    for (int h = 0; h < kHeads; ++h) {
      const float4 a = *reinterpret_cast<const float4*>(q + h * head_dim + i);
      const float4 b = *reinterpret_cast<const float4*>(q + h * head_dim + i + 4);
      const float query[8] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
#pragma unroll
      for (int e = 0; e < 8; ++e) sum[h][e] = fmaf(query[e], value[e], sum[h][e]);
    }
  }
}

/// The float dots of one key with kHeads queries ([kHeads][head_dim]): 32 partial sums, then the butterfly,
/// whose first two levels add groups of eight.
template <int kHeads>
__device__ __forceinline__ void dots(const uint16_t* key, const float* q, int head_dim,
                                     float (&result)[kHeads]) {
  float a[kHeads][8], b[kHeads][8], x[kHeads][8];
  partial_sums<kHeads>(key, q, head_dim, 0, a);
  partial_sums<kHeads>(key, q, head_dim, 2, x);
#pragma unroll
  for (int h = 0; h < kHeads; ++h)
#pragma unroll
    for (int e = 0; e < 8; ++e) a[h][e] = a[h][e] + x[h][e];
  partial_sums<kHeads>(key, q, head_dim, 1, b);
  partial_sums<kHeads>(key, q, head_dim, 3, x);
#pragma unroll
  for (int h = 0; h < kHeads; ++h) {
#pragma unroll
    for (int e = 0; e < 8; ++e) a[h][e] = a[h][e] + (b[h][e] + x[h][e]);
#pragma unroll
    for (int width = 4; width > 0; width /= 2)
#pragma unroll
      for (int e = 0; e < width; ++e) a[h][e] = a[h][e] + a[h][e + width];
    result[h] = a[h][0];
  }
}

/// Scores of heads first..end - 1 at one position, kHeads at a time; where it is not seen, -inf and no read.
template <int kHeads>
__device__ __forceinline__ int score_heads(const uint16_t* key, const float* q, float* s, int head_dim,
                                           float scale, bool seen, int first, int end) {
  for (; first + kHeads <= end; first += kHeads) {
    float dot[kHeads];
    if (seen) dots<kHeads>(key, q + first * head_dim, head_dim, dot);
#pragma unroll
    for (int h = 0; h < kHeads; ++h) s[(first + h) * chunk_size] = seen ? dot[h] * scale : none;
  }
  return first;
}

/// One head's scores to weights, by one warp; returns the maximum.
__device__ __forceinline__ float weigh(float* s, int lane) {
  constexpr int each = chunk_size / 32;
  float x[each], top = none;
#pragma unroll
  for (int i = 0; i < each; ++i) {
    x[i] = s[lane + 32 * i];
    top = fmaxf(top, x[i]);
  }
#pragma unroll
  for (int width = 16; width > 0; width /= 2) top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, width));
#pragma unroll
  for (int i = 0; i < each; ++i) s[lane + 32 * i] = exp_f32(x[i] - top);
  return top;
}

/// l and two dimensions of o over positions begin..end - 1 of the chunk.
struct Sums {
  float l = 0, o0 = 0, o1 = 0;
  __device__ __forceinline__ void add(float p, uint32_t v) {
    const float2 x = halves(v);
    l = l + p;
    o0 = fmaf(p, x.x, o0);
    o1 = fmaf(p, x.y, o1);
  }
};

__device__ __forceinline__ Sums sum_values(const uint16_t* v, const float* p, int head_dim, int begin,
                                           int end) {
  Sums sums;
  const auto value = [&](int j) { return *reinterpret_cast<const uint32_t*>(v + j * head_dim); };
  int j = begin;
  for (; j < end && j % 8 != 0; ++j) sums.add(p[j], value(j));
  for (; j + 8 <= end; j += 8) {
    const float4 a = *reinterpret_cast<const float4*>(p + j), b = *reinterpret_cast<const float4*>(p + j + 4);
    const float weight[8] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
#pragma unroll
    for (int i = 0; i < 8; ++i) sums.add(weight[i], value(j + i));
  }
  for (; j < end; ++j) sums.add(p[j], value(j));
  return sums;
}

/// What a block makes of a row that has yet to be rotated and stored: the queries of its heads into q, and
/// where the row's own position is of this chunk its key into k; `scratch` holds max_head_dim floats. It goes
/// to the cache where `stores`: one block of the kv head's. A head a warp; the key is the last.
__device__ __forceinline__ void rotate_heads(const RopeStoreArgs& rope, const Place& place, bool stores,
                                             int position, int kv_lane, uint16_t* own_key, float* q,
                                             float* scratch) {
  constexpr int each = max_head_dim / 32;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, n = rope.head_dim;
  const auto turn = rope::load_turn<each>(rope.rope, position, lane);
#pragma unroll 1
  for (int head = warp; head < place.heads + (own_key ? 1 : 0); head += warps) {
    const bool is_key = head == place.heads;
    const float* const norm = is_key ? rope.k_norm : rope.q_norm;
    const float* const from = is_key ? rope.k + place.kv_head * n : rope.q + (place.first_head + head) * n;
    float x[each], weight[each];
#pragma unroll
    for (int i = 0; i < each; ++i) x[i] = lane + 32 * i < n ? from[lane + 32 * i] : 0.0f;
    rope::load_weight(weight, norm, lane, n);
    if (norm) rope::apply_norm(x, weight, rope.eps, lane, n);
    rope::turn_head(x, turn, rope.rope, is_key ? scratch : q + head * n, lane, n);
    const int64_t at = kv_lane * rope.kv.lane_stride + position * rope.kv.row_stride +
                       static_cast<int64_t>(place.kv_head) * n;
#pragma unroll
    for (int i = 0; i < each; ++i) {
      if (lane + 32 * i >= n) continue;
      const uint16_t half = __half_as_ushort(__float2half_rn(x[i]));
      if (!is_key)
        q[head * n + lane + 32 * i] = x[i];
      else
        own_key[lane + 32 * i] = half;
      if (is_key && stores) rope.kv.k[at + lane + 32 * i] = half;
    }
  }
}

/// kFused: one row, which `rope` says how to rotate and store; args.q is not read then.
template <bool kFused>
__global__ void __launch_bounds__(threads, 1)
    portable_chunks_kernel(AttendArgs args, Fresh<kFused> fresh, Partials partials, Packing packing,
                           Layout layout) {
  WEIR_DYNAMIC_SHARED(shared);
  auto* const k = reinterpret_cast<uint16_t*>(shared);
  auto* const v = reinterpret_cast<uint16_t*>(shared + layout.v);
  auto* const q = reinterpret_cast<float*>(shared + layout.q);
  auto* const s = reinterpret_cast<float*>(shared + layout.s);
  allow_next();
  const Place place = place_of(args, packing, blockIdx.x);
  const int chunk = blockIdx.y, begin = chunk * chunk_size, n = args.head_dim;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int j = threadIdx.x % chunk_size, side = threadIdx.x / chunk_size;
  const int side_heads = (place.heads + sides - 1) / sides;
  wait_for_previous();

  for (int first = place.first_row; first < place.first_row + place.rows;) {
    const Run run = run_at(args, first, kFused ? first + 1 : place.first_row + place.rows);
    first = run.end;
    if (run.seen.last < begin || run.seen.first >= begin + chunk_size) continue;
    const int64_t base = run.lane * args.kv.lane_stride + static_cast<int64_t>(place.kv_head) * n;
    bool loaded = false;
    for (int row = run.begin; row < run.end; ++row) {
      const Span seen = span_of(args.rows.position[row], args.window);
      if (seen.last < begin || seen.first >= begin + chunk_size) continue;
      __syncthreads();  // the row or run before has read what this one overwrites
      const int last = kFused ? seen.last - 1 : run.seen.last;  // in the cache
      [[maybe_unused]] const auto stores = [&] {
        return static_cast<int>(blockIdx.x) < args.kv_heads;  // of the kv head's blocks the first
      };
      if (!loaded || layout.one_buffer)
        load(args.kv.k + base, args.kv.row_stride, chunk, last, n, k, layout.k_stride);
      cp_commit();
      if (!loaded && !layout.one_buffer) load(args.kv.v + base, args.kv.row_stride, chunk, last, n, v, n);
      cp_commit();
      loaded = true;
      if constexpr (kFused) {
        const RopeStoreArgs& rope = fresh.rope;
        rotate_heads(rope, place, stores(), seen.last, run.lane,
                     seen.last < begin + chunk_size ? k + (seen.last - begin) * layout.k_stride : nullptr, q,
                     s);
      } else {
        const float* const source = args.q + (static_cast<int64_t>(row) * args.heads + place.first_head) * n;
        for (int i = 4 * static_cast<int>(threadIdx.x); i < place.heads * n; i += 4 * threads)
          *reinterpret_cast<float4*>(q + i) = *reinterpret_cast<const float4*>(source + i);
      }
      cp_wait<1>();
      __syncthreads();  // keys and queries are there

      const int end_head = min(place.heads, (side + 1) * side_heads);
      const bool sees = seen.has(begin + j);
      int head = side * side_heads;
      head = score_heads<4>(k + j * layout.k_stride, q, s + j, n, args.scale, sees, head, end_head);
      head = score_heads<2>(k + j * layout.k_stride, q, s + j, n, args.scale, sees, head, end_head);
      score_heads<1>(k + j * layout.k_stride, q, s + j, n, args.scale, sees, head, end_head);
      __syncthreads();  // all scores are there, and all have read the keys
      if (layout.one_buffer) load(args.kv.v + base, args.kv.row_stride, chunk, last, n, v, n);
      cp_commit();
      if constexpr (kFused) {
        if (seen.last < begin + chunk_size && static_cast<int>(threadIdx.x) < n) {
          const float value = fresh.rope.v[place.kv_head * n + threadIdx.x];
          const uint16_t half = __half_as_ushort(__float2half_rn(value));
          v[(seen.last - begin) * n + threadIdx.x] = half;
          if (stores()) fresh.rope.kv.v[base + seen.last * args.kv.row_stride + threadIdx.x] = half;
        }
      }
      const int64_t at =
          (static_cast<int64_t>(row) * args.heads + place.first_head) * partials.chunks + chunk;
      if (warp < place.heads) {
        const float m = weigh(s + warp * chunk_size, lane);
        if (lane == 0) partials.ml[at + warp * partials.chunks].x = m;
      }
      cp_wait<0>();
      __syncthreads();  // weights and values are there

      const int first_j = max(seen.first - begin, 0), end_j = min(seen.last - begin + 1, chunk_size);
      for (int i = threadIdx.x; i < place.heads * n / 2; i += threads) {
        const int h = i / (n / 2), d = i % (n / 2) * 2;
        const Sums sums = sum_values(v + d, s + h * chunk_size, n, first_j, end_j);
        const int64_t to = at + static_cast<int64_t>(h) * partials.chunks;
        *reinterpret_cast<float2*>(partials.o + to * n + d) = make_float2(sums.o0, sums.o1);
        if (d == 0) partials.ml[to].y = sums.l;
      }
    }
  }
}

template <bool kFused>
void launch_chunks(Stream& s, const AttendArgs& args, const Fresh<kFused>& fresh, const Partials& partials) {
  const int ratio = args.heads / args.kv_heads;
  const int chunks = (args.rows.longest + chunk_size - 1) / chunk_size;
  // Many rows share the chunk's keys in a block; few rows spread their heads over more blocks instead.
  const int rows = args.rows.count >= 64 ? most_rows : 1;
  const int64_t blocks = static_cast<int64_t>((args.rows.count + rows - 1) / rows) * args.kv_heads * chunks;
  int heads = std::min(ratio, most_heads);
  while (heads > sides && blocks * (ratio / heads) * 2 <= s.multiprocessors) heads = (heads + 1) / 2;
  const Packing packing = pack(args, heads, rows);
  const Layout layout = layout_of(args.head_dim, packing.heads);
  const int row_tiles = (args.rows.count + rows - 1) / rows;
  launch(
      s, "attend", portable_chunks_kernel<kFused>,
      dim3(static_cast<unsigned>(row_tiles * packing.groups * args.kv_heads), static_cast<unsigned>(chunks)),
      dim3(threads), static_cast<size_t>(layout.bytes), args, fresh, partials, packing, layout);
}

}  // namespace

void portable_chunks(Stream& s, const AttendArgs& args, const Partials& partials) {
  launch_chunks<false>(s, args, {}, partials);
}

void fused_portable_chunks(Stream& s, const AttendArgs& args, const RopeStoreArgs& rope,
                           const Partials& partials) {
  launch_chunks<true>(s, args, {rope}, partials);
}

}  // namespace weir::cuda::attention
