// The router for one row or a few, where latency is all there is: a block an expert and row, each of which
// norms the row for itself, and one warp of the block that began last selects. Blocks hand their logits over
// as words that are not zero, one store each, so that nothing has to be fenced: the selecting warp waits for
// every word. It waits for blocks that have all begun, and none of them waits for it, so any order of blocks
// ends.
#include "device/cuda/route_one.h"

#include "base/arithmetic.h"
#include "device/cuda/parameters.cuh"
#include "device/cuda/quantise_values.cuh"
#include "device/cuda/stamp.cuh"

namespace weir::cuda {
namespace {

constexpr int most_segments = 16, most_chosen = 16;
constexpr int group_values = 256, group_steps = group_values / 32;
/// Keys order as floats do, -0 as +0; 0 is no logit, 1 is NaN.
constexpr uint32_t nan_key = 1, negative_infinity_key = 0x007fffffu;

struct RouteOne {
  RouteArgs args;
  uint32_t* tickets;  ///< [0]: blocks that have begun; [1 + expert]: its logit's key
  ExpertGroups groups;
  Acts acts;
  int segments;  ///< of hidden: warps of a block

  /// Rows are independent of each other: blockIdx.y.
  __device__ __forceinline__ void move_to_row(int row) {
    const int64_t in = args.router.in, at = row * in;
    args.x += at;
    if (args.normed) args.normed += at;
    args.ids += row * args.top_k, args.weights += row * args.top_k;
    tickets += row * route_ticket_words;
    acts.q += at, acts.scale += at / group_values, acts.sums += at / 32;
  }
};

struct OneShared {
  float4 square_sums[most_segments / 4], sums[most_segments / 4];  ///< [segment], zero past the last
  float4 terms[most_one_experts / 4];                              ///< of the softmax's sum
  float logit[most_chosen];
  int id[most_chosen];
};

__device__ __forceinline__ uint32_t key_of(float logit) {
  const uint32_t bits = __float_as_uint(logit + 0.0f);  // -0 becomes +0
  return logit != logit ? nan_key : bits >> 31 ? ~bits : bits | 0x80000000u;
}
__device__ __forceinline__ float logit_of(uint32_t key) {
  return __uint_as_float(key >> 31 ? key & 0x7fffffffu : ~key);
}

/// Sums that start from +0, in order, of four at a time: what is past the last is zero. (A sum of -0 comes
/// out as +0, which no result shows.)
__device__ __forceinline__ float add_fours(const float4* terms, int count) {
  float sum = 0;
  for (int i = 0; 4 * i < count; ++i) {
    const float4 v = terms[i];
    sum = (((sum + v.x) + v.y) + v.z) + v.w;
  }
  return sum;
}

/// Waits for the keys of all experts and clears them: lane's are those of experts 32 c + lane, 0 where there
/// is none. The result: whether a logit is NaN; it counts as -inf.
template <int kChunks>
__device__ __forceinline__ bool collect(uint32_t* slots, int experts, int lane, uint32_t (&key)[kChunks]) {
  bool missing;
  do {
    missing = false;
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
      const int e = 32 * c + lane;
      key[c] = 0;
      // Volatile: other blocks write it while this one waits.
      if (e < experts) key[c] = *static_cast<const volatile uint32_t*>(slots + e);
    }
#pragma unroll
    for (int c = 0; c < kChunks; ++c) missing = missing || (32 * c + lane < experts && key[c] == 0);
  } while (__any_sync(whole_warp, missing));
  bool nan = false;
#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
    if (32 * c + lane < experts) slots[32 * c + lane] = 0;
    nan = nan || key[c] == nan_key;
    if (key[c] == nan_key) key[c] = negative_infinity_key;
  }
  return __any_sync(whole_warp, nan);
}

/// The k first by (key descending, expert ascending): chosen[c] bit l is expert 32 c + l. The result: the
/// largest key. All lanes have the same.
template <int kChunks>
__device__ __forceinline__ uint32_t choose_experts(const uint32_t (&key)[kChunks], int k,
                                                   uint32_t (&chosen)[kChunks]) {
  uint32_t top[kChunks];  // the lane's keys, largest first
#pragma unroll
  for (int c = 0; c < kChunks; ++c) top[c] = key[c];
#pragma unroll
  for (int end = kChunks - 1; end > 0; --end)
#pragma unroll
    for (int c = 0; c < end; ++c) {
      const uint32_t high = top[c] > top[c + 1] ? top[c] : top[c + 1];
      top[c + 1] = top[c] > top[c + 1] ? top[c + 1] : top[c];
      top[c] = high;
    }
  uint32_t largest = 0, threshold = 0;
#pragma unroll 1
  for (int j = 0; j < k; ++j) {
    threshold = __reduce_max_sync(whole_warp, top[0]);
    if (j == 0) largest = threshold;
    const bool mine = top[0] == threshold;
#pragma unroll
    for (int c = 0; c < kChunks; ++c) top[c] = !mine ? top[c] : c + 1 < kChunks ? top[c + 1] : 0;
  }
  const auto count_chosen = [&] {
    int count = 0;
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
      chosen[c] = __ballot_sync(whole_warp, key[c] >= threshold);
      count += __popc(chosen[c]);
    }
    return count;
  };
  if (count_chosen() == k) return largest;
  // Lanes with equal keys let them go together, so the threshold lies too deep: from the top again, a value
  // at a time.
  threshold = largest;
  int count;
  while ((count = count_chosen()) < k) {
    uint32_t below = 0;
#pragma unroll
    for (int c = 0; c < kChunks; ++c) below = key[c] < threshold && key[c] > below ? key[c] : below;
    threshold = __reduce_max_sync(whole_warp, below);
  }
#pragma unroll
  for (int c = kChunks - 1; c >= 0; --c)  // of those that equal the k-th, the last ones are too many
    for (uint32_t equal = __ballot_sync(whole_warp, key[c] == threshold); equal != 0 && count > k; --count) {
      const uint32_t last = 0x80000000u >> __clz(static_cast<int>(equal));
      equal ^= last, chosen[c] ^= last;
    }
  return largest;
}

/// One warp, from keys to the row's ids, weights and pairs.
template <int kChunks>
__device__ __forceinline__ void select_one(const RouteOne& f, OneShared& s, int lane) {
  const RouteArgs& a = f.args;
  const int experts = static_cast<int>(a.router.out), k = a.top_k;
  uint32_t key[kChunks], chosen[kChunks];
  const bool nan = collect(f.tickets + 1, experts, lane, key);
  const float largest = logit_of(choose_experts(key, k, chosen));
  int before = 0;
#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
    if (chosen[c] >> lane & 1u) {
      const int at = before + __popc(chosen[c] & ((1u << lane) - 1));
      s.id[at] = 32 * c + lane, s.logit[at] = logit_of(key[c]);
    }
    before += __popc(chosen[c]);
  }
  __syncwarp();  // id and logit are written
  auto* terms = reinterpret_cast<float*>(s.terms);
  const int j = lane % most_chosen;
  const float term = j < k ? exp_f32(s.logit[j] - largest) : 0.0f;
  int count = k;
  if (a.kind == RouterKind::softmax_selected) {
    if (lane < most_chosen) terms[lane] = term;
  } else {
    count = experts;
#pragma unroll
    for (int c = 0; c < kChunks; ++c)
      terms[32 * c + lane] = 32 * c + lane < experts ? exp_f32(logit_of(key[c]) - largest) : 0.0f;
  }
  __syncwarp();  // terms are written
  const float weight = term / add_fours(s.terms, count);
  if (lane < k) {
    a.ids[lane] = s.id[lane];
    // A logit that is not a number makes the row's weights NaN, whichever experts were chosen.
    a.weights[lane] = nan ? __uint_as_float(0x7fc00000u) : weight;
  }
  const ExpertGroups& g = f.groups;
  if (!g.active) return;
  if (lane < k) g.expert[lane] = s.id[lane], g.pairs[lane] = lane;
  if (lane <= k) g.begin[lane] = lane;
  if (lane == 0) {
    *g.active = k;
    if (g.visits)
      atomicAdd(reinterpret_cast<unsigned long long*>(g.visits), static_cast<unsigned long long>(k));
  }
}

/// The block's share of the row that is multiplied, and of its int8 blocks of 256: groups of 256 values, each
/// by the warp that holds it.
__device__ __forceinline__ void write_groups(const RouteOne& f, const float (&x)[segment_steps], int segment,
                                             int lane) {
  const int groups = static_cast<int>(f.args.router.in) / group_values;
  for (int group = static_cast<int>(blockIdx.x); group < groups; group += static_cast<int>(gridDim.x)) {
    if (group / 2 != segment) continue;
    float v[group_steps];
#pragma unroll
    for (int i = 0; i < group_steps; ++i) v[i] = group % 2 ? x[group_steps + i] : x[i];
    const int64_t at = int64_t{group} * group_values;
    if (f.args.norm) {
#pragma unroll
      for (int i = 0; i < group_steps; ++i) f.args.normed[at + 32 * i + lane] = v[i];
    }
    if (f.acts.format == ActFormat::per256) quantise_to<256>(v, f.acts, at, group_values, lane);
  }
}

template <typename W, int kChunks>
__global__ void __launch_bounds__(32 * most_segments, 1) route_one_kernel(RouteOne f, uint64_t* slot) {
  __shared__ OneShared shared;
  allow_next();
  fetch_parameters(f);
  f.move_to_row(static_cast<int>(blockIdx.y));
  const RouteArgs& a = f.args;
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, segment = thread / 32;
  const int expert = static_cast<int>(blockIdx.x), at = thread / 32 * segment_values;
  auto* square_sums = reinterpret_cast<float*>(shared.square_sums);
  auto* sums = reinterpret_cast<float*>(shared.sums);
  float w[segment_steps], norm[segment_steps], x[segment_steps];
  load_segment(w, static_cast<const W*>(a.router.data) + expert * a.router.in + at, segment_values, lane);
  if (a.norm) load_segment(norm, a.norm + at, segment_values, lane);
  const float bias = a.bias ? a.bias[expert] : 0.0f;
  if (thread >= f.segments && thread < most_segments) square_sums[thread] = 0, sums[thread] = 0;
  // The warp that gives the block's logit away, and selects: not one that write_groups() keeps busy.
  const int writer = expert / 2, keeper = writer + 1 < f.segments ? writer + 1 : 0;
  have_ready(a.x + at + lane);
  const auto stamp = wait_and_read_clock(slot);

  load_segment(x, a.x + at, segment_values, lane);
  uint32_t begun = 0;
  if (segment == keeper && lane == 0) begun = atomicAdd(f.tickets, 1u);
  if (a.norm) {
    const float sum = segment_dot(x, x, segment_values, lane);
    if (lane == 0) square_sums[segment] = sum;
    __syncthreads();  // the squares' sums
    apply_norm(x, inverse_rms(add_fours(shared.square_sums, f.segments), a.router.in, a.eps), norm, true);
  }
  const float sum = segment_dot(w, x, segment_values, lane);
  if (lane == 0) sums[segment] = sum;
  __syncthreads();  // the sums
  stamp.store();
  if (segment == keeper && lane == 0) {
    const float logit = add_fours(shared.sums, f.segments);
    *static_cast<volatile uint32_t*>(f.tickets + 1 + expert) = key_of(a.bias ? logit + bias : logit);
  }
  write_groups(f, x, segment, lane);
  if (segment != keeper || __shfl_sync(whole_warp, begun, 0) + 1 != gridDim.x) return;
  if (lane == 0) *f.tickets = 0;
  select_one<kChunks>(f, shared, lane);
}

template <typename W, int kChunks>
void launch_one(Stream& s, const RouteOne& f) {
  uint64_t* slot = s.take_stamp();
  launch(s, "route", route_one_kernel<W, kChunks>,
         dim3(static_cast<unsigned>(f.args.router.out), static_cast<unsigned>(f.args.rows)),
         dim3(static_cast<unsigned>(32 * f.segments)), 0, f, slot);
}

}  // namespace

bool takes_route_one(const RouteArgs& args) {
  return args.rows <= small_rows && args.router.in % segment_values == 0 &&
         segments_of(args.router.in) <= most_segments && args.router.out <= most_one_experts &&
         args.top_k <= most_chosen;
}

void route_one(Stream& s, const RouteArgs& args, uint32_t* tickets, const ExpertGroups& groups,
               const Acts& acts) {
  RouteOne f{args, tickets, groups, acts, segments_of(args.router.in)};
  if (args.rows > 1) f.groups = {};
  with_float_weights(args.router.type, "router", [&]<typename W>() {
    args.router.out <= 128 ? launch_one<W, 4>(s, f) : launch_one<W, 8>(s, f);
  });
}

}  // namespace weir::cuda
