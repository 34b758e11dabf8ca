// The router and the routed experts: grouping by expert, gate and up, down, the sum. Nothing here visits the
// host.
#include <algorithm>

#include "device/cuda/cuda_device.h"
#include "device/cuda/route_one.h"

namespace weir::cuda {

namespace {

bool quantised(Type type) { return type_info(type).act != ActFormat::none; }

}  // namespace

ExpertGroups CudaDevice::groups() const {
  return {scratch<int32_t>(layout_.active), scratch<int32_t>(layout_.expert), scratch<int32_t>(layout_.begin),
          scratch<int32_t>(layout_.pair_list), stamps_.as<uint64_t>()};
}

Acts CudaDevice::pair_acts(ActFormat format, int64_t in) const {
  return {scratch<int8_t>(layout_.pair_q), scratch<float>(layout_.pair_scale),
          scratch<int16_t>(layout_.pair_sums), in, format};
}

void CudaDevice::route(const RouteArgs& args) {
  const auto experts = static_cast<int>(args.router.out);
  WEIR_CHECK(experts <= layout_.needs.experts && args.top_k <= layout_.needs.top_k &&
                 args.rows <= layout_.needs.rows && args.rows > 0,
             "{} rows, {} experts, top {}", args.rows, experts, args.top_k);
  begin_operation();
  declare(args.router.bytes());
  const int64_t in = args.router.in;
  const bool ready = takes_route_one(args);  // then acts cost no launch
  const ActFormat format = ready ? ActFormat::per256 : ActFormat::none;
  if (ready) check_scratch(args.rows, in);
  cuda::route(stream_, args, scratch<float>(layout_.logits), scratch<uint32_t>(layout_.ticket), groups(),
              acts(format, in));
  if (args.rows > small_rows) group_pairs(stream_, args.ids, args.rows, args.top_k, experts, groups());
  const bool grouped = !ready || args.rows == 1;
  grouped_ids_ = grouped ? args.ids : nullptr, grouped_rows_ = args.rows;
  end_operation();
  if (ready) ready_ = {args.norm ? args.normed : args.x, in, format, args.rows};
}

/// The groups of these ids, which has counted their visits.
void CudaDevice::group_rows(const RoutedArgs& args) {
  uint64_t* stamp = stream_.take_stamp();
  group_pairs(stream_, args.ids, args.rows, args.top_k, args.bank.experts, groups());
  stream_.stamp = stamp;
}

void CudaDevice::routed_experts(const RoutedArgs& args) {
  const ExpertBank& bank = args.bank;
  WEIR_CHECK(args.activation == Activation::swiglu && bank.gate.type == bank.up.type, "{} and {}",
             type_info(bank.gate.type).name, type_info(bank.up.type).name);
  WEIR_CHECK(args.rows > 0 && int64_t{args.rows} * args.top_k <= layout_.pairs &&
                 bank.gate.out <= layout_.needs.expert_ff && bank.experts <= layout_.needs.experts,
             "{} rows, top {}, {} experts of width {}", args.rows, args.top_k, bank.experts, bank.gate.out);
  check_scratch(args.rows, bank.gate.in);
  const ReadyActs ready = ready_;  // before begin_operation() forgets it
  begin_operation();
  const uint64_t expert_bytes = bank.gate.bytes() + bank.up.bytes() + bank.down.bytes();
  const auto role = static_cast<size_t>(role_);
  const ExpertPath path = expert_path(args);
  if (args.rows == 1)
    account_.bytes[role] += expert_bytes * static_cast<uint64_t>(args.top_k);
  else
    account_.bytes_per_visit[role] += expert_bytes, ++account_.visit_layers[role];
  // route() left groups, where it was the last to write ids.
  const bool grouped = grouped_ids_ == args.ids && grouped_rows_ == args.rows;
  if (!path.by_pair() && !grouped) group_rows(args);
  grouped_ids_ = nullptr;  // one use: the ids may be overwritten by a copy that nobody tells us of
  expert_inner(args, ready, path, grouped ? nullptr : groups().visits);
  expert_outer(args, path);
  end_operation();
}

/// One row goes by pair where its formats have int8 dots and a block's shared memory holds it.
CudaDevice::ExpertPath CudaDevice::expert_path(const RoutedArgs& args) const {
  const ExpertBank& bank = args.bank;
  ExpertPath path;
  path.few = args.rows > 1 && args.rows <= small_rows && few_rows_fit(bank, args.top_k);
  if (args.rows != 1) return path;
  path.inner_by_pair = quantised(bank.gate.type) &&
                       (one_row_gate_up_fits(bank) || small_gate_up_fits(stream_, bank, args.top_k));
  path.outer_by_pair =
      quantised(bank.down.type) && (one_row_down_fits(bank, args.top_k) || small_down_fits(bank, args.top_k));
  return path;
}

/// act[pair] = silu(gate(x)) * up(x). `visits`: null where they are counted.
void CudaDevice::expert_inner(const RoutedArgs& args, const ReadyActs& ready, ExpertPath path,
                              uint64_t* visits) {
  const ExpertBank& bank = args.bank;
  auto* act = scratch<float>(layout_.act);
  if (!quantised(bank.gate.type)) {
    float_gate_up(stream_, bank, groups(), args.x, args.rows, args.top_k, act);
    return;
  }
  const Acts in = acts(type_info(bank.gate.type).act, bank.gate.in);
  const bool held = ready.is(args.x, args.rows, in);
  // Large tiles do not stamp: before them the activations are made again, by a kernel that does.
  if (!path.inner_by_pair && !(held && path.few))
    quantise(stream_, args.x, nullptr, 0, args.rows, bank.gate.in, in);
  settled_ = path.inner_by_pair || path.few;
  if (path.inner_by_pair && one_row_gate_up_fits(bank))
    one_row_gate_up(stream_, bank, args.ids, args.top_k, held ? nullptr : args.x, in, act);
  else if (path.few)
    few_rows_gate_up(stream_, bank, args.ids, args.rows, args.top_k, in, visits, act);
  else if (path.inner_by_pair)
    small_gate_up(stream_, bank, args.ids, args.x, args.top_k, act);
  else
    large_gate_up(stream_, bank, groups(), in, args.rows, args.top_k, act);
}

/// h += sum over a row's pairs of weight * down(act[pair])
void CudaDevice::expert_outer(const RoutedArgs& args, ExpertPath path) {
  const ExpertBank& bank = args.bank;
  const auto* act = scratch<float>(layout_.act);
  auto* parts = scratch<float>(layout_.parts);
  if (!quantised(bank.down.type)) {
    float_down(stream_, bank, groups(), act, args.rows, args.top_k, parts);
  } else if (path.few) {
    few_rows_down_sum(stream_, bank, args.ids, args.weights, args.rows, args.top_k, act, args.h);
    return;
  } else if (path.outer_by_pair) {
    if (one_row_down_fits(bank, args.top_k))
      one_row_down_sum(stream_, bank, args.ids, args.weights, args.top_k, path.inner_by_pair, act, args.h);
    else
      small_down_sum(stream_, bank, args.ids, args.weights, args.top_k, path.inner_by_pair, act, args.h);
    return;
  } else {
    const Acts inner = pair_acts(type_info(bank.down.type).act, bank.down.in);
    quantise(stream_, act, nullptr, 0, args.rows * args.top_k, bank.down.in, inner);
    large_down(stream_, bank, groups(), inner, args.rows, args.top_k, parts);
  }
  cuda::combine(stream_, {parts, args.weights, args.h, args.rows, args.top_k, bank.down.out});
}

void CudaDevice::experts(const ExpertsArgs&) {
  WEIR_CHECK(false, "{}: experts() names pairs on the host; this device has routed_experts()", name_);
}

}  // namespace weir::cuda
