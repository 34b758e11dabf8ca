// Down of a few rows' routed experts, with the sum over a row's experts: a block has one row and a part of
// the outputs, a warp one of the row's experts. Blocks of all rows are in flight at once and go through their
// parts together, so that rows which chose the same expert find its weights in the second-level cache.
#include <algorithm>

#include "device/cuda/few_rows.cuh"
#include "device/cuda/parameters.cuh"

namespace weir::cuda {
namespace {

using namespace one_row;
using few_rows::Ring;
using few_rows::stages;

struct FewDown {
  const uint8_t* down = nullptr;
  uint64_t stride = 0;
  const int32_t* slot_of = nullptr;
  const int32_t* ids = nullptr;
  const float* weights = nullptr;
  int hidden = 0, supers = 0, tiles = 0;  ///< tiles: of a block
  const float* act = nullptr;
  float* h = nullptr;
};

constexpr int most_experts = 16;
constexpr int most_outs = 128;  ///< of a block

/// Where a block keeps what, by bytes from the begin of its shared memory.
template <int T>
struct Places {
  static constexpr int outs = rows_at_once<T>, weights_at = most_experts * few_rows::barrier_bytes,
                       parts_at = weights_at + 128;
  int acts_at, terms_at, rings_at, tile_bytes, bytes;

  WEIR_BOTH_SIDES Places(int pairs, int supers, int tiles) {
    acts_at = parts_at + (pairs * tiles * outs * static_cast<int>(sizeof(float)) + 127) / 128 * 128;
    terms_at = acts_at + pairs * own_acts_bytes(supers * super);
    rings_at = terms_at + (pairs * terms_bytes<T> + 127) / 128 * 128;
    tile_bytes = outs * supers * block_bytes;
    bytes = rings_at + pairs * stages * tile_bytes;
  }
};

/// blockIdx.x: the row; blockIdx.y: which tiles of its outputs.
template <int T>
__global__ void __maxnreg__(80) few_rows_down_kernel(const FewDown task) {
  constexpr int outs = rows_at_once<T>;
  allow_next();
  WEIR_DYNAMIC_SHARED(shared);
  const int pair = static_cast<int>(threadIdx.x / 32), lane = static_cast<int>(threadIdx.x % 32),
            pairs = static_cast<int>(blockDim.x / 32), row = static_cast<int>(blockIdx.x);
  const int row_bytes = task.supers * block_bytes, in = task.supers * super;
  const Places<T> places(pairs, task.supers, task.tiles);
  Ring ring{reinterpret_cast<uint64_t*>(shared) + pair * stages,
            shared + places.rings_at + pair * stages * places.tile_bytes, places.tile_bytes};
  auto* weights = reinterpret_cast<float*>(shared + Places<T>::weights_at);
  auto* parts = reinterpret_cast<float*>(shared + Places<T>::parts_at);  // [pairs, tiles, outs]
  auto* terms = reinterpret_cast<float4*>(shared + places.terms_at + pair * terms_bytes<T>);
  const OwnActs own = own_acts(shared + places.acts_at + pair * own_acts_bytes(in), in);
  const int first = static_cast<int>(blockIdx.y) * task.tiles * outs;
  const int count = min(task.tiles * outs, task.hidden - first);  // of outputs
  const int tiles = (count + outs - 1) / outs;
  ring.init();
  fetch_parameters(task);
  __syncthreads();         // the barriers are ready
  earlier_are_complete();  // few_rows_gate_up was launched just before: the ids are final
  const int own_pair = row * pairs + pair;
  const auto slot = static_cast<uint64_t>(slot_of_expert(task.slot_of, __ldcg(task.ids + own_pair)));
  const uint8_t* from = task.down + slot * task.stride + static_cast<int64_t>(first) * row_bytes;
  if (lane == 0) weights[pair] = __ldcg(task.weights + own_pair);
  const auto ask = [&](int tile) {
    const auto bytes = static_cast<uint32_t>(min(outs, count - tile * outs) * row_bytes);
    ring.ask(bytes);
    ring.copy(0, from + static_cast<int64_t>(tile) * outs * row_bytes, bytes);
    ring.asked_all();
  };
  for (int tile = 0; tile < min(tiles, stages); ++tile) ask(tile);
  wait_for_previous();
  float* h = task.h + static_cast<int64_t>(row) * task.hidden + first;
  const auto threads = static_cast<int>(blockDim.x), thread = static_cast<int>(threadIdx.x);
  float before = thread < count ? h[thread] : 0;
  quantise_pair(task.act + static_cast<int64_t>(own_pair) * in, own, task.supers, lane);
  const Share<T> x = load_share<T>(own.q, own.sums, own.scale, task.supers);
#pragma unroll 1
  for (int tile = 0; tile < tiles; ++tile) {  // what is past `count` goes nowhere
    const float y = outputs<T>(ring.take(), row_bytes, task.supers, x, terms);
    if (lane < outs) parts[(pair * task.tiles + tile) * outs + lane] = y;
    ring.let_go();
    if (tile + stages < tiles) ask(tile + stages);
  }
  __syncthreads();  // parts and weights are written
  for (int i = thread; i < count; i += threads) {
    if (i != thread) before = h[i];
    h[i] = before + weighted_sum(weights, parts + i, task.tiles * outs, pairs);
  }
}

/// Tiles of a block where all blocks run at once, or nearly: fewer of more tiles leave multiprocessors idle.
template <int T>
int tiles_of_a_block(const Stream& s, const FewDown& task, int rows, int top_k) {
  constexpr int outs = rows_at_once<T>, registers = 80;
  const int all = (task.hidden + outs - 1) / outs;
  const int bytes = Places<T>(top_k, task.supers, most_outs / outs).bytes;
  const int at_once = few_rows::blocks_at_once(s, bytes, 32 * top_k, registers);
  const int blocks = std::clamp(at_once / rows, 1, all);
  return std::min((all + blocks - 1) / blocks, most_outs / outs);
}

template <int T>
void launch_down(Stream& s, FewDown task, int rows, int top_k) {
  constexpr int outs = rows_at_once<T>;
  task.tiles = tiles_of_a_block<T>(s, task, rows, top_k);
  const int block_outs = task.tiles * outs, blocks = (task.hidden + block_outs - 1) / block_outs;
  launch(s, "few_rows_down", few_rows_down_kernel<T>,
         dim3(static_cast<unsigned>(rows), static_cast<unsigned>(blocks)),
         dim3(static_cast<unsigned>(32 * top_k)),
         static_cast<size_t>(Places<T>(top_k, task.supers, task.tiles).bytes), task);
}

}  // namespace

bool few_rows_fit(const ExpertBank& bank, int top_k) {
  constexpr int most_bytes = 220 * 1024;
  if (!one_row_gate_up_fits(bank) || !one_row_down_fits(bank, top_k)) return false;
  const int supers = static_cast<int>(bank.down.in / super);
  const int bytes = supers <= 4 ? Places<1>(top_k, supers, most_outs / rows_at_once<1>).bytes
                                : Places<2>(top_k, supers, most_outs / rows_at_once<2>).bytes;
  return bytes <= most_bytes;
}

void few_rows_down_sum(Stream& s, const ExpertBank& bank, const int32_t* ids, const float* weights, int rows,
                       int top_k, const float* act, float* h) {
  FewDown task;
  task.down = static_cast<const uint8_t*>(bank.down.data), task.stride = bank.down_stride;
  task.slot_of = bank.slot_of, task.ids = ids, task.weights = weights;
  task.hidden = static_cast<int>(bank.down.out), task.supers = static_cast<int>(bank.down.in / super);
  task.act = act, task.h = h;
  if (task.supers <= 4)
    launch_down<1>(s, task, rows, top_k);
  else
    launch_down<2>(s, task, rows, top_k);
}

}  // namespace weir::cuda
