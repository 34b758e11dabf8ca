#include "experts/resident.h"

#include "base/log.h"

namespace weir {
namespace {

/// Between parts and around all of them: kernels read the 16-byte spans that enclose a weight row.
constexpr uint64_t slack = 256;

uint64_t part_bytes(const ExpertPart& part, int experts) {
  return part.bytes * static_cast<uint64_t>(experts);
}
uint64_t padded(uint64_t bytes) { return (bytes + slack - 1) / slack * slack; }

uint64_t layer_bytes(const ExpertLayer& layer) {
  if (layer.experts == 0) return 0;
  uint64_t bytes = 2 * slack;
  for (const ExpertPart& part : layer.parts) bytes += padded(part_bytes(part, layer.experts));
  return bytes;
}

void place(ExpertBank& bank, const ExpertPart& part, const uint8_t* data) {
  const Matrix whole{data, part.type, part.in, part.out};
  switch (part.kind) {
    case ExpertPartKind::gate:
      bank.gate = whole, bank.gate_stride = part.bytes;
      break;
    case ExpertPartKind::up:
      bank.up = whole, bank.up_stride = part.bytes;
      break;
    case ExpertPartKind::down:
      bank.down = whole, bank.down_stride = part.bytes;
      break;
    case ExpertPartKind::gate_up:  // gate's rows, then up's
      bank.gate = {data, part.type, part.in, part.out / 2};
      bank.up = {data + part.bytes / 2, part.type, part.in, part.out / 2};
      bank.gate_stride = bank.up_stride = part.bytes;
      break;
  }
}

}  // namespace

uint64_t ResidentExperts::bytes(const ExpertStore& store) {
  uint64_t sum = 0;
  for (int l = 0; l < store.layers(); ++l) sum += layer_bytes(store.layer(l));
  return sum;
}

void ResidentExperts::load(Device& device, const ExpertStore& store, DeviceLoader& loader) {
  Progress progress("loading experts", store.total_bytes(), "bytes");
  uint64_t before = 0;
  for (int l = 0; l < store.layers(); ++l) {
    const ExpertLayer& layer = store.layer(l);
    ExpertBank bank;
    Buffer memory;
    if (layer.experts > 0) {
      memory = device.allocate(layer_bytes(layer), "experts");
      bank.experts = layer.experts;
      std::vector<LoadRange> ranges;
      uint8_t* at = memory.as<uint8_t>() + slack;
      for (const ExpertPart& part : layer.parts) {
        const uint64_t bytes = part_bytes(part, layer.experts);
        place(bank, part, at);
        ranges.push_back({part.file, part.offset, bytes, at});
        at += padded(bytes);
      }
      loader.load(ranges, [&](uint64_t done) { progress.update(before + done); });
      for (const LoadRange& range : ranges) before += range.bytes;
    }
    banks_.push_back(bank);
    layers_.push_back(std::move(memory));
  }
}

}  // namespace weir
