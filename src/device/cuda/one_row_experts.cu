// One row's routed experts: gate and up with the gate's activation, then down with the sum over experts.
#include <algorithm>

#include "base/arithmetic.h"
#include "device/cuda/one_row.cuh"
#include "device/cuda/parameters.cuh"
#include "device/cuda/stamp.cuh"

namespace weir::cuda {
namespace {

using namespace one_row;

struct GateUp {
  const uint8_t* gate = nullptr;
  const uint8_t* up = nullptr;
  uint64_t gate_stride = 0, up_stride = 0;
  const int32_t* slot_of = nullptr;
  const int32_t* ids = nullptr;
  int ff = 0, supers = 0;
  const float* x = nullptr;
  ActRow acts;
  float* act = nullptr;
  uint64_t* stamp = nullptr;  ///< here and not behind it: it would have a line of the parameters of its own
};

struct DownSum {
  const uint8_t* down = nullptr;
  uint64_t stride = 0;
  const int32_t* slot_of = nullptr;
  const int32_t* ids = nullptr;
  const float* weights = nullptr;
  int hidden = 0, supers = 0;
  bool ids_are_final = false;  ///< before the wait: gate_up was launched just before
  const float* act = nullptr;
  float* h = nullptr;
};

// 64 registers a thread: two blocks of gate_up and one of down share a multiprocessor, so that down's weights
// stream while gate_up ends.
constexpr int gate_up_warps = 12, most_experts = 16;

/// blockIdx.y: which of the row's experts. A warp has rows_at_once / 2 rows of gate and the same of up.
template <int T, bool kActs>
__global__ void __maxnreg__(T < 4 ? 64 : 96) one_row_gate_up_kernel(const GateUp task) {
  constexpr int outs = rows_at_once<T> / 2;
  WEIR_DYNAMIC_SHARED(shared);
  const int warp = static_cast<int>(threadIdx.x / 32), lane = static_cast<int>(threadIdx.x % 32),
            pair = static_cast<int>(blockIdx.y), in = task.supers * super;
  const int row_bytes = task.supers * block_bytes;
  auto* barrier = reinterpret_cast<uint64_t*>(shared) + warp;
  uint8_t* at = shared + 128;
  const OwnActs own = own_acts(at, in);
  if constexpr (!kActs) at += own_acts_bytes(in);
  auto* terms = reinterpret_cast<float4*>(at + warp * terms_bytes<T>);
  uint8_t* weights = at + (gate_up_warps * terms_bytes<T> + 127) / 128 * 128 + warp * 2 * outs * row_bytes;
  const int first = (static_cast<int>(blockIdx.x) * gate_up_warps + warp) * outs;
  const int valid = min(outs, task.ff - first);
  ready(barrier);
  if (valid > 0) expect(barrier, static_cast<uint32_t>(2 * valid * row_bytes));
  fetch_parameters(task);
  const auto stamp = wait_and_read_clock(task.stamp);
  // Only now: what is launched after this kernel starts when all that came before it is complete, the router
  // included, and may read the ids ahead of its own wait (down_sum).
  allow_next();
  if (valid > 0) {
    const auto slot = static_cast<uint64_t>(slot_of_expert(task.slot_of, __ldcg(task.ids + pair)));
    const int64_t from = static_cast<int64_t>(first) * row_bytes;
    const auto bytes = static_cast<uint32_t>(valid * row_bytes);
    copy(weights, task.gate + slot * task.gate_stride + from, bytes, barrier);
    copy(weights + bytes, task.up + slot * task.up_stride + from, bytes, barrier);
  }
  if constexpr (!kActs) {
    const float none[8] = {};
    quantise_own(own, task.x, first_reads(task.x), nullptr, none, 0, in);
  }
  if (valid <= 0) return;
  const Share<T> x = kActs ? load_share<T>(task.acts.q, task.acts.sums, task.acts.scale, task.supers)
                           : load_share<T>(own.q, own.sums, own.scale, task.supers);
  barrier_wait(barrier, 0);
  stamp.store();
  const float y = outputs<T>(weights, row_bytes, task.supers, x, terms);
  const float up = __shfl_down_sync(all_lanes, y, valid);
  if (lane < valid) task.act[static_cast<int64_t>(pair) * task.ff + first + lane] = silu_f32(y) * up;
}

/// A warp an expert, in increasing id; a block has the same rows_at_once outputs of all.
template <int T>
__global__ void __maxnreg__(64) one_row_down_sum_kernel(const DownSum task) {
  constexpr int outs = rows_at_once<T>;
  allow_next();
  WEIR_DYNAMIC_SHARED(shared);
  const int pair = static_cast<int>(threadIdx.x / 32), lane = static_cast<int>(threadIdx.x % 32),
            pairs = static_cast<int>(blockDim.x / 32), in = task.supers * super;
  const int row_bytes = task.supers * block_bytes, act_bytes = own_acts_bytes(in);
  auto* barrier = reinterpret_cast<uint64_t*>(shared) + pair;
  uint8_t* at = shared + 8 * most_experts;
  auto* parts = reinterpret_cast<float*>(at);  // [pairs, outs]
  at += (pairs * outs * static_cast<int>(sizeof(float)) + 127) / 128 * 128;
  const OwnActs own = own_acts(at + pair * act_bytes, in);
  at += pairs * act_bytes;
  auto* terms = reinterpret_cast<float4*>(at + pair * terms_bytes<T>);
  uint8_t* weights = at + (pairs * terms_bytes<T> + 127) / 128 * 128 + pair * outs * row_bytes;
  const int first = static_cast<int>(blockIdx.x) * outs, valid = min(outs, task.hidden - first);
  const auto bytes = static_cast<uint32_t>(valid * row_bytes);
  ready(barrier);
  expect(barrier, bytes);
  fetch_parameters(task);
  if (task.ids_are_final)
    earlier_are_complete();
  else
    wait_for_previous();
  float* h = task.h + first;
  const auto slot = static_cast<uint64_t>(slot_of_expert(task.slot_of, __ldcg(task.ids + pair)));
  const float weight = threadIdx.x < static_cast<unsigned>(pairs) ? __ldcg(task.weights + threadIdx.x) : 0;
  copy(weights, task.down + slot * task.stride + static_cast<int64_t>(first) * row_bytes, bytes, barrier);
  wait_for_previous();
  float before = 0;
  if (pair == 0 && lane < valid) before = h[lane];
  quantise_pair(task.act + static_cast<int64_t>(pair) * in, own, task.supers, lane);
  const Share<T> x = load_share<T>(own.q, own.sums, own.scale, task.supers);
  barrier_wait(barrier, 0);
  const float y = outputs<T>(weights, row_bytes, task.supers, x, terms);
  if (lane < valid) parts[pair * outs + lane] = y;
  // Every lane of the first warp needs all weights, in order.
  __shared__ float weight_of[most_experts];
  if (threadIdx.x < static_cast<unsigned>(pairs)) weight_of[threadIdx.x] = weight;
  __syncthreads();
  if (pair == 0 && lane < valid) {
    h[lane] = before + weighted_sum(weight_of, parts + lane, outs, pairs);
  }
}

template <int T>
void launch_gate_up(Stream& s, GateUp task, int top_k) {
  constexpr int outs = rows_at_once<T> / 2;
  const bool has_acts = task.x == nullptr;
  const int bytes = 128 + (has_acts ? 0 : own_acts_bytes(task.supers * super)) +
                    (gate_up_warps * terms_bytes<T> + 127) / 128 * 128 +
                    gate_up_warps * 2 * outs * task.supers * block_bytes;
  task.stamp = s.take_stamp();
  auto* kernel = has_acts ? one_row_gate_up_kernel<T, true> : one_row_gate_up_kernel<T, false>;
  constexpr int block_outs = gate_up_warps * outs;
  launch(s, "one_row_gate_up", kernel,
         dim3(static_cast<unsigned>((task.ff + block_outs - 1) / block_outs), static_cast<unsigned>(top_k)),
         dim3(32 * gate_up_warps), static_cast<size_t>(bytes), task);
}

template <int T>
int down_bytes(int supers, int top_k) {
  constexpr int outs = rows_at_once<T>;
  return 8 * most_experts + (top_k * outs * static_cast<int>(sizeof(float)) + 127) / 128 * 128 +
         top_k * own_acts_bytes(supers * super) + (top_k * terms_bytes<T> + 127) / 128 * 128 +
         top_k * outs * supers * block_bytes;
}

template <int T>
void launch_down_sum(Stream& s, const DownSum& task, int top_k) {
  constexpr int outs = rows_at_once<T>;
  const int tiles = (task.hidden + outs - 1) / outs;
  const size_t bytes = evenly_spread(s, static_cast<size_t>(down_bytes<T>(task.supers, top_k)), tiles);
  launch(s, "one_row_down_sum", one_row_down_sum_kernel<T>, dim3(static_cast<unsigned>(tiles)),
         dim3(static_cast<unsigned>(32 * top_k)), bytes, task);
}

bool aligned(const Matrix& m, uint64_t stride) {
  return reinterpret_cast<uintptr_t>(m.data) % 16 == 0 && stride % 16 == 0;
}

}  // namespace

bool one_row_gate_up_fits(const ExpertBank& bank) {
  return bank.gate.type == Type::Q4_K && bank.up.type == Type::Q4_K && bank.gate.in % super == 0 &&
         bank.gate.in <= super * 16 && aligned(bank.gate, bank.gate_stride) &&
         aligned(bank.up, bank.up_stride);
}

void one_row_gate_up(Stream& s, const ExpertBank& bank, const int32_t* ids, int top_k, const float* x,
                     const Acts& acts, float* act) {
  GateUp task;
  task.gate = static_cast<const uint8_t*>(bank.gate.data),
  task.up = static_cast<const uint8_t*>(bank.up.data);
  task.gate_stride = bank.gate_stride, task.up_stride = bank.up_stride;
  task.slot_of = bank.slot_of, task.ids = ids;
  task.ff = static_cast<int>(bank.gate.out), task.supers = static_cast<int>(bank.gate.in / super);
  task.x = x, task.acts = {acts.q, acts.sums, acts.scale}, task.act = act;
  if (task.supers <= 4)
    launch_gate_up<1>(s, task, top_k);
  else if (task.supers <= 8)
    launch_gate_up<2>(s, task, top_k);
  else
    launch_gate_up<4>(s, task, top_k);
}

bool one_row_down_fits(const ExpertBank& bank, int top_k) {
  return bank.down.type == Type::Q4_K && bank.down.in % super == 0 && bank.down.in <= super * 8 &&
         top_k <= most_experts && aligned(bank.down, bank.down_stride) &&
         std::max(down_bytes<1>(4, top_k), down_bytes<2>(8, top_k)) <= 200 * 1024;
}

void one_row_down_sum(Stream& s, const ExpertBank& bank, const int32_t* ids, const float* weights, int top_k,
                      bool ids_are_final, const float* act, float* h) {
  DownSum task;
  task.down = static_cast<const uint8_t*>(bank.down.data), task.stride = bank.down_stride;
  task.slot_of = bank.slot_of, task.ids = ids, task.weights = weights;
  task.hidden = static_cast<int>(bank.down.out), task.supers = static_cast<int>(bank.down.in / super);
  task.ids_are_final = ids_are_final, task.act = act, task.h = h;
  if (task.supers <= 4)
    launch_down_sum<1>(s, task, top_k);
  else
    launch_down_sum<2>(s, task, top_k);
}

}  // namespace weir::cuda
