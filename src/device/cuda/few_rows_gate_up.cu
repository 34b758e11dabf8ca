// Gate and up of a few rows' routed experts: rows that chose the same expert share one reading of it. A block
// belongs to a (row, expert) pair, and works for all pairs with that expert where its own is the first of
// them; the others' blocks end at once.
#include <algorithm>

#include "base/arithmetic.h"
#include "device/cuda/few_rows.cuh"
#include "device/cuda/parameters.cuh"
#include "device/cuda/stamp.cuh"

namespace weir::cuda {
namespace {

using namespace one_row;
using few_rows::Ring;
using few_rows::stages;

struct FewGateUp {
  const uint8_t* gate = nullptr;
  const uint8_t* up = nullptr;
  uint64_t gate_stride = 0, up_stride = 0;
  const int32_t* slot_of = nullptr;
  const int32_t* ids = nullptr;
  int ff = 0, supers = 0, top_k = 0, pairs = 0, tiles = 0;  ///< tiles: of a warp
  Acts acts;
  float* act = nullptr;
  uint64_t* visits = nullptr;
};

constexpr int warps = 4;
/// Up to so many pairs a warp takes two tiles, so that all multiprocessors have work; more pairs: four, and
/// what a warp does once is paid for by more products.
constexpr int most_short_pairs = 48;
constexpr int most_pairs = small_rows * 16, pair_words = most_pairs / 32;

/// Which pairs have the expert of one pair, by a warp: lane c < pair_words has those of pairs 32 c and on.
struct Sharers {
  uint32_t word, left;
  int expert;
  bool first;  ///< no earlier pair is among them

  __device__ __forceinline__ Sharers(const int32_t* ids, int pairs, int pair) {
    const int lane = static_cast<int>(threadIdx.x % 32);
    int id[pair_words];
    expert = __ldcg(ids + pair);
#pragma unroll
    for (int c = 0; c < pair_words; ++c) {
      if (32 * c >= pairs) break;
      id[c] = 32 * c + lane < pairs ? __ldcg(ids + 32 * c + lane) : -1;
    }
    word = 0;
#pragma unroll
    for (int c = 0; c < pair_words; ++c) {
      if (32 * c >= pairs) break;
      const uint32_t same = __ballot_sync(all_lanes, id[c] == expert);
      if (lane == c) word = same;
    }
    const int at = pair - 32 * lane;  // pairs of the lane's word below `pair`
    const uint32_t below = at <= 0 ? 0u : at >= 32 ? ~0u : (1u << at) - 1;
    first = !__any_sync(all_lanes, (word & below) != 0);
  }
  __device__ __forceinline__ void restart() { left = word; }
  /// The next since restart(); -1: none is left.
  __device__ __forceinline__ int next() {
    const uint32_t lanes = __ballot_sync(all_lanes, left != 0);
    if (lanes == 0) return -1;
    const int c = __ffs(static_cast<int>(lanes)) - 1;
    const int bit = __ffs(static_cast<int>(__shfl_sync(all_lanes, left, c))) - 1;
    if (static_cast<int>(threadIdx.x % 32) == c) left &= left - 1;
    return 32 * c + bit;
  }
};

/// A tile: rows_at_once / 2 rows of gate and the same of up.
template <int T>
struct Worker {
  static constexpr int outs = rows_at_once<T> / 2;
  const FewGateUp& task;
  const uint8_t *gate, *up;  ///< of the warp's first row
  int left;                  ///< of the warp's outputs, from `gate` on
  Ring ring;

  __device__ __forceinline__ int valid(int tile) const { return min(outs, left - tile * outs); }
  __device__ __forceinline__ void ask(int tile) {
    const int row_bytes = task.supers * block_bytes;
    const auto bytes = static_cast<uint32_t>(valid(tile) * row_bytes);
    const int64_t from = static_cast<int64_t>(tile) * outs * row_bytes;
    ring.ask(2 * bytes);
    ring.copy(0, gate + from, bytes);
    ring.copy(static_cast<int>(bytes), up + from, bytes);
    ring.asked_all();
  }
  __device__ __forceinline__ Share<T> row_share(int row) const {
    const int in = task.supers * super;
    return load_share<T>(task.acts.q + row * in, task.acts.sums + row * (in / 32),
                         task.acts.scale + row * task.supers, task.supers);
  }
};

/// blockIdx.y: the pair.
template <int T>
__global__ void __launch_bounds__(32 * warps, T < 4 ? 5 : 4)
    few_rows_gate_up_kernel(const FewGateUp task, uint64_t* stamp_slot) {
  constexpr int outs = Worker<T>::outs;
  WEIR_DYNAMIC_SHARED(shared);
  const int warp = static_cast<int>(threadIdx.x / 32), lane = static_cast<int>(threadIdx.x % 32);
  const int row_bytes = task.supers * block_bytes, tile_bytes = 2 * outs * row_bytes;
  const int first = (static_cast<int>(blockIdx.x) * warps + warp) * task.tiles * outs;
  auto* terms = reinterpret_cast<float4*>(shared + 128 + warp * terms_bytes<T>);
  uint8_t* const rings = shared + 128 + (warps * terms_bytes<T> + 127) / 128 * 128;
  const Ring ring{reinterpret_cast<uint64_t*>(shared) + warp * stages, rings + warp * stages * tile_bytes,
                  tile_bytes};
  ring.init();
  fetch_parameters(task);
  __syncthreads();  // the barriers are ready
  wait_and_stamp(stamp_slot);
  allow_next();  // only now: what follows may read the ids ahead of its own wait
  Sharers sharers(task.ids, task.pairs, static_cast<int>(blockIdx.y));
  if (!sharers.first) return;
  if (task.visits && blockIdx.x == 0 && threadIdx.x == 0)
    atomicAdd(reinterpret_cast<unsigned long long*>(task.visits), 1ull);
  const int left = min(task.tiles * outs, task.ff - first), tiles = (left + outs - 1) / outs;
  if (left <= 0) return;
  const auto slot = static_cast<uint64_t>(slot_of_expert(task.slot_of, sharers.expert));
  const int64_t from = static_cast<int64_t>(first) * row_bytes;
  Worker<T> worker{task, task.gate + slot * task.gate_stride + from, task.up + slot * task.up_stride + from,
                   left, ring};
  for (int tile = 0; tile < min(stages, tiles); ++tile) worker.ask(tile);
  int row = -1;
  Share<T> x;
#pragma unroll 1
  for (int tile = 0; tile < tiles; ++tile) {
    sharers.restart();
    int pair = sharers.next();
    if (row != pair / task.top_k) x = worker.row_share(row = pair / task.top_k);
    const uint8_t* weights = worker.ring.take();
    const int valid = worker.valid(tile);
    while (true) {
      const float y = outputs<T>(weights, row_bytes, task.supers, x, terms);
      const float up = __shfl_down_sync(all_lanes, y, valid);
      if (lane < valid)
        task.act[static_cast<int64_t>(pair) * task.ff + first + tile * outs + lane] = silu_f32(y) * up;
      if ((pair = sharers.next()) < 0) break;
      x = worker.row_share(row = pair / task.top_k);
    }
    worker.ring.let_go();
    if (tile + stages < tiles) worker.ask(tile + stages);
  }
}

template <int T>
void launch_gate_up(Stream& s, FewGateUp task) {
  constexpr int outs = Worker<T>::outs;
  const int bytes = 128 + (warps * terms_bytes<T> + 127) / 128 * 128 +
                    warps * stages * rows_at_once<T> * task.supers * block_bytes;
  task.tiles = task.pairs > most_short_pairs ? 4 : 2;
  const int block_outs = warps * task.tiles * outs;
  uint64_t* slot = s.take_stamp();
  launch(
      s, "few_rows_gate_up", few_rows_gate_up_kernel<T>,
      dim3(static_cast<unsigned>((task.ff + block_outs - 1) / block_outs), static_cast<unsigned>(task.pairs)),
      dim3(32 * warps), static_cast<size_t>(bytes), task, slot);
}

}  // namespace

void few_rows_gate_up(Stream& s, const ExpertBank& bank, const int32_t* ids, int rows, int top_k,
                      const Acts& acts, uint64_t* visits, float* act) {
  WEIR_CHECK(rows * top_k <= most_pairs, "{} rows of {} experts", rows, top_k);
  FewGateUp task;
  task.gate = static_cast<const uint8_t*>(bank.gate.data),
  task.up = static_cast<const uint8_t*>(bank.up.data);
  task.gate_stride = bank.gate_stride, task.up_stride = bank.up_stride;
  task.slot_of = bank.slot_of, task.ids = ids;
  task.ff = static_cast<int>(bank.gate.out), task.supers = static_cast<int>(bank.gate.in / super);
  task.top_k = top_k, task.pairs = rows * top_k;
  task.acts = acts, task.act = act, task.visits = visits;
  if (task.supers <= 4)
    launch_gate_up<1>(s, task);
  else if (task.supers <= 8)
    launch_gate_up<2>(s, task);
  else
    launch_gate_up<4>(s, task);
}

}  // namespace weir::cuda
