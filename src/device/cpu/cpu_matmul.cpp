// matmul and route: activations quantised once per format, output rows of all weights laid end to end and
// split over the team. Each output element is one kernel's, whatever the split.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "base/arithmetic.h"
#include "device/cpu/cpu_device.h"
#include "device/cpu/share.h"

namespace weir::cpu {
namespace {

constexpr int64_t out_grain = 16;   ///< output rows that a kernel likes to take together
constexpr size_t most_targets = 8;  ///< of one matmul

/// The k largest by (logit descending, id ascending), NaN counted as -inf, in increasing id.
void select(const float* logits, int experts, int k, Selected* chosen) {
  int count = 0;
  for (int32_t id = 0; id < experts; ++id) {
    const float logit = std::isnan(logits[id]) ? -std::numeric_limits<float>::infinity() : logits[id];
    int at = count;
    while (at > 0 && logit > chosen[at - 1].logit) --at;
    if (at == k) continue;
    if (count < k) ++count;
    for (int j = count - 1; j > at; --j) chosen[j] = chosen[j - 1];
    chosen[at] = {logit, id};
  }
  std::sort(chosen, chosen + count, [](const Selected& a, const Selected& b) { return a.id < b.id; });
}

/// Runs a task without row indices in tiles whose weights and activations stay in the second cache together.
void run_tiled(MatmulKernel kernel, const MatmulTask& whole) {
  constexpr int64_t out_tile = 64;
  constexpr int row_tile = 32;
  const int64_t act_blocks = whole.in / (whole.act.format == ActFormat::per256 ? 256 : 32);
  for (int64_t o = whole.out_begin; o < whole.out_end; o += out_tile)
    for (int i = 0; i < whole.n; i += row_tile) {
      MatmulTask tile = whole;
      tile.out_begin = o, tile.out_end = std::min(o + out_tile, whole.out_end);
      tile.n = std::min(row_tile, whole.n - i);
      tile.y = whole.y + i * whole.y_stride;
      if (whole.act.format == ActFormat::none) {
        tile.x = whole.x + i * whole.in;
      } else {
        tile.act.q = whole.act.q + i * whole.in;
        tile.act.scale = whole.act.scale + i * act_blocks;
        if (whole.act.sums) tile.act.sums = whole.act.sums + i * (whole.in / 32);
      }
      kernel(tile);
    }
}

}  // namespace

MatmulKernel CpuDevice::matmul_kernel(Type type) const {
  const MatmulKernel kernel = matmul_.matmul(type);
  WEIR_CHECK(kernel, "no kernel for {}", type_info(type).name);
  return kernel;
}

QuantizeKernel CpuDevice::quantize_kernel(ActFormat format) const {
  return format == ActFormat::per32 ? matmul_.quantize32 : matmul_.quantize256;
}

void CpuDevice::check_rows(int rows, int64_t in) const {
  WEIR_CHECK(rows <= layout_.needs.rows && in <= layout_.in, "rows {} of {}, in {} of {}: reserve() them",
             rows, layout_.needs.rows, in, layout_.in);
}

quant::ActRows CpuDevice::act_rows(ActFormat format, int rows, int64_t in) const {
  const bool per32 = format == ActFormat::per32;
  quant::ActRows act;
  act.q = scratch<int8_t>(per32 ? layout_.q32 : layout_.q256);
  act.scale = scratch<float>(per32 ? layout_.scale32 : layout_.scale256);
  act.sums = per32 ? nullptr : scratch<int16_t>(layout_.sums256);
  act.in = in;
  act.rows = rows;
  act.format = format;
  return act;
}

QuantizeTask CpuDevice::act_task(ActFormat format, const float* x, int64_t in) const {
  const bool per32 = format == ActFormat::per32;
  QuantizeTask task;
  task.x = x;
  task.x_stride = in;
  task.in = in;
  task.q = scratch<int8_t>(per32 ? layout_.q32 : layout_.q256);
  task.scale = scratch<float>(per32 ? layout_.scale32 : layout_.scale256);
  task.sums = per32 ? nullptr : scratch<int16_t>(layout_.sums256);
  return task;
}

void CpuDevice::quantize_rows(ActFormat format, const float* x, int rows, int64_t in) {
  const QuantizeKernel quantize = quantize_kernel(format);
  team_.run(rows, 1, [&](int64_t begin, int64_t end, int) {
    QuantizeTask task = act_task(format, x, in);
    task.row_begin = static_cast<int>(begin), task.row_end = static_cast<int>(end);
    quantize(task);  // a value that is not finite makes its row's results NaN, reported at the logits
  });
}

void CpuDevice::matmul(const MatmulArgs& args) {
  if (args.rows == 0 || args.targets.empty()) return;
  check_rows(args.rows, args.targets[0].weight.in);
  MatmulArgs plain = args;
  if (args.norm) {
    auto* normed = scratch<float>(layout_.normed);
    rms_norm({args.x, args.norm, normed, args.rows, args.targets[0].weight.in, args.eps});
    plain.x = normed, plain.norm = nullptr;
  }
  WEIR_CHECK(args.targets.size() <= most_targets, "{} targets", args.targets.size());
  float* out[most_targets];
  int64_t summed = 0;  // values a row that are summed: each target's own place in the scratch
  for (size_t i = 0; i < args.targets.size(); ++i) {
    const MatmulTarget& target = args.targets[i];
    out[i] = target.add ? scratch<float>(layout_.added) + summed * args.rows : target.out;
    summed += target.add ? target.weight.out : 0;
  }
  WEIR_CHECK(summed <= layout_.needs.hidden, "{} values summed, hidden {}", summed, layout_.needs.hidden);
  matmul_into(plain, {out, args.targets.size()});
  for (size_t i = 0; i < args.targets.size(); ++i)
    if (args.targets[i].add) add(args.targets[i].out, out[i], args.rows * args.targets[i].weight.out);
}

void CpuDevice::matmul_into(const MatmulArgs& args, std::span<float* const> out) {
  const int64_t in = args.targets[0].weight.in;
  std::array<bool, 3> quantized{};
  for (const MatmulTarget& target : args.targets) {
    WEIR_CHECK(target.weight.in == in, "in {} and {}", target.weight.in, in);
    declare_bytes(target.weight.bytes());
    const ActFormat format = type_info(target.weight.type).act;
    bool& done = quantized[static_cast<size_t>(format)];
    if (format != ActFormat::none && !done) quantize_rows(format, args.x, args.rows, in);
    done = true;
  }
  const auto part_of = [&](int64_t i) {
    const Matrix& weight = args.targets[static_cast<size_t>(i)].weight;
    const auto row_bytes = static_cast<int64_t>(type_info(weight.type).bytes(static_cast<uint64_t>(in)));
    return SharePart{(weight.out + out_grain - 1) / out_grain, row_bytes + args.rows * in / 8};
  };
  each_member([&](int member) {
    for_share(std::ssize(args.targets), part_of, member, team_.size(),
              [&](int64_t i, int64_t begin, int64_t end) {
                const MatmulTarget& target = args.targets[static_cast<size_t>(i)];
                const TypeInfo& info = type_info(target.weight.type);
                MatmulTask task;
                task.weight = static_cast<const uint8_t*>(target.weight.data);
                task.row_bytes = info.bytes(static_cast<uint64_t>(in));
                task.in = in;
                task.out_begin = begin * out_grain;
                task.out_end = std::min(end * out_grain, target.weight.out);
                task.n = args.rows;
                if (info.act != ActFormat::none) task.act = act_rows(info.act, args.rows, in);
                task.x = args.x;
                task.y = out[static_cast<size_t>(i)];
                task.y_stride = target.weight.out;
                run_tiled(matmul_kernel(target.weight.type), task);
                if (!target.bias) return;
                for (int r = 0; r < args.rows; ++r)
                  float_.add(task.y + r * task.y_stride + task.out_begin, target.bias + task.out_begin,
                             task.out_end - task.out_begin);
              });
  });
}

void CpuDevice::route(const RouteArgs& args) {
  const auto experts = static_cast<int>(args.router.out);
  const int k = args.top_k;
  WEIR_CHECK(experts <= layout_.needs.experts && k >= 1 && k <= experts && k <= layout_.needs.top_k,
             "experts {} of {}, top {} of {}", experts, layout_.needs.experts, k, layout_.needs.top_k);
  WEIR_CHECK(type_info(args.router.type).act == ActFormat::none, "router in {}",
             type_info(args.router.type).name);
  auto* logits = scratch<float>(layout_.logits);
  const MatmulTarget target{args.router, logits};
  if (args.norm) rms_norm({args.x, args.norm, args.normed, args.rows, args.router.in, args.eps});
  matmul({args.norm ? args.normed : args.x, args.rows, {&target, 1}});
  team_.run(args.rows, 4, [&](int64_t begin, int64_t end, int member) {
    auto* chosen = scratch<Selected>(layout_.chosen + layout_.chosen_stride * static_cast<size_t>(member));
    for (int64_t r = begin; r < end; ++r) {
      float* row = logits + r * experts;
      if (args.bias) float_.add(row, args.bias, experts);
      select(row, experts, k, chosen);
      float max = chosen[0].logit;
      for (int j = 1; j < k; ++j) max = chosen[j].logit > max ? chosen[j].logit : max;
      float *w = args.weights + r * k, sum = 0;
      for (int j = 0; j < k; ++j) w[j] = exp_f32(chosen[j].logit - max);
      if (args.kind == RouterKind::softmax_selected) {
        for (int j = 0; j < k; ++j) sum += w[j];
      } else {
        float_.exp_minus(row, max, row, experts);
        for (int id = 0; id < experts; ++id) sum += row[id];
      }
      // A logit that is not a number makes the row's weights NaN: seen at the logits, whichever experts were
      // chosen.
      float poison = 0;
      for (int id = 0; id < experts; ++id) poison += std::isnan(row[id]) ? row[id] : 0.0f;
      for (int j = 0; j < k; ++j) {
        args.ids[r * k + j] = chosen[j].id;
        w[j] = poison == 0 ? w[j] / sum : poison;
      }
    }
  });
}

}  // namespace weir::cpu
