// Which device an engine runs on: what --device, --arithmetic and their kin mean, and what they refuse.
#pragma once

#include <memory>

#include "device/device.h"
#include "engine/engine.h"

namespace weir {

/// "portable", "fast".
const char* arithmetic_name(Arithmetic arithmetic);
/// Whether `device` names the CPU. Throws Error (input) for what names no device: cpu, cuda and cuda:N do.
bool is_cpu(const std::string& device);
/// Opens options.device, and fills in options.arithmetic where it was left open. Throws Error (input) for
/// options that do not belong to the device.
std::unique_ptr<Device> open_device(EngineOptions& options);

}  // namespace weir
