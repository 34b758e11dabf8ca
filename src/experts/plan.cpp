// The arithmetic of the budget and its two faces: a table for people, a line of JSON for programs. Reads
// nothing of the machine (memory_limits.cpp does).
#include "experts/plan.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/log.h"
#include "base/quantity.h"

namespace weir {
namespace {

/// Sizes come from files and options: sums and products stop at the top instead of wrapping.
uint64_t saturating(unsigned __int128 value) {
  return value > UINT64_MAX ? UINT64_MAX : static_cast<uint64_t>(value);
}
uint64_t sum(uint64_t a, uint64_t b) { return saturating(static_cast<unsigned __int128>(a) + b); }
uint64_t product(uint64_t a, uint64_t b) { return saturating(static_cast<unsigned __int128>(a) * b); }

uint64_t kv_bytes(const PlanRequest& r, int context) {
  return product(product(r.kv_bytes_per_position, static_cast<uint64_t>(context)),
                 static_cast<uint64_t>(r.lanes));
}

uint64_t table_bytes(const PlanRequest& r, int context) {
  const uint64_t grows = product(r.table_bytes_per_position, static_cast<uint64_t>(r.context));
  const uint64_t fixed = r.table_bytes > grows ? r.table_bytes - grows : 0;
  return sum(fixed, product(r.table_bytes_per_position, static_cast<uint64_t>(context)));
}

/// Slots of all layers, `slots` each where the layer has that many experts.
uint64_t slot_bytes(const PlanRequest& r, int slots) {
  uint64_t total = 0;
  for (size_t l = 0; l < r.experts.size(); ++l)
    total = sum(total, product(r.slot_bytes[l], static_cast<uint64_t>(std::min(slots, r.experts[l]))));
  return total;
}

/// Everything but the slots, for a context.
uint64_t fixed_bytes(const PlanRequest& r, int context) {
  return sum(sum(sum(r.weight_bytes, kv_bytes(r, context)), table_bytes(r, context)),
             sum(sum(r.scratch_bytes, r.overhead_bytes), r.instrument_bytes));
}

/// The largest value in [low, high] for which `fits` holds, given that it holds up to some point; low - 1
/// where it never does.
template <typename F>
int largest(int low, int high, F fits) {
  int best = low - 1;
  while (low <= high) {
    const int middle = low + (high - low) / 2;
    if (fits(middle)) {
      best = middle, low = middle + 1;
    } else {
      high = middle - 1;
    }
  }
  return best;
}

/// Exact bytes beside the rounded ones, so that a figure can be passed back as an option.
std::string exact(uint64_t bytes) { return fmt::format("{} ({} bytes)", human_bytes(bytes), bytes); }

void check_request(const PlanRequest& r, int most_experts) {
  WEIR_CHECK(r.experts.size() == r.slot_bytes.size(), "{} layers, {} strides", r.experts.size(),
             r.slot_bytes.size());
  if (r.context < 1) throw input_error("-c {}: the context must be at least 1", r.context);
  if (r.context > r.model_context)
    throw input_error("-c {}: the model's context is {}; use at most that", r.context, r.model_context);
  if (r.lanes < 1) throw input_error("{} lanes: at least 1 is needed", r.lanes);
  if (most_experts > 0 && (r.top_k < 1 || r.top_k > most_experts))
    throw input_error("a row uses {} experts of {}; 1 to {} would be right", r.top_k, most_experts,
                      most_experts);
}

/// What to type instead: options that are enough each by itself, the one that gives up least first.
/// `fitting`: slots that the budget holds where more were asked for, else 0.
std::string remedies(const ResidencyPlan& plan, int slots, int fitting, uint64_t needed) {
  std::string text;
  if (fitting > 0)
    text = fmt::format("--expert-slots {} or ", fitting);
  else if (slots <= plan.request.top_k && plan.largest_context > 0)
    text = fmt::format("-c {} or ", plan.largest_context);
  return text + "--memory " + typed_bytes(needed);
}

[[noreturn]] void refuse(const ResidencyPlan& plan, int slots) {
  const PlanRequest& r = plan.request;
  const bool moe = slots > 0;
  const uint64_t needed = sum(fixed_bytes(r, r.context), slot_bytes(r, slots));
  std::string reason = fmt::format("a context of {}{} needs {}; the budget ({}) is {}", r.context,
                                   moe ? fmt::format(" with {} expert slots a layer", slots) : "",
                                   exact(needed), r.budget_source, exact(r.budget_bytes));
  int fitting = 0;
  if (slots > r.top_k && plan.minimum_budget <= r.budget_bytes) {
    fitting = largest(r.top_k, slots, [&](int s) {
      return sum(fixed_bytes(r, r.context), slot_bytes(r, s)) <= r.budget_bytes;
    });
    reason += fmt::format("; {} expert slots would fit", fitting);
  }
  if (r.text_bytes > 0) reason += fmt::format("; the text takes {} of it", exact(r.text_bytes));
  if (r.instrument_bytes > 0)
    reason += fmt::format("; the instruments ({}) take {} of it", r.instruments, exact(r.instrument_bytes));
  reason += fmt::format("; the smallest budget for this context is {}{}", exact(plan.minimum_budget),
                        moe ? fmt::format(" with {} expert slots", r.top_k) : "");
  if (plan.largest_context > 0) {
    reason += fmt::format("; the largest context in this budget is {}", plan.largest_context);
  } else {
    reason += "; no context fits in this budget";
  }
  reason += "; try " + remedies(plan, slots, fitting, needed);
  throw Error(Error::Kind::input, reason);
}

void add_warnings(ResidencyPlan& plan, int floor, int most) {
  const PlanRequest& r = plan.request;
  if (most > 0 && r.expert_slots.value_or(0) > most)
    plan.warnings.push_back(
        fmt::format("--expert-slots {}: the model has {} experts a layer: {} slots, all resident",
                    *r.expert_slots, most, most));
  if (plan.all_resident || plan.slots >= 2 * floor) return;
  plan.warnings.push_back(fmt::format(
      "{} expert slots a layer, under twice the {} experts that a token uses: most experts will be "
      "read again for every token; {} would hold {}",
      plan.slots, floor, human_bytes(sum(fixed_bytes(r, r.context), slot_bytes(r, 2 * floor))), 2 * floor));
}

struct Item {
  const char* key;
  const char* label;
  uint64_t bytes;
};

std::vector<Item> items(const DevicePlan& plan) {
  return {
      {"weights", "resident weights", plan.weight_bytes}, {"kv", "KV cache", plan.kv_bytes},
      {"experts", "experts", plan.expert_bytes},          {"tables", "tables", plan.table_bytes},
      {"scratch", "scratch", plan.scratch_bytes},         {"overhead", "device's own", plan.overhead_bytes},
      {"headroom", "headroom", plan.headroom_bytes}};
}

std::vector<Item> items(const ResidencyPlan& plan) {
  const PlanRequest& r = plan.request;
  return {{"weights", "resident weights", r.weight_bytes},
          {"kv", "KV cache", plan.kv_bytes},
          {"expert_slots", "expert slots", plan.slot_total_bytes},
          {"tables", "tables", r.table_bytes},
          {"scratch", "scratch", r.scratch_bytes},
          {"overhead", "process", r.overhead_bytes},
          {"instruments", "instruments", r.instrument_bytes},
          {"headroom", "headroom", plan.headroom_bytes}};
}

}  // namespace

static int most_experts(const PlanRequest& r) {
  return r.experts.empty() ? 0 : *std::max_element(r.experts.begin(), r.experts.end());
}

uint64_t floor_bytes(const PlanRequest& r) {
  return sum(fixed_bytes(r, r.context), slot_bytes(r, most_experts(r) > 0 ? r.top_k : 0));
}

int largest_context(const PlanRequest& r) {
  const uint64_t slots = slot_bytes(r, most_experts(r) > 0 ? r.top_k : 0);
  return largest(1, r.model_context,
                 [&](int context) { return sum(fixed_bytes(r, context), slots) <= r.budget_bytes; });
}

bool plan_fits(const PlanRequest& r) {
  if (!r.expert_slots) return floor_bytes(r) <= r.budget_bytes;
  return sum(fixed_bytes(r, r.context), slot_bytes(r, std::min(*r.expert_slots, most_experts(r)))) <=
         r.budget_bytes;
}

ResidencyPlan make_plan(const PlanRequest& request) {
  const int most = most_experts(request);
  check_request(request, most);
  const int floor = most > 0 ? request.top_k : 0;
  if (request.expert_slots && most > 0 && *request.expert_slots < floor)
    throw input_error("--expert-slots {}: a token uses {} experts of a layer at once; use at least {}",
                      *request.expert_slots, floor, floor);

  ResidencyPlan plan;
  plan.request = request;
  const uint64_t fixed = fixed_bytes(request, request.context);
  const auto total_with = [&](int slots) { return sum(fixed, slot_bytes(request, slots)); };
  plan.kv_bytes = kv_bytes(request, request.context);
  plan.minimum_budget = floor_bytes(request);
  plan.largest_context = largest_context(request);

  const int wanted = request.expert_slots ? std::min(*request.expert_slots, most) : floor;
  if (total_with(wanted) > request.budget_bytes) refuse(plan, wanted);
  plan.slots = request.expert_slots ? wanted : largest(floor, most, [&](int slots) {
    return total_with(slots) <= request.budget_bytes;
  });
  plan.slot_total_bytes = slot_bytes(request, plan.slots);
  plan.total_bytes = total_with(plan.slots);
  plan.headroom_bytes = request.budget_bytes - plan.total_bytes;
  plan.all_resident = plan.slots >= most;
  add_warnings(plan, floor, most);
  return plan;
}

/// What a slot for every expert would take.
static uint64_t all_expert_bytes(const PlanRequest& r) {
  uint64_t bytes = 0;
  for (size_t i = 0; i < r.experts.size(); ++i)
    bytes += static_cast<uint64_t>(r.experts[i]) * r.slot_bytes[i];
  return bytes;
}

static std::string item_line(const Item& item, uint64_t budget, const std::string& note) {
  return fmt::format(
      "  {:<18}{:>10}{:>7.1f} %{}{}\n", item.label, human_bytes(item.bytes),
      100.0 * static_cast<double>(item.bytes) / static_cast<double>(std::max<uint64_t>(budget, 1)),
      note.empty() ? "" : "  ", note);
}

static std::string context_note(const PlanRequest& r) {
  return fmt::format("context {}, {} lane{}", r.context, r.lanes, r.lanes == 1 ? "" : "s");
}

/// The model is in the device's memory: that table first, then the host's share without the lines that are
/// empty.
static std::string describe_device_plan(const ResidencyPlan& plan) {
  const DevicePlan& d = *plan.device;
  std::string out = fmt::format("{} budget {} ({}) of {}\n", d.device, human_bytes(d.budget_bytes),
                                d.budget_source, human_bytes(d.device_bytes));
  for (const Item& item : items(d))
    out +=
        item_line(item, d.budget_bytes, std::string_view(item.key) == "kv" ? context_note(plan.request) : "");
  out += fmt::format("  smallest --vram for this context {}, largest context in this budget {}\n",
                     human_bytes(d.minimum_budget), d.largest_context);
  out += fmt::format("host budget {} ({})\n", human_bytes(plan.request.budget_bytes),
                     plan.request.budget_source);
  for (const Item& item : items(plan))
    if (item.bytes > 0)
      out += item_line(item, plan.request.budget_bytes,
                       std::string_view(item.key) == "instruments" ? plan.request.instruments : "");
  return out;
}

/// What the plan says besides its figures.
static std::string remarks(const ResidencyPlan& plan) {
  std::string out;
  if (plan.wanted_context > 0)
    out += fmt::format("  context {} instead of {}: what the budget holds; -c N asks for N\n",
                       plan.request.context, plan.wanted_context);
  return out;
}

std::string describe_plan(const ResidencyPlan& plan) {
  const PlanRequest& r = plan.request;
  if (plan.device) return describe_device_plan(plan) + remarks(plan);
  std::string out = fmt::format("budget {} ({})\n", human_bytes(r.budget_bytes), r.budget_source);
  const auto layers = std::count_if(r.experts.begin(), r.experts.end(), [](int e) { return e > 0; });
  for (const Item& item : items(plan)) {
    std::string note;
    if (std::string_view(item.key) == "instruments") {
      if (item.bytes == 0) continue;
      note = r.instruments;
    }
    if (std::string_view(item.key) == "kv") note = context_note(r);
    if (std::string_view(item.key) == "expert_slots" && layers > 0)
      note = fmt::format("{} of {} experts on each of {}, {} in all{}", plan.slots,
                         *std::max_element(r.experts.begin(), r.experts.end()),
                         quantity(static_cast<uint64_t>(layers), "layer"), human_bytes(all_expert_bytes(r)),
                         plan.all_resident ? ": resident" : "");
    out += item_line(item, r.budget_bytes, note);
  }
  out += fmt::format("  smallest budget for this context {}, largest context in this budget {}\n",
                     human_bytes(plan.minimum_budget), plan.largest_context);
  return out + remarks(plan);
}

static nlohmann::ordered_json device_plan_json(const DevicePlan& d) {
  nlohmann::ordered_json bytes;
  for (const Item& item : items(d)) bytes[item.key] = item.bytes;
  return {{"device", d.device},
          {"device_bytes", d.device_bytes},
          {"budget_bytes", d.budget_bytes},
          {"budget_source", d.budget_source},
          {"plan_bytes", d.total_bytes},
          {"bytes", bytes},
          {"minimum_budget_bytes", d.minimum_budget},
          {"largest_context", d.largest_context}};
}

std::string plan_json(const ResidencyPlan& plan) {
  const PlanRequest& r = plan.request;
  nlohmann::ordered_json bytes;
  for (const Item& item : items(plan)) bytes[item.key] = item.bytes;
  nlohmann::ordered_json json = {{"budget_bytes", r.budget_bytes},
                                 {"budget_source", r.budget_source},
                                 {"plan_bytes", plan.total_bytes},
                                 {"context", r.context},
                                 {"lanes", r.lanes},
                                 {"experts_per_token", r.top_k},
                                 {"expert_slots", plan.slots},
                                 {"all_resident", plan.all_resident},
                                 {"bytes", bytes},
                                 {"minimum_budget_bytes", plan.minimum_budget},
                                 {"largest_context", plan.largest_context},
                                 {"layer_experts", r.experts},
                                 {"layer_slot_bytes", r.slot_bytes},
                                 {"warnings", plan.warnings}};
  if (plan.wanted_context > 0) json["wanted_context"] = plan.wanted_context;
  if (plan.device) json["device"] = device_plan_json(*plan.device);
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace weir
