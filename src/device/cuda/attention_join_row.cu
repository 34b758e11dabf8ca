// The joining of a few rows' chunks for a matmul that reads them quantised: a block owns 256 outputs of a
// row, the widest block of activations, so that nothing but its own results decides their scale. The bits of
// attention.cu's joining, then of quantise.cu.
#include <cmath>

#include "device/cuda/attention.cuh"
#include "device/cuda/parameters.cuh"

namespace weir::cuda::attention {
namespace {

constexpr int threads = 256, warps = threads / 32;  ///< an output a thread
constexpr int early = 32;  ///< chunks that are loaded before it is known how many the row sees
/// Of more chunks the bytes are too many for one multiprocessor in eight: attention.cu's joining spreads
/// them.
constexpr int most_chunks = 128;
constexpr int pieces = threads / 4;  ///< of 16 bytes, in a chunk's outputs

/// A chunk's factors: L = fma(L, a, lb), O = fma(O, a, o * b).
struct Step {
  float a, b, lb, pad;
};

/// For each warp its head's factors: [capacity] a warp, then the outputs [capacity][threads].
int shared_bytes(int capacity) {
  return capacity * static_cast<int>(warps * sizeof(Step) + threads * sizeof(float));
}

/// The running state of one head's factors.
struct Running {
  float M = -INFINITY;
  float first_l = 0;  ///< of the first chunk
};

/// The factors of `count` chunks, 32 at most, into `step`, by one warp; lane i has chunk i's m and l.
__device__ __forceinline__ void make_steps(float2 ml, int count, bool first, Step* step, Running& running) {
  const int lane = threadIdx.x % 32;
  if (lane >= count) ml = make_float2(-INFINITY, 0.0f);
  float top = fmaxf(running.M, ml.x);  // running maxima are exact in any order
#pragma unroll
  for (int width = 1; width < 32; width *= 2) {
    const float other = __shfl_up_sync(0xffffffffu, top, width);
    if (lane >= width) top = fmaxf(top, other);
  }
  float before = __shfl_up_sync(0xffffffffu, top, 1);
  if (lane == 0) before = running.M;
  const Join factors = join(before, ml.x);
  if (lane < count) step[lane] = {factors.a, factors.b, ml.y * factors.b, 0};
  if (first) running.first_l = __shfl_sync(0xffffffffu, ml.y, 0);
  running.M = __shfl_sync(0xffffffffu, top, 31);
}

/// The thread's output of the block's 256, quantised; `output` counts through all rows.
__device__ __forceinline__ void quantise_output(float y, const Acts& acts, int output,
                                                uint32_t (&largest)[warps]) {
  constexpr uint32_t infinity_bits = 0x7f800000u;
  const bool per256 = acts.format == ActFormat::per256;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  uint32_t bits = __reduce_max_sync(0xffffffffu, __float_as_uint(y) & 0x7fffffffu);
  if (per256) {
    if (lane == 0) largest[warp] = bits;
    __syncthreads();  // every warp's largest is there
#pragma unroll
    for (int i = 0; i < warps; ++i) bits = max(bits, largest[i]);
  }
  const float d = bits < infinity_bits ? __uint_as_float(bits) / 127.0f : __uint_as_float(0x7fc00000u);
  int level = 0;
  if (d > 0) {  // neither 0 nor NaN
    level = __float2int_rn(y / d);
    level = level > 127 ? 127 : level < -127 ? -127 : level;
  }
  acts.q[output] = static_cast<int8_t>(level);
  if (!per256) {
    if (lane == 0) acts.scale[output / 32] = d;
    return;
  }
  const int sum = __reduce_add_sync(0xffffffffu, level);
  if (lane == 0) acts.sums[output / 32] = static_cast<int16_t>(sum);
  if (threadIdx.x == 0) acts.scale[output / threads] = d;
}

/// blockIdx.x: which 256 outputs; blockIdx.y: of which row.
__global__ void __launch_bounds__(threads)
    join_row_kernel(AttendArgs args, Partials partials, Acts acts, int capacity, bool settled) {
  WEIR_DYNAMIC_SHARED(bytes);
  __shared__ uint32_t largest[warps];
  auto* const o = reinterpret_cast<float*>(bytes);
  const int warp = threadIdx.x / 32;
  Step* const step = reinterpret_cast<Step*>(o + capacity * threads) + warp * capacity;
  allow_next();
  const int n = args.head_dim, row = blockIdx.y, row_head = row * args.heads;
  const int output = static_cast<int>(blockIdx.x) * threads + static_cast<int>(threadIdx.x);
  const int head = output / n;
  const float2* const ml = partials.ml + static_cast<int64_t>(row_head + head) * partials.chunks;
  // The copies' own share of the work: a piece of every fourth chunk.
  const int piece = threadIdx.x % pieces, first_copy = threadIdx.x / pieces;
  const int piece_output = static_cast<int>(blockIdx.x) * threads + 4 * piece, piece_head = piece_output / n;
  const float* const from = partials.o + static_cast<int64_t>(row_head + piece_head) * partials.chunks * n +
                            (piece_output - piece_head * n);
  const auto copy = [&](int begin, int end) {
#pragma unroll 4
    for (int c = first_copy; c < end - begin; c += threads / pieces)
      cp_async16(o + c * threads + 4 * piece, from + static_cast<int64_t>(begin + c) * n);
    cp_commit();
  };
  fetch_parameters(args, partials, acts);
  // Past the first-level cache, which may hold an earlier round's.
  int position = settled ? __ldcg(args.rows.position + row) : 0;
  wait_for_previous();

  // Few chunks: all are loaded while the row's position is on its way, those too that it does not see.
  const int lane = threadIdx.x % 32;
  const bool at_once = !settled && partials.chunks <= early && args.window == 0;
  float2 own{};
  if (at_once) {
    if (lane < partials.chunks) own = ml[lane];
    copy(0, partials.chunks);
  }
  if (!settled) position = __ldcg(args.rows.position + row);
  const Span seen = span_of(position, args.window);
  const int first = seen.first / partials.chunk, end = seen.last / partials.chunk + 1;
  if (!at_once) copy(first, end);
  Running running;
#pragma unroll 1
  for (int begin = first; begin < end; begin += 32) {
    if (!at_once && begin + lane < end) own = ml[begin + lane];
    make_steps(own, end - begin, begin == first, step + begin - first, running);
  }
  cp_wait<0>();
  __syncthreads();  // the copies of all threads are there, and the warp's steps
  float L = running.first_l, O = o[threadIdx.x];
#pragma unroll 4
  for (int i = 1; i < end - first; ++i) {
    const Step f = step[i];
    L = fmaf(L, f.a, f.lb);
    O = fmaf(O, f.a, o[i * threads + threadIdx.x] * f.b);
  }
  const Closing end_of = close_row(running.M, L, args.sinks ? args.sinks + head : nullptr);
  const float y = (O * end_of.a) * end_of.inv;
  args.out[row_head * n + output] = y;
  quantise_output(y, acts, row_head * n + output, largest);
}

}  // namespace

bool joins_quantised(const AttendArgs& args, const Partials& partials, const Acts& acts) {
  const int64_t outputs = static_cast<int64_t>(args.heads) * args.head_dim;
  return args.rows.count <= small_rows && args.head_dim % 32 == 0 && threads % args.head_dim == 0 &&
         outputs % threads == 0 && acts.in == outputs && acts.format != ActFormat::none &&
         partials.chunks <= most_chunks;
}

void join_quantised(Stream& s, const AttendArgs& args, const Partials& partials, const Acts& acts,
                    bool settled) {
  const int capacity = partials.chunks;
  launch(s, "attend", join_row_kernel,
         dim3(static_cast<unsigned>(acts.in / threads), static_cast<unsigned>(args.rows.count)),
         dim3(threads), static_cast<size_t>(shared_bytes(capacity)), args, partials, acts, capacity, settled);
}

}  // namespace weir::cuda::attention
