// The router: RMS norm, float logits, selection (router_select.cuh). Few rows are one launch, in which every
// block norms its rows for itself and the last block to finish selects; more rows are a norm, a float matmul
// and a selection. One row has its own kernel (route_one.cu) at the usual shapes.
#include "device/cuda/route_one.h"
#include "device/cuda/router_select.cuh"
#include "device/cuda/stamp.cuh"

namespace weir::cuda {
namespace {

constexpr int most_warps = 16;
static_assert(most_warps <= most_select_warps);

struct RouteFew {
  RouteArgs args;
  float* logits;
  uint32_t* ticket;
  ExpertGroups groups;
  int segments;  ///< of hidden: warps of a team
  int teams;     ///< in a block: each has one expert, and norms one row
};

struct FewShared {
  float square_sums[most_warps];        ///< [team][segment]
  float sums[most_warps * most_warps];  ///< [team][row][segment]
  bool last;
};

/// A block: `teams` experts (blockIdx.x) times `teams` rows (blockIdx.y), or kAlone times the one row, which
/// every team then norms and keeps in registers. Warp: team warp / segments, segment warp % segments. Dynamic
/// shared memory: the normed rows [teams][hidden in whole segments], later the last block's logits.
template <typename W, bool kAlone>
__global__ void __launch_bounds__(32 * most_warps, 1) route_few_kernel(RouteFew f, uint64_t* slot) {
  WEIR_DYNAMIC_SHARED(dynamic);
  __shared__ FewShared shared;
  __shared__ SelectShared selecting;
  allow_next();
  const RouteArgs& a = f.args;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, segments = f.segments, teams = f.teams;
  const int team = warp / segments, segment = warp % segments;
  const int64_t hidden = a.router.in, at = int64_t{segment} * segment_values;
  const int experts = static_cast<int>(a.router.out), count = segment_count(hidden, segment);
  const int expert = static_cast<int>(blockIdx.x) * teams + team;
  float w[segment_steps], norm[segment_steps], x[segment_steps];
  load_segment(w,
               static_cast<const W*>(a.router.data) + (expert < experts ? expert : experts - 1) * hidden + at,
               count, lane);
  if (a.norm) load_segment(norm, a.norm + at, count, lane);
  wait_and_stamp(slot);

  const int row0 = kAlone ? 0 : static_cast<int>(blockIdx.y) * teams;
  const int row = kAlone ? 0 : row0 + team < a.rows ? row0 + team : a.rows - 1;
  load_segment(x, a.x + row * hidden + at, count, lane);
  if (a.norm) {
    const float sum = segment_dot(x, x, count, lane);
    if (lane == 0) shared.square_sums[warp] = sum;
    __syncthreads();  // the sums of every team's segments
    const float total = add_segments(shared.square_sums + team * segments, segments);
    apply_norm(x, inverse_rms(total, hidden, a.eps), norm, true);
    if (blockIdx.x == 0 && (kAlone ? team == 0 : row0 + team < a.rows))
      store_segment(x, a.normed + row * hidden + at, count, lane);
  }

  if constexpr (kAlone) {
    const float sum = segment_dot(w, x, count, lane);
    if (lane == 0) shared.sums[warp] = sum;
    __syncthreads();  // the sums
    if (segment == 0 && lane == 0 && expert < experts)
      f.logits[expert] = add_segments(shared.sums + warp, segments);
  } else {
    auto* rows = reinterpret_cast<float*>(dynamic);
    const int stride = segments * segment_values;
    store_segment(x, rows + team * stride + at, count, lane);
    __syncthreads();  // the rows
    for (int r = 0; r < teams; ++r) {
      load_segment(x, rows + r * stride + at, count, lane);
      const float sum = segment_dot(w, x, count, lane);
      if (lane == 0) shared.sums[(team * teams + r) * segments + segment] = sum;
    }
    __syncthreads();  // the sums
    if (segment == 0 && lane < teams && row0 + lane < a.rows && expert < experts)
      f.logits[(row0 + lane) * experts + expert] =
          add_segments(shared.sums + (team * teams + lane) * segments, segments);
  }

  __syncthreads();  // the block's logits
  if (threadIdx.x == 0) {
    __threadfence();  // they are there before the ticket says so
    shared.last = atomicAdd(f.ticket, 1u) + 1 == gridDim.x * gridDim.y;
    __threadfence();  // the others' are read after their tickets
    if (shared.last) *f.ticket = 0;
  }
  __syncthreads();  // last
  if (!shared.last) return;
  select_experts<true>(a, f.logits, 0, a.rows, reinterpret_cast<float*>(dynamic), selecting, f.groups);
}

/// Selection alone: `rows_a_block` rows a block.
template <bool kGroups>
__global__ void __launch_bounds__(32 * most_warps)
    select_kernel(RouteArgs a, const float* logits, int rows_a_block, ExpertGroups groups) {
  WEIR_DYNAMIC_SHARED(dynamic);
  __shared__ SelectShared selecting;
  allow_next();
  wait_for_previous();
  const int row0 = static_cast<int>(blockIdx.x) * rows_a_block;
  const int rows = a.rows - row0 < rows_a_block ? a.rows - row0 : rows_a_block;
  select_experts<kGroups>(a, logits, row0, rows, reinterpret_cast<float*>(dynamic), selecting, groups);
}

unsigned divide_up(int n, int unit) { return static_cast<unsigned>((n + unit - 1) / unit); }

template <typename W>
void launch_few(Stream& s, const RouteArgs& args, float* logits, uint32_t* ticket,
                const ExpertGroups& groups) {
  const int experts = static_cast<int>(args.router.out), segments = segments_of(args.router.in);
  const bool alone = args.rows == 1;
  // One row: as many blocks as the device takes at once, and a thread an expert for the selection. More: a
  // block's experts share what a norm costs.
  const int wanted = alone ? static_cast<int>(divide_up(experts, s.multiprocessors)) : 4;
  const int most = most_warps / segments, teams = wanted < most ? wanted : most;
  const RouteFew f{args, logits, ticket, groups, segments, teams};
  const size_t rows_bytes =
      alone ? 0 : static_cast<size_t>(teams) * static_cast<size_t>(segments) * segment_values * sizeof(float);
  const size_t logit_bytes = select_logit_bytes(args.rows, experts);
  const dim3 grid(divide_up(experts, teams), alone ? 1 : divide_up(args.rows, teams));
  uint64_t* slot = s.take_stamp();
  launch(s, "route", alone ? route_few_kernel<W, true> : route_few_kernel<W, false>, grid,
         dim3(static_cast<unsigned>(32 * segments * teams)),
         rows_bytes > logit_bytes ? rows_bytes : logit_bytes, f, slot);
}

void route_many(Stream& s, const RouteArgs& args, float* logits, const ExpertGroups& groups) {
  const float* x = args.x;
  if (args.norm) {
    rms_norm(s, {args.x, args.norm, args.normed, args.rows, args.router.in, args.eps});
    x = args.normed;
  }
  float_matmul(s, args.router, x, args.rows, logits, false);
  const int experts = static_cast<int>(args.router.out);
  if (args.rows <= small_rows) {
    launch(s, "route", select_kernel<true>, dim3(1), dim3(32 * most_warps),
           select_logit_bytes(args.rows, experts), args, logits, args.rows, groups);
  } else {
    constexpr int rows_a_block = 4, warps = 4;
    launch(s, "route", select_kernel<false>, dim3(divide_up(args.rows, rows_a_block)), dim3(32 * warps),
           select_logit_bytes(rows_a_block, experts), args, logits, rows_a_block, ExpertGroups{});
  }
}

}  // namespace

void route(Stream& s, const RouteArgs& args, float* logits, uint32_t* tickets, const ExpertGroups& groups,
           const Acts& acts) {
  if (args.rows == 0) return;
  const int64_t experts = args.router.out;
  WEIR_CHECK(
      experts <= most_experts && args.top_k >= 1 && args.top_k <= most_selected && args.top_k <= experts,
      "top {} of {} experts", args.top_k, experts);
  if (takes_route_one(args)) {
    route_one(s, args, tickets, groups, acts);
    if (acts.format == ActFormat::per256) return;
  } else if (args.rows > small_rows || segments_of(args.router.in) > most_warps) {
    route_many(s, args, logits, groups);
  } else {
    with_float_weights(args.router.type, "router",
                       [&]<typename W>() { launch_few<W>(s, args, logits, tickets, groups); });
  }
  if (acts.format != ActFormat::none)
    quantise(s, args.norm ? args.normed : args.x, nullptr, 0, args.rows, args.router.in, acts);
}

}  // namespace weir::cuda
