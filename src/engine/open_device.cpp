#include "engine/open_device.h"

#include <charconv>

#include "base/error.h"
#include "base/file.h"

namespace weir {
namespace {

/// The N of cuda:N, 0 for cuda alone, -1 for cpu.
int device_index(const std::string& device) {
  if (device == "cpu") return -1;
  if (device == "cuda") return 0;
  constexpr std::string_view prefix = "cuda:";
  int index = -1;
  if (device.rfind(prefix, 0) == 0) {
    const char *begin = device.data() + prefix.size(), *end = device.data() + device.size();
    const auto [rest, error] = std::from_chars(begin, end, index);
    if (error != std::errc() || rest != end || *begin == '-') index = -1;
  }
  if (index < 0)
    throw input_error("--device {}: expected cpu, or cuda:N for the GPU with that number", quote(device));
  return index;
}

}  // namespace

const char* arithmetic_name(Arithmetic arithmetic) {
  return arithmetic == Arithmetic::fast ? "fast" : "portable";
}

bool is_cpu(const std::string& device) { return device_index(device) < 0; }

std::unique_ptr<Device> open_device(EngineOptions& o) {
  const int index = device_index(o.device);
  const bool cpu = index < 0;
  if (cpu && o.arithmetic == Arithmetic::fast)
    throw input_error("--arithmetic fast: the CPU has the portable arithmetic alone; leave it out");
  if (!o.arithmetic) o.arithmetic = cpu ? Arithmetic::portable : Arithmetic::fast;
  const bool policy_given = o.policy.has_value();
  if (!o.policy) o.policy = ExpertPolicy::lfu;
  if (o.make_device) return o.make_device();
  if (cpu && o.vram) throw input_error("--vram: the CPU has no memory of its own; use --memory");
  if (cpu && !o.graphs) throw input_error("--no-graphs: the CPU records no rounds; leave it out");
  const bool reads = o.reader.mode != IoMode::automatic || o.reader.advice != ReadAdvice::off;
  if (!cpu && reads)
    throw input_error("--io and --read-advice: every expert stays in the memory of {}; leave them out",
                      o.device);
  if (!cpu && policy_given)
    throw input_error(
        "--expert-policy: every expert stays in the memory of {}, none leaves its slot; leave it out",
        o.device);
  if (!cpu && o.isa != Isa::automatic)
    throw input_error("--isa: an instruction set of the CPU, but the model is computed on {}; leave it out",
                      o.device);
  if (cpu) return make_cpu_device(o.threads, o.isa);
  return make_cuda_device({index, *o.arithmetic, o.graphs});
}

ModelShape shape_of(const Family& family) {
  const ModelConfig& c = family.config();
  ModelShape shape{c.heads, c.kv_heads, c.head_dim, c.experts, c.top_k, {}};
  const auto& layers = family.expert_tensors();
  for (size_t i = 0; i < layers.size(); ++i) {
    if (layers[i].empty()) continue;
    ModelShape::ExpertFormats formats{static_cast<int>(i), Type::F32, Type::F32, Type::F32};
    for (const auto& [kind, tensor] : layers[i]) {
      if (kind == ExpertPartKind::down) formats.down = tensor->type;
      if (kind == ExpertPartKind::gate || kind == ExpertPartKind::gate_up) formats.gate = tensor->type;
      if (kind == ExpertPartKind::up || kind == ExpertPartKind::gate_up) formats.up = tensor->type;
    }
    shape.expert_formats.push_back(formats);
  }
  return shape;
}

std::string device_refusal(const std::string& device, const Family& family) {
  return is_cpu(device) ? std::string() : cuda_refusal(shape_of(family));
}

}  // namespace weir
