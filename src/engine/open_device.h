// Which device an engine runs on: what --device, --arithmetic and their kin mean, and what they refuse.
#pragma once

#include <memory>
#include <string>

#include "device/device.h"
#include "engine/engine.h"
#include "model/family.h"

namespace weir {

/// "portable", "fast".
const char* arithmetic_name(Arithmetic arithmetic);
/// Whether `device` names the CPU. Throws Error (input) for what names no device: cpu, cuda and cuda:N do.
bool is_cpu(const std::string& device);
/// Opens options.device, and fills in options.arithmetic where it was left open. Throws Error (input) for
/// options that do not belong to the device.
std::unique_ptr<Device> open_device(EngineOptions& options);
/// What the family's model asks of a device.
ModelShape shape_of(const Family& family);
/// Why the device that --device names cannot compute the model, without opening it; empty where it can.
/// Throws Error (input) for what names no device.
std::string device_refusal(const std::string& device, const Family& family);

}  // namespace weir
