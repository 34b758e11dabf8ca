// Operations on rows of floats that read each value about once: embed, RMS norm, gates, sums, gathers. Knows
// nothing of matmuls and quantised activations.
#include <type_traits>

#include "base/arithmetic.h"
#include "device/cuda/kernels.h"
#include "device/cuda/segment.cuh"
#include "device/cuda/stamp.cuh"
#include "quant/codecs.h"

namespace weir::cuda {
namespace {

constexpr int threads = 256;

int64_t divide_up(int64_t n, int64_t unit) { return (n + unit - 1) / unit; }

/// Four floats at a time where the width and every address allow it.
template <typename... P>
bool takes_float4(int64_t n, const P*... p) {
  return n % 4 == 0 && ((reinterpret_cast<uintptr_t>(p) % sizeof(float4) == 0) && ...);
}

__device__ __forceinline__ float map2(float a, float b, auto f) { return f(a, b); }
__device__ __forceinline__ float4 map2(float4 a, float4 b, auto f) {
  return {f(a.x, b.x), f(a.y, b.y), f(a.z, b.z), f(a.w, b.w)};
}

// --- embed
// -------------------------------------------------------------------------------------------------------------------

/// Value e of a block: what Codec::decode gives, for one thread.
template <typename Codec>
__device__ __forceinline__ float decode_value(const uint8_t* block, int e) {
  using namespace quant;
  if constexpr (Codec::block_elements == 1) {
    float value;
    Codec::decode(block, &value);
    return value;
  } else if constexpr (std::is_same_v<Codec, Q4_K>) {
    const auto sub = Q4_K::sub_block(block, e / 32);
    const float scale = load_f16(block) * static_cast<float>(sub.scale);
    const float minimum = load_f16(block + Q4_K::dmin_offset) * static_cast<float>(sub.minimum);
    return scale * static_cast<float>(Q4_K::level(block, e / 32, e % 32)) - minimum;
  } else if constexpr (std::is_same_v<Codec, Q6_K>) {
    const float d = load_f16(block + Q6_K::d_offset);
    return d * static_cast<float>(Q6_K::scale(block, e / 16)) * static_cast<float>(Q6_K::level(block, e));
  } else {
    static_assert(std::is_same_v<Codec, Q8_0> || std::is_same_v<Codec, Q5_0>, "say how this is decoded");
    return load_f16(block) * static_cast<float>(Codec::level(block, e));
  }
}

/// blockIdx.x: the row; blockIdx.y: `threads` values of it.
template <typename Codec>
__global__ void __launch_bounds__(threads) embed_kernel(EmbedArgs a, uint64_t* slot) {
  wait_and_stamp(slot);
  // Only now: what a round begins with is complete when anything after this kernel starts.
  allow_next();
  const int64_t i = int64_t{blockIdx.y} * threads + threadIdx.x;
  const int64_t in = a.table.in;
  if (i >= in) return;
  const int64_t blocks = in / Codec::block_elements;
  const int64_t block = a.rows.token[blockIdx.x] * blocks + i / Codec::block_elements;
  const auto* data = static_cast<const uint8_t*>(a.table.data) + block * Codec::block_bytes;
  a.out[blockIdx.x * in + i] = decode_value<Codec>(data, static_cast<int>(i % Codec::block_elements));
}

// --- RMS norm
// -------------------------------------------------------------------------------------------------------------------

/// A block a row. out may be x: a thread writes what it alone has read, after the row's sum is known.
__global__ void __launch_bounds__(32 * most_row_warps) rms_norm_kernel(NormArgs a, uint64_t* slot) {
  __shared__ float sums[most_row_warps];
  allow_next();
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
  const int segments = segments_of(a.n), count = segment_count(a.n, warp);
  const float* x = a.x + blockIdx.x * a.n;
  const bool weighted = a.weight != nullptr;
  float v[segment_steps], weight[segment_steps];
  if (weighted) load_segment(weight, a.weight + warp * segment_values, count, lane);
  wait_and_stamp(slot);
  load_segment(v, x + warp * segment_values, count, lane);
  const float inv = inverse_rms(block_square_sum(x, a.n, v, sums), a.n, a.eps);
  for (int s = warp; s < segments; s += warps) {
    const int here = segment_count(a.n, s);
    const int64_t at = int64_t{s} * segment_values;
    if (s != warp) {
      if (weighted) load_segment(weight, a.weight + at, here, lane);
      load_segment(v, x + at, here, lane);
    }
    apply_norm(v, inv, weight, weighted);
    store_segment(v, a.out + blockIdx.x * a.n + at, here, lane);
  }
}

// --- elementwise: V is float or float4, n counts those
// -------------------------------------------------------------------------------------------------------------------

template <typename V>
__global__ void __launch_bounds__(threads) gated_kernel(const V* gate, const V* up, V* out, int64_t n) {
  allow_next();
  wait_for_previous();
  const int64_t i = int64_t{blockIdx.x} * threads + threadIdx.x;
  if (i < n) out[i] = map2(gate[i], up[i], [](float g, float u) { return silu_f32(g) * u; });
}

template <typename V>
__global__ void __launch_bounds__(threads) add_kernel(V* h, const V* y, int64_t n) {
  allow_next();
  wait_for_previous();
  const int64_t i = int64_t{blockIdx.x} * threads + threadIdx.x;
  if (i < n) h[i] = map2(h[i], y[i], [](float a, float b) { return a + b; });
}

/// blockIdx.x: the row; blockIdx.y: `threads` elements of its n.
template <typename V>
__global__ void __launch_bounds__(threads)
    gather_kernel(const V* x, const int32_t* index, int64_t n, V* out, uint64_t* slot) {
  allow_next();
  wait_and_stamp(slot);
  const int64_t i = int64_t{blockIdx.y} * threads + threadIdx.x;
  if (i < n) out[blockIdx.x * n + i] = x[index[blockIdx.x] * n + i];
}

/// blockIdx.x: the row; blockIdx.y: `threads` elements of its n.
template <typename V>
__global__ void __launch_bounds__(threads)
    combine_kernel(const V* parts, const float* weights, V* h, int top_k, int64_t n) {
  allow_next();
  wait_for_previous();
  const int64_t i = int64_t{blockIdx.y} * threads + threadIdx.x;
  if (i >= n) return;
  const int64_t row = blockIdx.x, pair = row * top_k;
  const V before = h[row * n + i];
  V sum{};
#pragma unroll 8
  for (int j = 0; j < top_k; ++j) {
    const float w = weights[pair + j];
    sum = map2(parts[(pair + j) * n + i], sum, [w](float part, float s) { return std::fma(w, part, s); });
  }
  h[row * n + i] = map2(before, sum, [](float a, float b) { return a + b; });
}

dim3 row_grid(int64_t rows, int64_t n) {
  return dim3(static_cast<unsigned>(rows), static_cast<unsigned>(divide_up(n, threads)));
}
dim3 flat_grid(int64_t n) { return dim3(static_cast<unsigned>(divide_up(n, threads))); }

float4* by4(float* p) { return reinterpret_cast<float4*>(p); }
const float4* by4(const float* p) { return reinterpret_cast<const float4*>(p); }

}  // namespace

void embed(Stream& s, const EmbedArgs& args) {
  if (args.rows.count == 0) return;
  bool found = false;
  quant::Codecs::each([&]<typename Codec>() {
    if (args.table.type != Codec::type) return;
    found = true;
    uint64_t* slot = s.take_stamp();
    launch(s, "embed", embed_kernel<Codec>, row_grid(args.rows.count, args.table.in), dim3(threads), 0, args,
           slot);
  });
  WEIR_CHECK(found, "embed from {}", type_info(args.table.type).name);
}

void rms_norm(Stream& s, const NormArgs& args) {
  if (args.rows == 0) return;
  uint64_t* slot = s.take_stamp();
  launch(s, "rms_norm", rms_norm_kernel, dim3(args.rows), dim3(32 * row_warps(args.n)), 0, args, slot);
}

void gated(Stream& s, const GatedArgs& args) {
  WEIR_CHECK(args.activation == Activation::swiglu);
  const int64_t n = args.rows * args.n;
  if (n == 0) return;
  if (takes_float4(n, args.gate, args.up, args.out))
    launch(s, "gated", gated_kernel<float4>, flat_grid(n / 4), dim3(threads), 0, by4(args.gate), by4(args.up),
           by4(args.out), n / 4);
  else
    launch(s, "gated", gated_kernel<float>, flat_grid(n), dim3(threads), 0, args.gate, args.up, args.out, n);
}

void add(Stream& s, float* h, const float* y, int64_t n) {
  if (n == 0) return;
  if (takes_float4(n, h, y))
    launch(s, "add", add_kernel<float4>, flat_grid(n / 4), dim3(threads), 0, by4(h), by4(y), n / 4);
  else
    launch(s, "add", add_kernel<float>, flat_grid(n), dim3(threads), 0, h, y, n);
}

void gather_rows(Stream& s, const float* x, const int32_t* index, int count, int64_t n, float* out) {
  if (count == 0) return;
  uint64_t* slot = s.take_stamp();
  if (takes_float4(n, x, out))
    launch(s, "gather_rows", gather_kernel<float4>, row_grid(count, n / 4), dim3(threads), 0, by4(x), index,
           n / 4, by4(out), slot);
  else
    launch(s, "gather_rows", gather_kernel<float>, row_grid(count, n), dim3(threads), 0, x, index, n, out,
           slot);
}

void combine(Stream& s, const CombineArgs& args) {
  if (args.rows == 0) return;
  const int64_t n = args.hidden;
  if (takes_float4(n, args.parts, args.h))
    launch(s, "combine", combine_kernel<float4>, row_grid(args.rows, n / 4), dim3(threads), 0,
           by4(args.parts), args.weights, by4(args.h), args.top_k, n / 4);
  else
    launch(s, "combine", combine_kernel<float>, row_grid(args.rows, n), dim3(threads), 0, args.parts,
           args.weights, args.h, args.top_k, n);
}

}  // namespace weir::cuda
