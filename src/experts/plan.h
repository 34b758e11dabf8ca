// Where the memory budget goes, decided before anything is loaded: pure arithmetic on sizes. What cannot fit
// is refused with the numbers that would fit.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "experts/device_plan.h"

namespace weir {

struct PlanRequest {
  uint64_t budget_bytes = 0;        ///< --memory, or the default
  std::string budget_source;        ///< "--memory", "cgroup limit", "MemAvailable": for messages
  std::optional<int> expert_slots;  ///< --expert-slots, per layer; none: as many as fit
  int context = 0;                  ///< positions per lane
  int model_context = 0;            ///< the model's own limit
  int lanes = 1;
  uint64_t weight_bytes = 0;              ///< resident tensors
  uint64_t kv_bytes_per_position = 0;     ///< all layers, one lane
  uint64_t table_bytes = 0;               ///< rope tables and others, in all, for `context`
  uint64_t table_bytes_per_position = 0;  ///< how that grows with the context
  uint64_t scratch_bytes = 0;             ///< device scratch, activations, logits, read staging
  uint64_t overhead_bytes = 0;    ///< process, tokenizer, metadata, allocator, page cache the reader causes
  uint64_t text_bytes = 0;        ///< of the overhead: what tokenising the text takes, for messages
  uint64_t instrument_bytes = 0;  ///< ledger, trace and routing trace
  std::string instruments;        ///< which, and how far back they look: "ledger of the last 96 rounds"
  int top_k = 0;                  ///< experts one row needs: the floor of slots
  std::vector<int> experts;       ///< per layer; 0 for a dense layer
  std::vector<uint64_t> slot_bytes;  ///< per layer: stride of one slot
};

struct ResidencyPlan {
  PlanRequest request;
  int slots = 0;          ///< per MoE layer (capped by the layer's experts)
  int prefill_chunk = 0;  ///< prompt rows in a round that the request's scratch is for, where an engine chose
  uint64_t kv_bytes = 0, slot_total_bytes = 0, headroom_bytes = 0, total_bytes = 0;
  uint64_t minimum_budget = 0;  ///< smallest budget that would run this request (slots at the floor)
  int largest_context = 0;      ///< largest context that this budget would hold with slots at the floor
  int wanted_context = 0;       ///< what the context would have been, where nobody asked and it shrank; or 0
  bool all_resident = false;    ///< every expert has a slot
  std::vector<std::string> warnings;
  /// Where the device has memory of its own: the model is there, and what is above is the host's share.
  std::optional<DevicePlan> device;
};

/// Throws Error (input) with the numbers where the request does not fit: needed, budget, the smallest budget
/// and the largest context that would.
ResidencyPlan make_plan(const PlanRequest& request);
/// Bytes the request takes with slots at the floor: what make_plan calls the smallest budget.
uint64_t floor_bytes(const PlanRequest& request);
/// The largest context up to the model's that the request's budget holds with slots at the floor; 0: none.
int largest_context(const PlanRequest& request);
/// Whether make_plan would accept the request's slots (the floor, where none were asked for).
bool plan_fits(const PlanRequest& request);
/// A table for people: one line per item, bytes and share.
std::string describe_plan(const ResidencyPlan& plan);
/// One line of JSON (docs/json.md).
std::string plan_json(const ResidencyPlan& plan);

/// A memory limit of a control group, and what it leaves.
struct GroupRoom {
  std::string name;  ///< memory.max, memory.high or memory.limit_in_bytes
  uint64_t limit = 0;
  uint64_t used = 0;         ///< by the group's processes and their page cache, now
  uint64_t reclaimable = 0;  ///< of it, what the kernel can take back without swapping or writing
  uint64_t left() const { return limit - std::min(limit, used - reclaimable); }
};

/// The machine's limits, for the default budget and its refusals.
struct MemoryLimits {
  std::optional<uint64_t> cgroup_limit;  ///< the smallest hard limit on the way up, v1 or v2
  std::optional<GroupRoom> group;  ///< of all limits on the way up, memory.high among them: what leaves least
  uint64_t available = 0;          ///< MemAvailable
  uint64_t total = 0;              ///< MemTotal
};
/// `root` is "/" but for tests, which give a directory with proc and sys below it.
MemoryLimits read_memory_limits(const std::string& root = "/");
/// Without --memory: the smaller of what the control groups leave and MemAvailable, less the larger of 1 GiB
/// and 10 %, which is kept to half where memory is small.
struct Budget {
  uint64_t bytes = 0;
  std::string source;  ///< "--memory", or which limit less what: for people
  std::vector<std::string> warnings;
};
/// Throws Error (input) where `requested` is above the group's hard limit, or where nothing is left; warns
/// where it is above what the groups leave, or MemAvailable.
Budget choose_budget(std::optional<uint64_t> requested, const MemoryLimits& limits);

/// "3GiB", "512MiB", "1.5G": powers of 1024 (K, M, G, T with or without iB); "20MB": powers of 1000 (KB, MB,
/// GB, TB); "2000000", "77B": bytes. A fraction of a byte that a unit leaves is dropped. Throws Error naming
/// `option` and the text.
uint64_t parse_bytes(const std::string& option, const std::string& text);

/// What the process has used at most and what it uses now: VmHWM and our files' page cache (cachestat).
struct MemoryUse {
  uint64_t peak_rss = 0, rss = 0;
  std::optional<uint64_t> page_cache;       ///< of the model's files; nothing where the kernel cannot tell
  std::optional<uint64_t> peak_page_cache;  ///< the most that was seen, where someone looked (Engine)
  /// Both peaks together, which need not have been at one time.
  uint64_t peak() const { return peak_rss + peak_page_cache.value_or(page_cache.value_or(0)); }
};
MemoryUse read_memory_use(const std::vector<std::string>& files);
/// Its page_cache alone.
std::optional<uint64_t> page_cache_of(const std::vector<std::string>& files);

}  // namespace weir
