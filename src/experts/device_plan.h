// Where a device's own memory goes, decided before anything is loaded: pure arithmetic on sizes. All experts
// must fit; what does not is refused with the numbers that would.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "device/device.h"

namespace weir {

struct DevicePlanRequest {
  std::string device;            ///< "cuda:0": for messages
  std::optional<uint64_t> vram;  ///< --vram
  DeviceMemory memory;
  int context = 0;        ///< positions per lane
  int model_context = 0;  ///< the model's own limit
  int lanes = 1;
  uint64_t weight_bytes = 0, expert_bytes = 0;
  uint64_t kv_bytes_per_position = 0;                  ///< all layers, one lane
  uint64_t table_bytes_per_position = 0;               ///< rope tables
  uint64_t overhead_bytes = 0;                         ///< what the device takes besides allocations
  std::function<uint64_t(int context)> scratch_bytes;  ///< scratch, activations, batch and logits
};

struct DevicePlan {
  std::string device, budget_source;  ///< "--vram", "free memory less 4.2 GiB"
  uint64_t device_bytes = 0;          ///< of the whole device
  uint64_t budget_bytes = 0, total_bytes = 0, headroom_bytes = 0;
  uint64_t weight_bytes = 0, expert_bytes = 0, kv_bytes = 0, table_bytes = 0, scratch_bytes = 0,
           overhead_bytes = 0;
  uint64_t minimum_budget = 0;  ///< smallest --vram for this context
  int largest_context = 0;      ///< largest context in this budget and in what is free; 0: none
  std::vector<std::string> warnings;
};

/// Bytes of the request with a context.
uint64_t device_bytes(const DevicePlanRequest& request, int context);
/// The budget: --vram, or what is free less the larger of 512 MiB and 3 %. Throws Error (input) where --vram
/// is above the device's memory.
uint64_t device_budget(const DevicePlanRequest& request);
/// What may be taken: the budget, or what is free where --vram is above that.
uint64_t device_room(const DevicePlanRequest& request);
/// The largest context up to the model's that this room holds; 0: none.
int largest_device_context(const DevicePlanRequest& request);
/// Throws Error (input) with the numbers where the request does not fit; `narrowest` is the same request at
/// the smallest scratch that would run, from which the numbers that would fit are taken.
DevicePlan make_device_plan(const DevicePlanRequest& request, const DevicePlanRequest& narrowest);

}  // namespace weir
