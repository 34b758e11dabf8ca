// Rows of floats to int8 blocks, RMS-normed on the way where asked: docs/arithmetic.md, activations. A warp
// takes a segment of 512 values: two blocks of 256 or sixteen of 32.
#include "device/cuda/parameters.cuh"
#include "device/cuda/quantise_values.cuh"
#include "device/cuda/stamp.cuh"

namespace weir::cuda {
namespace {

constexpr int flat_warps = 8;

struct Quantise {
  const float* x;
  const float* norm;
  float eps;
  int rows;
  int64_t in;
  Acts out;
};

template <int kBlock>
__device__ __forceinline__ void quantise_segment(const float (&v)[segment_steps], const Acts& out,
                                                 int64_t row, int s, int count, int lane) {
  quantise_to<kBlock>(v, out, row * out.in + int64_t{s} * segment_values, count, lane);
}

/// Without a norm segments know nothing of each other: warps take them laid end to end.
template <int kBlock>
__global__ void __launch_bounds__(32 * flat_warps) quantise_kernel(Quantise a, uint64_t* slot) {
  allow_next();
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int segments = segments_of(a.in);
  const int64_t item = int64_t{blockIdx.x} * flat_warps + warp;
  const int64_t row = item / segments;
  const int s = static_cast<int>(item % segments), count = segment_count(a.in, s);
  fetch_parameters(a);
  wait_and_stamp(slot);
  if (row >= a.rows) return;
  float v[segment_steps];
  load_segment(v, a.x + row * a.in + int64_t{s} * segment_values, count, lane);
  quantise_segment<kBlock>(v, a.out, row, s, count, lane);
}

/// A block a row.
template <int kBlock>
__global__ void __launch_bounds__(32 * most_row_warps) norm_quantise_kernel(Quantise a, uint64_t* slot) {
  __shared__ float sums[most_row_warps];
  allow_next();
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
  const int segments = segments_of(a.in), count = segment_count(a.in, warp);
  const int64_t row = blockIdx.x;
  const float* x = a.x + row * a.in;
  float v[segment_steps], weight[segment_steps];
  load_segment(weight, a.norm + warp * segment_values, count, lane);
  fetch_parameters(a);
  wait_and_stamp(slot);
  load_segment(v, x + warp * segment_values, count, lane);
  const float inv = inverse_rms(block_square_sum(x, a.in, v, sums), a.in, a.eps);
  for (int at = warp; at < segments; at += warps) {
    const int here = segment_count(a.in, at);
    if (at != warp) {
      load_segment(weight, a.norm + int64_t{at} * segment_values, here, lane);
      load_segment(v, x + int64_t{at} * segment_values, here, lane);
    }
    apply_norm(v, inv, weight, true);
    quantise_segment<kBlock>(v, a.out, row, at, here, lane);
  }
}

template <int kBlock>
void launch_quantise(Stream& s, const Quantise& a) {
  uint64_t* slot = s.take_stamp();
  if (a.norm) {
    launch(s, "quantise", norm_quantise_kernel<kBlock>, dim3(a.rows), dim3(32 * row_warps(a.in)), 0, a, slot);
  } else {
    const int64_t items = int64_t{a.rows} * segments_of(a.in);
    launch(s, "quantise", quantise_kernel<kBlock>,
           dim3(static_cast<unsigned>((items + flat_warps - 1) / flat_warps)), dim3(32 * flat_warps), 0, a,
           slot);
  }
}

}  // namespace

void quantise(Stream& s, const float* x, const float* norm, float eps, int rows, int64_t in,
              const Acts& out) {
  if (rows == 0) return;
  const int64_t block = out.format == ActFormat::per256 ? 256 : 32;
  WEIR_CHECK(out.in == in && out.format != ActFormat::none && in % block == 0, "in {} of {}", in, out.in);
  const Quantise a{x, norm, eps, rows, in, out};
  out.format == ActFormat::per256 ? launch_quantise<256>(s, a) : launch_quantise<32>(s, a);
}

}  // namespace weir::cuda
