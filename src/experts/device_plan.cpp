#include "experts/device_plan.h"

#include <algorithm>

#include "base/error.h"
#include "base/log.h"
#include "base/quantity.h"

namespace weir {
namespace {

constexpr uint64_t least_reserve = uint64_t{512} << 20;

uint64_t reserve(const DevicePlanRequest& r) {
  return std::min(std::max(least_reserve, r.memory.free / 100 * 3), r.memory.free / 2);
}

std::string exact(uint64_t bytes) { return fmt::format("{} ({} bytes)", human_bytes(bytes), bytes); }

[[noreturn]] void refuse(const DevicePlanRequest& r, const DevicePlan& plan, uint64_t needed) {
  const uint64_t free = r.memory.free;
  std::string text = fmt::format(
      "{}: a context of {} needs {} of its memory{}; the budget ({}) is {}{}; the smallest --vram for this "
      "context is {}{}",
      r.device, r.context, exact(needed),
      r.expert_bytes > 0 ? fmt::format(", {} of them routed experts", human_bytes(r.expert_bytes)) : "",
      plan.budget_source, exact(plan.budget_bytes),
      needed > free ? fmt::format(", and {} are free", exact(free)) : "", exact(plan.minimum_budget),
      plan.minimum_budget > free ? ", more than is free" : "");
  const char* room = plan.budget_bytes > free ? "what is free" : "this budget";
  if (plan.largest_context > 0) {
    text += fmt::format("; the largest context in {} is {}", room, plan.largest_context);
  } else {
    text += fmt::format("; no context fits in {}", room);
    if (r.expert_bytes > 0) text += ": streaming to a GPU is not available, all experts must fit";
  }
  std::string remedy = plan.largest_context > 0 ? fmt::format("-c {}", plan.largest_context) : "";
  if (plan.minimum_budget <= free)
    remedy += fmt::format("{}--vram {}", remedy.empty() ? "" : " or ", typed_bytes(plan.minimum_budget));
  text += "; try " + (remedy.empty() ? "--device cpu" : remedy);
  throw Error(Error::Kind::input, text);
}

}  // namespace

uint64_t device_bytes(const DevicePlanRequest& r, int context) {
  const auto positions = static_cast<uint64_t>(context);
  return r.weight_bytes + r.expert_bytes + r.overhead_bytes + r.scratch_bytes(context) +
         positions * (r.kv_bytes_per_position * static_cast<uint64_t>(r.lanes) + r.table_bytes_per_position);
}

uint64_t device_budget(const DevicePlanRequest& r) {
  if (!r.vram) return r.memory.free - reserve(r);
  if (*r.vram > r.memory.total)
    throw input_error("--vram {}: {} has {}; use at most that", exact(*r.vram), r.device,
                      exact(r.memory.total));
  return *r.vram;
}

uint64_t device_room(const DevicePlanRequest& r) { return std::min(device_budget(r), r.memory.free); }

int largest_device_context(const DevicePlanRequest& r) {
  const uint64_t room = device_room(r);
  int best = 0;
  for (int low = 1, high = r.model_context; low <= high;) {
    const int middle = low + (high - low) / 2;
    if (device_bytes(r, middle) <= room) {
      best = middle, low = middle + 1;
    } else {
      high = middle - 1;
    }
  }
  return best;
}

DevicePlan make_device_plan(const DevicePlanRequest& r, const DevicePlanRequest& narrowest) {
  DevicePlan plan;
  const auto positions = static_cast<uint64_t>(r.context);
  plan.device = r.device;
  plan.device_bytes = r.memory.total;
  plan.budget_bytes = device_budget(r);
  plan.budget_source = r.vram ? "--vram" : fmt::format("free memory less {}", human_bytes(reserve(r)));
  plan.weight_bytes = r.weight_bytes;
  plan.expert_bytes = r.expert_bytes;
  plan.kv_bytes = positions * r.kv_bytes_per_position * static_cast<uint64_t>(r.lanes);
  plan.table_bytes = positions * r.table_bytes_per_position;
  plan.scratch_bytes = r.scratch_bytes(r.context);
  plan.overhead_bytes = r.overhead_bytes;
  plan.total_bytes = device_bytes(r, r.context);
  plan.minimum_budget = device_bytes(narrowest, r.context);
  plan.largest_context = largest_device_context(narrowest);
  if (plan.total_bytes > device_room(r)) refuse(r, plan, plan.total_bytes);
  plan.headroom_bytes = plan.budget_bytes - plan.total_bytes;
  if (r.vram && *r.vram > r.memory.free)
    plan.warnings.push_back(
        fmt::format("--vram {} is above the {} that are free on {}: the plan keeps to what is free",
                    human_bytes(*r.vram), human_bytes(r.memory.free), r.device));
  return plan;
}

}  // namespace weir
