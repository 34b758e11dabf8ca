// What begins and ends a round: copies to and from mapped host memory, the choice of tokens from logits, the
// signal to the host; and the clock's own kernels. Sums nothing.
#include "device/cuda/kernels.h"
#include "device/cuda/parameters.cuh"
#include "device/cuda/segment.cuh"
#include "device/cuda/stamp.cuh"

namespace weir::cuda {
namespace {

constexpr int threads = 256;
constexpr int warps = threads / 32;

// --- choose
// -------------------------------------------------------------------------------------------------------------------

/// One row's, zero between launches.
struct ChooseState {
  unsigned long long best;  ///< value_order << 32 | id_order
  uint32_t not_finite;      ///< id_order, or 0
  uint32_t ticket;          ///< blocks that are done
};

constexpr int values_a_block = 4 * threads;
constexpr int most_choose_blocks = 160;

/// Grows with the logit; equal for equal logits (so for -0 and +0); a NaN counts as -inf. Never 0.
__device__ __forceinline__ uint32_t value_order(float logit) {
  constexpr uint32_t negative_infinity = 0xff800000u;
  const uint32_t bits = logit != logit ? negative_infinity : __float_as_uint(logit + 0.0f);
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}
/// Grows as the id falls, never 0; its own inverse.
__device__ __forceinline__ uint32_t id_order(uint32_t id) { return ~id; }

struct Best {
  uint32_t value = 0, id = 0;  ///< value_order, id_order; 0: nothing yet
  uint32_t not_finite = 0;     ///< id_order of the first, or 0
};

__device__ __forceinline__ void take_value(Best& best, float logit, uint32_t id, const ChooseArgs& a) {
  if (!(logit <= 3.4028234e38f) && best.not_finite < id_order(id)) best.not_finite = id_order(id);
  uint32_t value = value_order(logit);
  // A thread's ids grow: the lower one keeps its place.
  if (value <= best.value || id >= static_cast<uint32_t>(a.choosable)) return;
  for (int b = 0; b < a.banned_count; ++b)
    if (static_cast<uint32_t>(a.banned[b]) == id) value = value_order(-__uint_as_float(0x7f800000u));
  if (value <= best.value) return;
  best.value = value, best.id = id_order(id);
}

__device__ __forceinline__ Best best_of_warp(Best b) {
  const uint32_t value = __reduce_max_sync(whole_warp, b.value);
  b.id = __reduce_max_sync(whole_warp, b.value == value ? b.id : 0);
  b.value = value;
  b.not_finite = __reduce_max_sync(whole_warp, b.not_finite);
  return b;
}

/// blockIdx.y: the row. The row's last block writes the choice.
template <bool kVector>
__global__ void __launch_bounds__(threads) choose_kernel(ChooseArgs a, ChooseState* states) {
  __shared__ Best of_warp[warps];
  allow_next();
  fetch_parameters(a);
  wait_for_previous();
  const float* logits = a.logits + blockIdx.y * a.n;
  Best best;
  const uint32_t first = blockIdx.x * threads + threadIdx.x, step = gridDim.x * threads;
  const auto n = static_cast<uint32_t>(a.n);
  if constexpr (kVector) {
    for (uint32_t i = first; i < n / 4; i += step) {
      const float4 v = reinterpret_cast<const float4*>(logits)[i];
      take_value(best, v.x, 4 * i, a);
      take_value(best, v.y, 4 * i + 1, a);
      take_value(best, v.z, 4 * i + 2, a);
      take_value(best, v.w, 4 * i + 3, a);
    }
  } else {
    for (uint32_t i = first; i < n; i += step) take_value(best, logits[i], i, a);
  }
  best = best_of_warp(best);
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = best;
  __syncthreads();  // the warps' are written
  if (threadIdx.x >= 32) return;
  best = best_of_warp(threadIdx.x < warps ? of_warp[threadIdx.x] : Best{});
  if (threadIdx.x != 0) return;
  ChooseState& state = states[blockIdx.y];
  atomicMax(&state.best, static_cast<unsigned long long>(best.value) << 32 | best.id);
  if (best.not_finite != 0) atomicMax(&state.not_finite, best.not_finite);
  __threadfence();  // the maxima are there before the ticket says so
  if (atomicAdd(&state.ticket, 1u) + 1 != gridDim.x) return;
  __threadfence();  // the others' maxima are read after their tickets
  const unsigned long long winner = *const_cast<volatile unsigned long long*>(&state.best);
  const uint32_t bad = *const_cast<volatile uint32_t*>(&state.not_finite);
  a.choice[blockIdx.y] = {static_cast<int32_t>(id_order(static_cast<uint32_t>(winner))),
                          bad ? static_cast<int32_t>(id_order(bad)) : -1};
  state = {};
}

// --- copies
// -------------------------------------------------------------------------------------------------------------------

template <typename V>
__global__ void __launch_bounds__(threads) copy_kernel(V* to, const V* from, size_t n, uint64_t* slot) {
  allow_next();
  wait_and_stamp(slot);
  const size_t step = size_t{gridDim.x} * threads;
  for (size_t i = size_t{blockIdx.x} * threads + threadIdx.x; i < n; i += step) to[i] = from[i];
}

template <typename V>
void launch_copy(Stream& s, void* to, const void* from, size_t bytes) {
  uint64_t* slot = s.take_stamp();
  const size_t n = bytes / sizeof(V), wanted = (n + threads - 1) / threads;
  const auto most = static_cast<size_t>(s.multiprocessors) * 8;  // the link is full long before
  launch(s, "copy_mapped", copy_kernel<V>, dim3(static_cast<unsigned>(wanted < most ? wanted : most)),
         dim3(threads), 0, static_cast<V*>(to), static_cast<const V*>(from), n, slot);
}

// --- the end
// -------------------------------------------------------------------------------------------------------------------

template <bool kStamps>
__global__ void __launch_bounds__(threads) finish_kernel(Finish a) {
  allow_next();
  wait_for_previous();
  if constexpr (kStamps) {
    const int last = a.stamp_count - 1;  // the end's own: from here to the host, not by way of a.stamps
    if (threadIdx.x == threads - 1) a.stamps_out[last] = globaltimer();
#pragma unroll 1
    for (int i = threadIdx.x; i < last; i += threads) a.stamps_out[i] = a.stamps[i];
  }
  __threadfence_system();  // the host sees stamps and results before the flag
  __syncthreads();         // of every thread
  if (threadIdx.x == 0) {
    const uint32_t ticket = *a.ticket + 1;
    *a.ticket = ticket;
    *a.flag = ticket;
  }
}

// --- the clock
// -------------------------------------------------------------------------------------------------------------------

__global__ void spin_kernel(uint64_t ns) {
  allow_next();
  wait_for_previous();
  const uint64_t begin = globaltimer();
  while (globaltimer() - begin < ns) {
  }
}

__global__ void tick_kernel(uint64_t* out) {
  constexpr int enough_reads = 1 << 20, enough_steps = 64;
  allow_next();
  wait_for_previous();
  uint64_t smallest = ~uint64_t{0}, last = globaltimer();
  int steps = 0;
  for (int reads = 0; reads < enough_reads && steps < enough_steps; ++reads) {
    const uint64_t now = globaltimer();
    if (now == last) continue;
    smallest = now - last < smallest ? now - last : smallest;
    last = now;
    ++steps;
  }
  *out = steps ? smallest : 0;
}

}  // namespace

size_t choose_partial_bytes(int rows) { return static_cast<size_t>(rows) * sizeof(ChooseState); }

void choose(Stream& s, const ChooseArgs& args, void* partial) {
  if (args.rows == 0) return;
  WEIR_CHECK(args.n > 0 && args.n < int64_t{1} << 31, "{} logits", args.n);
  ChooseArgs settled = args;
  if (settled.choosable == 0) settled.choosable = args.n;
  WEIR_CHECK(settled.choosable > 0 && settled.choosable <= args.n, "{} of {}", settled.choosable, args.n);
  const bool vector = args.n % 4 == 0 && reinterpret_cast<uintptr_t>(args.logits) % sizeof(float4) == 0;
  const int64_t wanted = (args.n + values_a_block - 1) / values_a_block;
  const auto blocks = static_cast<unsigned>(wanted < most_choose_blocks ? wanted : most_choose_blocks);
  launch(s, "choose", vector ? choose_kernel<true> : choose_kernel<false>,
         dim3(blocks, static_cast<unsigned>(args.rows)), dim3(threads), 0, settled,
         static_cast<ChooseState*>(partial));
}

void copy_mapped(Stream& s, void* destination, const void* source, size_t bytes) {
  if (bytes == 0) return;
  const auto addresses = reinterpret_cast<uintptr_t>(destination) | reinterpret_cast<uintptr_t>(source);
  WEIR_CHECK((addresses | bytes) % sizeof(uint32_t) == 0, "{} bytes", bytes);
  if ((addresses | bytes) % sizeof(uint4) == 0)
    launch_copy<uint4>(s, destination, source, bytes);
  else
    launch_copy<uint32_t>(s, destination, source, bytes);
}

void finish(Stream& s, const Finish& args) {
  launch(s, "finish", args.stamps ? finish_kernel<true> : finish_kernel<false>, dim3(1), dim3(threads), 0,
         args);
}

void spin(Stream& s, uint64_t ns) { launch(s, "spin", spin_kernel, dim3(1), dim3(1), 0, ns); }

void measure_tick(Stream& s, uint64_t* out) {
  launch(s, "measure_tick", tick_kernel, dim3(1), dim3(1), 0, out);
}

}  // namespace weir::cuda
