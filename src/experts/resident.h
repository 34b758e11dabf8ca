// All routed experts of a model in a device's memory, for devices that choose among them without the host:
// one buffer a layer, each part's tensor whole as the file has it. Knows no family.
#pragma once

#include <cstdint>
#include <vector>

#include "device/device.h"
#include "experts/device_loader.h"
#include "experts/store.h"

namespace weir {

class ResidentExperts {
 public:
  /// Bytes load() will take: for the plan.
  static uint64_t bytes(const ExpertStore& store);
  /// Reads every layer's experts, with progress on a terminal. Throws Error with path and offset.
  void load(Device& device, const ExpertStore& store, DeviceLoader& loader);
  /// Expert e is in slot e. A layer without experts has an empty bank.
  const ExpertBank& bank(int layer) const { return banks_[static_cast<size_t>(layer)]; }

 private:
  std::vector<Buffer> layers_;
  std::vector<ExpertBank> banks_;
};

}  // namespace weir
