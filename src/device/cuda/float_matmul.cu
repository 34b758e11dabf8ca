// Matmuls with F32, F16 and BF16 weights: dense ones and routed experts. A warp computes a tile of dots
// (float_tile.cuh). Any number of rows; the bits do not depend on it.
#include "device/cuda/kernels.h"

#include "base/arithmetic.h"
#include "device/cuda/float_tile.cuh"
#include "device/cuda/stamp.cuh"

namespace weir::cuda {
namespace {

constexpr int tile_outs = 4, tile_rows = 8;
constexpr int threads = 256, warps = threads / 32;

unsigned divide_up(int64_t n, int64_t unit) { return static_cast<unsigned>((n + unit - 1) / unit); }

// --- dense
// -------------------------------------------------------------------------------------------------------------------

struct Dense {
  const void* weight;
  int64_t in, outs;
  const float* x;
  int rows;
  float* out;
  bool add;
};

/// A warp takes kRows rows and tile_outs outputs. Many rows: a block's eight warps are two row tiles by four
/// output tiles, which share operands in the first cache.
template <typename W, int kRows>
__global__ void __launch_bounds__(threads) dense_kernel(Dense a, uint64_t* slot) {
  constexpr int row_tiles = kRows == 1 ? 1 : 2, out_tiles = warps / row_tiles;
  constexpr int copies = 32 / (kRows * tile_outs);  // lanes that have the same dot
  allow_next();
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int64_t out0 = (int64_t{blockIdx.x} * out_tiles + warp / row_tiles) * tile_outs;
  const int64_t row0 = (int64_t{blockIdx.y} * row_tiles + warp % row_tiles) * kRows;
  wait_and_stamp(slot);
  if (out0 >= a.outs || row0 >= a.rows) return;
  const float* x[kRows];
  const W* w[tile_outs];
#pragma unroll
  for (int r = 0; r < kRows; ++r) x[r] = a.x + (row0 + r < a.rows ? row0 + r : a.rows - 1) * a.in;
#pragma unroll
  for (int o = 0; o < tile_outs; ++o)
    w[o] = static_cast<const W*>(a.weight) + (out0 + o < a.outs ? out0 + o : a.outs - 1) * a.in;
  const float y = dot_tile<kRows, tile_outs>(x, w, a.in, lane);
  const int64_t row = row0 + lane / copies / tile_outs, out = out0 + lane / copies % tile_outs;
  if (lane % copies != 0 || row >= a.rows || out >= a.outs) return;
  float* to = a.out + row * a.outs + out;
  *to = a.add ? *to + y : y;
}

template <typename W>
void launch_dense(Stream& s, const Dense& a) {
  uint64_t* slot = s.take_stamp();
  if (a.rows == 1)
    launch(s, "float_matmul", dense_kernel<W, 1>, dim3(divide_up(a.outs, tile_outs * warps)), dim3(threads),
           0, a, slot);
  else
    launch(s, "float_matmul", dense_kernel<W, tile_rows>,
           dim3(divide_up(a.outs, tile_outs * warps / 2), divide_up(a.rows, 2 * tile_rows)), dim3(threads), 0,
           a, slot);
}

// --- experts
// -------------------------------------------------------------------------------------------------------------------

struct Experts {
  ExpertBank bank;
  ExpertGroups groups;
  const float* x;  ///< gate_up: [rows, hidden]; down: [rows * top_k, ff]
  int top_k;
  float* out;  ///< gate_up: [rows * top_k, ff]; down: [rows * top_k, hidden]
};

struct Group {
  int64_t slot;
  int begin, end;  ///< into pairs
};

/// blockIdx.y counts the active experts; past them begin == end.
__device__ __forceinline__ Group group_of_block(const Experts& a) {
  const int index = blockIdx.y;
  if (index >= *a.groups.active) return {0, 0, 0};
  const int expert = a.groups.expert[index];
  return {a.bank.slot_of ? a.bank.slot_of[expert] : expert, a.groups.begin[index], a.groups.begin[index + 1]};
}

template <typename W>
__device__ __forceinline__ const W* weight_of(const Matrix& first, uint64_t stride, int64_t slot) {
  return reinterpret_cast<const W*>(static_cast<const uint8_t*>(first.data) +
                                    static_cast<uint64_t>(slot) * stride);
}

/// kRows pairs from `at` on times two outputs of gate and of up.
template <typename W, int kRows>
__device__ __forceinline__ void gate_up_tile(const Experts& a, const Group& g, int at, int64_t out0,
                                             int lane) {
  constexpr int copies = 32 / (kRows * 4);
  const int64_t hidden = a.bank.gate.in, ff = a.bank.gate.out;
  const float* x[kRows];
#pragma unroll
  for (int r = 0; r < kRows; ++r)
    x[r] = a.x + int64_t{a.groups.pairs[at + r < g.end ? at + r : g.end - 1] / a.top_k} * hidden;
  const int64_t out1 = out0 + 1 < ff ? out0 + 1 : out0;
  const W* gate = weight_of<W>(a.bank.gate, a.bank.gate_stride, g.slot);
  const W* up = weight_of<W>(a.bank.up, a.bank.up_stride, g.slot);
  const W* const w[4] = {gate + out0 * hidden, up + out0 * hidden, gate + out1 * hidden, up + out1 * hidden};
  const float y = dot_tile<kRows, 4>(x, w, hidden, lane);
  const float other = __shfl_xor_sync(whole_warp, y, copies);  // up's beside gate's
  const int dot = lane / copies, pair = at + dot / 4;
  const int64_t out = out0 + dot % 4 / 2;
  if (lane % copies == 0 && dot % 2 == 0 && pair < g.end && out < ff)
    a.out[a.groups.pairs[pair] * ff + out] = silu_f32(y) * other;
}

/// kRows pairs from `at` on times four outputs.
template <typename W, int kRows>
__device__ __forceinline__ void down_tile(const Experts& a, const Group& g, int at, int64_t out0, int lane) {
  constexpr int copies = 32 / (kRows * tile_outs);
  const int64_t ff = a.bank.down.in, hidden = a.bank.down.out;
  const float* x[kRows];
#pragma unroll
  for (int r = 0; r < kRows; ++r)
    x[r] = a.x + int64_t{a.groups.pairs[at + r < g.end ? at + r : g.end - 1]} * ff;
  const W* w[tile_outs];
#pragma unroll
  for (int o = 0; o < tile_outs; ++o)
    w[o] = weight_of<W>(a.bank.down, a.bank.down_stride, g.slot) +
           (out0 + o < hidden ? out0 + o : hidden - 1) * ff;
  const float y = dot_tile<kRows, tile_outs>(x, w, ff, lane);
  const int dot = lane / copies, pair = at + dot / tile_outs;
  const int64_t out = out0 + dot % tile_outs;
  if (lane % copies == 0 && pair < g.end && out < hidden) a.out[a.groups.pairs[pair] * hidden + out] = y;
}

template <typename W>
__global__ void __launch_bounds__(threads) gate_up_kernel(Experts a, uint64_t* slot) {
  allow_next();
  const int lane = threadIdx.x % 32;
  const int64_t out0 = (int64_t{blockIdx.x} * warps + threadIdx.x / 32) * 2;
  wait_and_stamp(slot);
  const Group g = group_of_block(a);
  if (out0 >= a.bank.gate.out) return;
  if (g.end - g.begin == 1) return gate_up_tile<W, 1>(a, g, g.begin, out0, lane);
  for (int at = g.begin; at < g.end; at += tile_rows) gate_up_tile<W, tile_rows>(a, g, at, out0, lane);
}

template <typename W>
__global__ void __launch_bounds__(threads) down_kernel(Experts a) {
  allow_next();
  const int lane = threadIdx.x % 32;
  const int64_t out0 = (int64_t{blockIdx.x} * warps + threadIdx.x / 32) * tile_outs;
  wait_for_previous();
  const Group g = group_of_block(a);
  if (out0 >= a.bank.down.out) return;
  if (g.end - g.begin == 1) return down_tile<W, 1>(a, g, g.begin, out0, lane);
  for (int at = g.begin; at < g.end; at += tile_rows) down_tile<W, tile_rows>(a, g, at, out0, lane);
}

/// As many blocks in y as experts can be active.
unsigned most_active(const ExpertBank& bank, int rows, int top_k) {
  const int64_t pairs = int64_t{rows} * top_k;
  return static_cast<unsigned>(pairs < bank.experts ? pairs : bank.experts);
}

}  // namespace

void float_matmul(Stream& s, const Matrix& weight, const float* x, int rows, float* out, bool add) {
  if (rows == 0) return;
  const Dense a{weight.data, weight.in, weight.out, x, rows, out, add};
  with_float_weights(weight.type, "float_matmul", [&]<typename W>() { launch_dense<W>(s, a); });
}

void float_gate_up(Stream& s, const ExpertBank& bank, const ExpertGroups& groups, const float* x, int rows,
                   int top_k, float* act) {
  if (rows == 0) return;
  WEIR_CHECK(bank.gate.type == bank.up.type, "gate in {}, up in {}", type_info(bank.gate.type).name,
             type_info(bank.up.type).name);
  const Experts a{bank, groups, x, top_k, act};
  with_float_weights(bank.gate.type, "experts", [&]<typename W>() {
    uint64_t* slot = s.take_stamp();
    launch(s, "float_gate_up", gate_up_kernel<W>,
           dim3(divide_up(bank.gate.out, 2 * warps), most_active(bank, rows, top_k)), dim3(threads), 0, a,
           slot);
  });
}

void float_down(Stream& s, const ExpertBank& bank, const ExpertGroups& groups, const float* act, int rows,
                int top_k, float* parts) {
  if (rows == 0) return;
  const Experts a{bank, groups, act, top_k, parts};
  with_float_weights(bank.down.type, "experts", [&]<typename W>() {
    launch(s, "float_down", down_kernel<W>,
           dim3(divide_up(bank.down.out, tile_outs * warps), most_active(bank, rows, top_k)), dim3(threads),
           0, a);
  });
}

}  // namespace weir::cuda
