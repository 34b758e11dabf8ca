// one_row_matmul(): which warp takes which rows, and the kernel.
#include <algorithm>

#include "device/cuda/one_row.cuh"
#include "device/cuda/parameters.cuh"
#include "device/cuda/stamp.cuh"

namespace weir::cuda {
namespace {

using namespace one_row;

constexpr int most_warps = 16;
/// Shared memory with which a block whose activations are made (the attention's output projection) is the
/// only one of its kind on a multiprocessor, and finds no place beside two blocks of q, k and v: those end
/// last, and its weights would be read beside theirs. With half of a multiprocessor's memory, which lets it
/// in there, a layer took 0.5 us longer on an H200.
constexpr size_t alone_bytes = 120 << 10;

struct MatmulTask {
  struct Target {
    const uint8_t* weight = nullptr;
    float* out = nullptr;
    int out_rows = 0, first_group = 0, add = 0;
  };
  Target target[3];
  int targets = 0, groups = 0, supers = 0;
  float eps = 0;
  const float* x = nullptr;
  const float* norm = nullptr;
  ActRow acts;
  uint64_t* stamp = nullptr;  ///< here and not behind it: it would have a line of the parameters of its own
};

/// kActs: the activations are in task.acts; else the block norms and quantises x itself.
template <int T, bool kActs>
__global__ void __launch_bounds__(32 * most_warps) one_row_matmul_kernel(const MatmulTask task) {
  constexpr int rows = rows_at_once<T>;
  allow_next();
  WEIR_DYNAMIC_SHARED(shared);
  const int warp = static_cast<int>(threadIdx.x / 32), lane = static_cast<int>(threadIdx.x % 32),
            warps = static_cast<int>(blockDim.x / 32), in = task.supers * super;
  const int row_bytes = task.supers * block_bytes, weight_bytes = rows * row_bytes;
  auto* barrier = reinterpret_cast<uint64_t*>(shared) + warp;
  uint8_t* at = shared + 128;
  const OwnActs own = own_acts(at, in);
  if constexpr (!kActs) at += own_acts_bytes(in);
  auto* terms = reinterpret_cast<float4*>(at + warp * terms_bytes<T>);
  uint8_t* weights = at + (warps * terms_bytes<T> + 127) / 128 * 128 + warp * weight_bytes;

  ready(barrier);
  const int group = static_cast<int>(blockIdx.x) * warps + warp;
  MatmulTask::Target target;
  int first = 0, valid = 0;
  if (group < task.groups) {
#pragma unroll
    for (int k = 0; k < 3; ++k)
      if (k < task.targets && group >= task.target[k].first_group) target = task.target[k];
    first = (group - target.first_group) * rows;
    valid = min(rows, target.out_rows - first);
    const auto bytes = static_cast<uint32_t>(valid * row_bytes);
    expect(barrier, bytes);
    copy(weights, target.weight + static_cast<int64_t>(first) * row_bytes, bytes, barrier);
  }
  float ahead[8] = {};
  if constexpr (!kActs)
    if (task.norm && warp < task.supers) load_eight(task.norm + warp * super + 8 * lane, true, ahead);
  fetch_parameters(task);
  FirstReads reads{};
  if constexpr (!kActs) {
    reads = first_reads(task.x);
    have_ready(reads.super_block), have_ready(reads.segment);
  }
  const auto stamp = wait_and_read_clock(task.stamp);
  if constexpr (!kActs) quantise_own(own, task.x, reads, task.norm, ahead, task.eps, in);
  if (valid == 0) return;
  float before = 0;
  float* out = target.out + first + lane;
  if (target.add && lane < valid) before = *out;
  const Share<T> x = kActs ? load_share<T>(task.acts.q, task.acts.sums, task.acts.scale, task.supers)
                           : load_share<T>(own.q, own.sums, own.scale, task.supers);
  barrier_wait(barrier, 0);
  stamp.store();
  const float y = outputs<T>(weights, row_bytes, task.supers, x, terms);
  if (lane < valid) *out = target.add ? before + y : y;
}

template <int T>
void launch_matmul(Stream& s, const SmallMatmul& args) {
  constexpr int rows = rows_at_once<T>;
  MatmulTask task;
  task.supers = static_cast<int>(args.in / super);
  for (int k = 0; k < args.targets; ++k) {
    const SmallTarget& t = args.target[k];
    task.target[k] = {static_cast<const uint8_t*>(t.weight), t.out, static_cast<int>(t.out_rows), task.groups,
                      t.add};
    task.groups += static_cast<int>((t.out_rows + rows - 1) / rows);
  }
  task.targets = args.targets;
  task.x = args.x, task.norm = args.norm, task.eps = args.eps;
  task.acts = {args.acts.q, args.acts.sums, args.acts.scale};
  const int share = (task.groups + s.multiprocessors - 1) / s.multiprocessors;
  const int warps = std::clamp(share <= most_warps ? share : (share + 1) / 2, 4, most_warps);
  const bool has_acts = args.x == nullptr;
  const int in = static_cast<int>(args.in);
  const int blocks = (task.groups + warps - 1) / warps;
  auto bytes = static_cast<size_t>(128 + (has_acts ? 0 : own_acts_bytes(in)) +
                                   (warps * terms_bytes<T> + 127) / 128 * 128 +
                                   warps * rows * task.supers * block_bytes);
  if (has_acts && blocks <= s.multiprocessors) bytes = std::max(bytes, alone_bytes);
  task.stamp = s.take_stamp();
  auto* kernel = has_acts ? one_row_matmul_kernel<T, true> : one_row_matmul_kernel<T, false>;
  launch(s, "one_row_matmul", kernel, dim3(static_cast<unsigned>(blocks)),
         dim3(static_cast<unsigned>(32 * warps)), bytes, task);
}

}  // namespace

bool one_row_takes_acts(Type type, int64_t in) {
  return type == Type::Q4_K && in % super == 0 && in <= super * 4 * products;
}

bool one_row_fits(const Matrix& w) {
  return one_row_takes_acts(w.type, w.in) && reinterpret_cast<uintptr_t>(w.data) % 16 == 0;
}

void one_row_matmul(Stream& s, const SmallMatmul& args) {
  const int64_t supers = args.in / super;
  if (supers <= 4)
    launch_matmul<1>(s, args);
  else if (supers <= 8)
    launch_matmul<2>(s, args);
  else if (supers <= 16)
    launch_matmul<4>(s, args);
  else
    launch_matmul<8>(s, args);
}

}  // namespace weir::cuda
