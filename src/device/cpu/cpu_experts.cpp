// experts(): the pairs of all experts in the group, in slices that fit the scratch. A slice is three tasks of
// the team however many experts it holds: gate and up, activation with quantisation, down. Slices and splits
// cannot change a bit: every pair's result depends on its row and its expert only.
#include <algorithm>
#include <cstring>

#include "device/cpu/cpu_device.h"
#include "device/cpu/share.h"

namespace weir::cpu {
namespace {

constexpr int64_t out_grain = 16;
/// Of reading and unpacking a weight row, in units of multiplying it with one row of activations.
constexpr int64_t weight_row_cost = 4;

MatmulTask weight_task(const Matrix& weight) {
  MatmulTask task;
  task.weight = static_cast<const uint8_t*>(weight.data);
  task.row_bytes = type_info(weight.type).bytes(static_cast<uint64_t>(weight.in));
  task.in = weight.in;
  return task;
}

}  // namespace

void CpuDevice::experts(const ExpertsArgs& args) {
  WEIR_CHECK(args.activation == Activation::swiglu && args.top_k <= layout_.needs.top_k, "top {} of {}",
             args.top_k, layout_.needs.top_k);
  quantize_expert_rows(args);
  slice_.clear();
  int64_t used = 0;
  for (const ExpertWork& work : args.work) {
    if (work.pairs.empty()) continue;
    WEIR_CHECK(work.gate.out <= layout_.needs.expert_ff, "ff {} of {}", work.gate.out,
               layout_.needs.expert_ff);
    declare_bytes(work.gate.bytes() + work.up.bytes() + work.down.bytes());
    const auto count = std::ssize(work.pairs);
    // An expert is kept whole where a slice of its own can hold it: its weights are then read once.
    if (used > 0 && used + count > layout_.pairs && count <= layout_.pairs) {
      run_expert_slice(args);
      used = 0;
    }
    for (int64_t begin = 0; begin < count;) {
      const int64_t end = std::min(count, begin + layout_.pairs - used);
      slice_.push_back({&work, begin, end, used});
      used += end - begin;
      begin = end;
      if (used < layout_.pairs) continue;
      run_expert_slice(args);
      used = 0;
    }
  }
  if (used > 0) run_expert_slice(args);
}

void CpuDevice::quantize_expert_rows(const ExpertsArgs& args) {
  auto* list = scratch<int32_t>(layout_.row_list);
  auto* seen = scratch<uint8_t>(layout_.row_seen);
  bool needed[3] = {};
  int count = 0;
  int64_t in = 0;
  memset(seen, 0, static_cast<size_t>(layout_.needs.rows));
  for (const ExpertWork& work : args.work) {
    if (work.pairs.empty()) continue;
    in = work.gate.in;
    check_rows(work.pairs.back() / args.top_k + 1, in);
    needed[static_cast<size_t>(type_info(work.gate.type).act)] = true;
    needed[static_cast<size_t>(type_info(work.up.type).act)] = true;
    for (const int32_t pair : work.pairs) {
      const int32_t row = pair / args.top_k;
      if (!seen[row]) list[count++] = row;
      seen[row] = 1;
    }
  }
  for (const ActFormat format : {ActFormat::per32, ActFormat::per256}) {
    if (!needed[static_cast<size_t>(format)]) continue;
    const QuantizeKernel quantize = quantize_kernel(format);
    team_.run(count, 1, [&](int64_t begin, int64_t end, int) {
      QuantizeTask task = act_task(format, args.x, in);
      for (int64_t i = begin; i < end; ++i) {  // each in its own place: row r of x is row r of the scratch
        task.row_begin = list[i], task.row_end = list[i] + 1;
        quantize(task);
      }
    });
  }
}

void CpuDevice::run_expert_slice(const ExpertsArgs& args) {
  auto* pair_row = scratch<int32_t>(layout_.pair_row);
  int64_t pairs = 0;
  for (const ExpertPiece& piece : slice_) {
    for (int64_t i = 0; i < piece.pairs(); ++i)
      pair_row[piece.local + i] = piece.work->pairs[static_cast<size_t>(piece.pair_begin + i)] / args.top_k;
    pairs += piece.pairs();
  }
  each_member([&](int member) { expert_gate_up(args, member); });
  team_.run(pairs, 1, [&](int64_t begin, int64_t end, int) {
    for (const ExpertPiece& piece : slice_) {
      const int64_t first = std::max(begin, piece.local), last = std::min(end, piece.local + piece.pairs());
      if (first < last) expert_activate(piece, first, last);
    }
  });
  each_member([&](int member) { expert_down(args, member); });
  slice_.clear();
}

/// Gate then up of each expert, output rows laid end to end.
void CpuDevice::expert_gate_up(const ExpertsArgs& args, int member) {
  const auto part_of = [&](int64_t i) {
    const ExpertPiece& piece = slice_[static_cast<size_t>(i / 2)];
    return SharePart{(piece.work->gate.out + out_grain - 1) / out_grain, piece.pairs() + weight_row_cost};
  };
  for_share(2 * std::ssize(slice_), part_of, member, team_.size(),
            [&](int64_t i, int64_t begin, int64_t end) {
              const ExpertPiece& piece = slice_[static_cast<size_t>(i / 2)];
              const Matrix& weight = i % 2 == 0 ? piece.work->gate : piece.work->up;
              const ActFormat format = type_info(weight.type).act;
              MatmulTask task = weight_task(weight);
              task.out_begin = begin * out_grain;
              task.out_end = std::min(end * out_grain, weight.out);
              task.n = static_cast<int>(piece.pairs());
              if (format != ActFormat::none) task.act = act_rows(format, layout_.needs.rows, weight.in);
              task.x = args.x;
              task.x_index = scratch<int32_t>(layout_.pair_row) + piece.local;
              task.y = scratch<float>(i % 2 == 0 ? layout_.gate : layout_.up) + piece.local * weight.out;
              task.y_stride = weight.out;
              matmul_kernel(weight.type)(task);
            });
}

quant::ActRows CpuDevice::piece_act_rows(const ExpertPiece& piece) const {
  const int64_t ff = piece.work->down.in;
  quant::ActRows act;
  act.format = type_info(piece.work->down.type).act;
  act.q = scratch<int8_t>(layout_.q_ff) + piece.local * ff;
  act.scale = scratch<float>(layout_.scale_ff) + piece.local * (ff / 32);
  act.sums =
      act.format == ActFormat::per256 ? scratch<int16_t>(layout_.sums_ff) + piece.local * (ff / 32) : nullptr;
  act.in = ff;
  act.rows = static_cast<int>(piece.pairs());
  return act;
}

/// silu(gate) * up in gate's place for pairs [pair_begin, pair_end) of the slice, then the rows that down
/// reads.
void CpuDevice::expert_activate(const ExpertPiece& piece, int64_t pair_begin, int64_t pair_end) {
  const int64_t ff = piece.work->down.in;
  float* gate = scratch<float>(layout_.gate) + piece.local * ff;
  const float* up = scratch<float>(layout_.up) + piece.local * ff;
  const int64_t begin = pair_begin - piece.local, end = pair_end - piece.local;
  float_.swiglu(gate + begin * ff, up + begin * ff, gate + begin * ff, (end - begin) * ff);
  const quant::ActRows act = piece_act_rows(piece);
  if (act.format == ActFormat::none) return;
  QuantizeTask task;
  task.x = gate;
  task.x_stride = ff;
  task.in = ff;
  task.row_begin = static_cast<int>(begin), task.row_end = static_cast<int>(end);
  task.q = const_cast<int8_t*>(act.q);
  task.scale = const_cast<float*>(act.scale);
  task.sums = const_cast<int16_t*>(act.sums);
  quantize_kernel(act.format)(task);
}

void CpuDevice::expert_down(const ExpertsArgs& args, int member) {
  const auto part_of = [&](int64_t i) {
    const ExpertPiece& piece = slice_[static_cast<size_t>(i)];
    return SharePart{(piece.work->down.out + out_grain - 1) / out_grain, piece.pairs() + weight_row_cost};
  };
  for_share(std::ssize(slice_), part_of, member, team_.size(), [&](int64_t i, int64_t begin, int64_t end) {
    const ExpertPiece& piece = slice_[static_cast<size_t>(i)];
    const Matrix& down = piece.work->down;
    MatmulTask task = weight_task(down);
    task.out_begin = begin * out_grain;
    task.out_end = std::min(end * out_grain, down.out);
    task.n = static_cast<int>(piece.pairs());
    if (type_info(down.type).act != ActFormat::none) task.act = piece_act_rows(piece);
    task.x = scratch<float>(layout_.gate) + piece.local * down.in;
    task.y = args.parts;
    task.y_stride = down.out;
    task.y_index = piece.work->pairs.data() + piece.pair_begin;
    matmul_kernel(down.type)(task);
  });
}

}  // namespace weir::cpu
