// The operations but the experts: which kernels each one launches, by rows and block format.
#include <algorithm>

#include "device/cuda/cuda_device.h"

namespace weir::cuda {
namespace {

/// Whether `rope` makes the very rows that `args` attends.
bool same_rows(const RopeStoreArgs& rope, const AttendArgs& args) {
  return rope.q == args.q && rope.rows.count == args.rows.count && rope.rows.lone == args.rows.lone &&
         rope.rows.position == args.rows.position && rope.rows.lane == args.rows.lane &&
         rope.heads == args.heads && rope.kv_heads == args.kv_heads && rope.head_dim == args.head_dim &&
         rope.kv.k == args.kv.k && rope.kv.v == args.kv.v && rope.kv.lane_stride == args.kv.lane_stride &&
         rope.kv.row_stride == args.kv.row_stride;
}

}  // namespace

void CudaDevice::check_scratch(int rows, int64_t in) const {
  WEIR_CHECK(rows <= layout_.needs.rows && in <= std::max(layout_.needs.max_in, layout_.needs.hidden),
             "{} rows of {}, {} values of {}", rows, layout_.needs.rows, in, layout_.needs.max_in);
}

Acts CudaDevice::acts(ActFormat format, int64_t in) const {
  return {scratch<int8_t>(layout_.q), scratch<float>(layout_.scale), scratch<int16_t>(layout_.sums), in,
          format};
}

void CudaDevice::embed(const EmbedArgs& args) {
  begin_operation();
  declare(type_info(args.table.type).bytes(static_cast<uint64_t>(args.table.in)) *
          static_cast<uint64_t>(args.rows.count));
  cuda::embed(stream_, args);
  settled_ = args.rows.count > 0;
  end_operation();
}

void CudaDevice::rms_norm(const NormArgs& args) {
  begin_operation();
  cuda::rms_norm(stream_, args);
  end_operation();
}

void CudaDevice::matmul(const MatmulArgs& args) {
  WEIR_CHECK(!args.targets.empty() && args.targets.size() <= 3, "{} targets", args.targets.size());
  check_scratch(args.rows, args.targets[0].weight.in);
  if (args.rows == 0) return;
  AddBias biases;
  biases.rows = args.rows;
  MatmulTarget targets[3];
  for (size_t i = 0; i < args.targets.size(); ++i) {
    MatmulTarget& target = targets[i] = args.targets[i];
    if (!target.bias) continue;
    BiasTarget& bias = biases.target[biases.targets++];
    bias = {target.out, target.bias, nullptr, target.weight.out};
    if (!target.add) continue;
    WEIR_CHECK(!args.norm && args.targets.size() == 1, "a sum with a bias: {} targets{}", args.targets.size(),
               args.norm ? ", a norm" : "");
    check_scratch(args.rows, target.weight.out);
    bias.sum = target.out;
    bias.y = target.out = scratch<float>(layout_.normed);
    target.add = false;
  }
  MatmulArgs dots = args;
  dots.targets = {targets, args.targets.size()};
  const ReadyActs ready = args.norm ? ReadyActs{} : ready_;  // before begin_operation() forgets it
  begin_operation();
  launch_dots(dots, ready);
  add_bias(stream_, biases);
  end_operation();
}

/// `ready`: what acts() holds of args.x as it is multiplied, normed where it has a norm.
void CudaDevice::launch_dots(const MatmulArgs& args, ReadyActs ready) {
  for (size_t i = 0; i < args.targets.size();) {  // neighbours of one format share a launch
    const Type type = args.targets[i].weight.type;
    size_t end = i + 1;
    while (end < args.targets.size() && args.targets[end].weight.type == type) ++end;
    for (size_t j = i; j < end; ++j) declare(args.targets[j].weight.bytes());
    const auto targets = args.targets.subspan(i, end - i);
    if (type_info(type).act != ActFormat::none) {
      quantised_matmul(args, type, targets, ready);
    } else {
      const float* x = args.x;
      if (args.norm) {
        x = scratch<float>(layout_.normed);
        cuda::rms_norm(stream_, {args.x, args.norm, scratch<float>(layout_.normed), args.rows,
                                 targets[0].weight.in, args.eps});
      }
      for (const MatmulTarget& t : targets) float_matmul(stream_, t.weight, x, args.rows, t.out, t.add);
    }
    i = end;
  }
}

/// `ready` as in launch_dots(), before and after.
void CudaDevice::quantised_matmul(const MatmulArgs& args, Type type, std::span<const MatmulTarget> targets,
                                  ReadyActs& ready) {
  const int64_t in = targets[0].weight.in;
  const Acts quantised = acts(type_info(type).act, in);
  if (args.rows > 1 && !ready.is(args.x, args.rows, quantised)) {
    quantise(stream_, args.x, args.norm, args.eps, args.rows, in, quantised);
    ready = {args.x, in, quantised.format, args.rows};
  }
  // What multiplies several rows does not stamp, and making them again for a stamp were a launch more.
  WEIR_CHECK(args.rows == 1 || !stream_.stamp, "a role begins at a matmul of {} rows that are quantised",
             args.rows);
  if (args.rows > small_rows) return large_matmuls(args, type, targets, quantised);
  SmallMatmul small;
  small.type = type, small.in = in, small.rows = args.rows;
  small.x = args.x, small.norm = args.norm, small.eps = args.eps;
  small.acts = quantised;
  for (const MatmulTarget& t : targets)
    small.target[small.targets++] = {t.weight.data, t.out, t.weight.out, t.add};
  const bool fits = std::all_of(targets.begin(), targets.end(),
                                [](const MatmulTarget& t) { return one_row_fits(t.weight); });
  if (args.rows == 1 && fits) {
    if (ready.is(args.x, 1, quantised)) small.x = nullptr;
    one_row_matmul(stream_, small);
  } else if (small_matmul_fits(stream_, small)) {
    small_matmul(stream_, small);
  } else {  // a row too wide for a block's shared memory: the tiles of many rows hold a part of it at a time
    if (args.rows == 1 && !ready.is(args.x, 1, quantised)) {
      quantise(stream_, args.x, args.norm, args.eps, 1, in, quantised);
      ready = {args.x, in, quantised.format, 1};
    }
    large_matmuls(args, type, targets, quantised);
  }
}

void CudaDevice::large_matmuls(const MatmulArgs& args, Type type, std::span<const MatmulTarget> targets,
                               const Acts& quantised) {
  for (const MatmulTarget& t : targets)
    large_matmul(stream_,
                 {type, t.weight.data, t.weight.in, t.weight.out, quantised, args.rows, t.out, t.add});
}

/// Waits for attend() where its kernels can do it on their way.
void CudaDevice::rope_and_store(const RopeStoreArgs& args) {
  begin_operation();
  if (attend_rotates(args.rows, args.head_dim, options_.arithmetic) && !stream_.stamp) {
    waiting_rope_ = args;
    return;
  }
  settled_ = false;
  cuda::rope_and_store(stream_, args);
  end_operation();
}

void CudaDevice::launch_waiting_rope() {
  if (!waiting_rope_) return;
  const RopeStoreArgs args = *waiting_rope_;
  waiting_rope_.reset();
  settled_ = false;
  cuda::rope_and_store(stream_, args);
}

void CudaDevice::attend(const AttendArgs& args) {
  std::optional<RopeStoreArgs> rope;
  if (waiting_rope_ && !stream_.stamp && same_rows(*waiting_rope_, args)) rope.swap(waiting_rope_);
  WEIR_CHECK(args.heads % args.kv_heads == 0 && args.heads <= layout_.needs.heads &&
                 args.head_dim <= layout_.needs.head_dim && args.rows.count <= layout_.needs.rows &&
                 args.rows.longest <= layout_.needs.longest,
             "{} rows, {} of {} heads, {} kv heads, {} positions of {}", args.rows.count, args.heads,
             layout_.needs.heads, args.kv_heads, args.rows.longest, layout_.needs.longest);
  begin_operation();
  const uint64_t position_bytes =
      2 * sizeof(uint16_t) * static_cast<uint64_t>(args.kv_heads) * static_cast<uint64_t>(args.head_dim);
  if (args.window == 0) {
    account_.bytes_per_position[static_cast<size_t>(role_)] += position_bytes;
    kv_positions_ = args.rows.kv_positions;
  } else {
    account_.add_window(role_, args.window, position_bytes);
  }
  // A few rows' next stop is a matmul, whose weights are mostly K-quants: quantised for those on the way.
  const int64_t out = int64_t{args.heads} * args.head_dim;
  const Acts quantised = acts(ActFormat::per256, out);
  AttendMore more;
  if (rope) more.rope = &*rope;
  more.settled = settled_;
  if (rope) settled_ = false;
  if (args.rows.count <= small_rows && out <= std::max(layout_.needs.max_in, layout_.needs.hidden))
    more.acts = &quantised;
  if (cuda::attend(stream_, args, options_.arithmetic, scratch<void>(layout_.partials), layout_.partial_bytes,
                   more))
    ready_ = {args.out, out, quantised.format, args.rows.count};
  end_operation();
}

void CudaDevice::combine(const CombineArgs& args) {
  begin_operation();
  cuda::combine(stream_, args);
  end_operation();
}

void CudaDevice::choose(const ChooseArgs& args) {
  begin_operation();
  cuda::choose(stream_, args, scratch<void>(layout_.choose));
  end_operation();
}

void CudaDevice::gated(const GatedArgs& args) {
  begin_operation();
  cuda::gated(stream_, args);
  end_operation();
}

void CudaDevice::add(float* h, const float* y, int64_t n) {
  begin_operation();
  cuda::add(stream_, h, y, n);
  end_operation();
}

void CudaDevice::gather_rows(const float* x, const int32_t* index, int count, int64_t n, float* out) {
  begin_operation();
  cuda::gather_rows(stream_, x, index, count, n, out);
  end_operation();
}

}  // namespace weir::cuda
