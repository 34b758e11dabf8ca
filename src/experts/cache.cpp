// Slot memory and its bookkeeping. A slot's content is what has landed in it; the policy's state, which is
// that of the plan's end, may be ahead of it.
#include "experts/cache.h"

#include <algorithm>

#include "base/hash.h"

namespace weir {
namespace {

uint64_t round_up(uint64_t value, uint64_t alignment) {
  return (value + alignment - 1) / alignment * alignment;
}

/// Room for `bytes` at any remainder, aligned: ExpertReader::stride for a reader that is not open yet.
uint64_t part_stride(uint64_t bytes, uint64_t alignment) {
  return (bytes + 2 * alignment - 1) / alignment * alignment;
}

}  // namespace

ExpertPin::ExpertPin(ExpertCache* cache, int layer, int32_t slot)
    : cache_(cache), layer_(layer), slot_(slot) {}

ExpertPin::~ExpertPin() {
  if (cache_) cache_->unpin(layer_, slot_);
}

ExpertPin::ExpertPin(ExpertPin&& other) noexcept
    : cache_(std::exchange(other.cache_, nullptr)), layer_(other.layer_), slot_(other.slot_) {}

ExpertPin& ExpertPin::operator=(ExpertPin&& other) noexcept {
  std::swap(cache_, other.cache_);
  std::swap(layer_, other.layer_);
  std::swap(slot_, other.slot_);
  return *this;
}

struct ExpertCache::Layer {
  Layer(int experts, int slot_count)
      : slots(experts, slot_count),
        content(static_cast<size_t>(slot_count), -1),
        pins(static_cast<size_t>(slot_count), 0),
        filling(static_cast<size_t>(slot_count), 0) {}
  LayerSlots slots;
  uint8_t* base = nullptr;            ///< in the cache's memory, at the reader's alignment
  uint64_t slot_stride = 0;           ///< bytes from one slot to the next
  std::vector<uint64_t> part_offset;  ///< of each part in a slot, aligned
  std::vector<int32_t> content;       ///< expert whose bytes have landed, -1: none
  std::vector<int> pins;
  std::vector<uint8_t> filling;  ///< reads into the slot are under way
};

/// The wave that was submitted last.
struct ExpertCache::Landing {
  int layer = 0;
  std::vector<Fetch> misses;
  std::vector<int> parts_left;
  std::vector<Fault> faults;
  size_t returned = 0;
  std::vector<ReadRequest> requests;
};

ExpertCache::ExpertCache(Device& device, const ExpertStore& store, ExpertReader& reader,
                         const std::vector<int>& slots, ExpertPolicy policy)
    : store_(store), reader_(reader), policy_(policy), landing_(std::make_unique<Landing>()) {
  WEIR_CHECK(slots.size() == static_cast<size_t>(store.layers()), "{} layers, slots for {}", store.layers(),
             slots.size());
  const uint64_t alignment = reader.alignment();
  for (int l = 0; l < store.layers(); ++l) {
    const ExpertLayer& shape = store.layer(l);
    const int count = slots[static_cast<size_t>(l)];
    WEIR_CHECK(shape.experts == 0 ? count == 0 : count >= 1, "layer {} has {} experts, {} slots", l,
               shape.experts, count);
    auto layer = std::make_unique<Layer>(shape.experts, count);
    for (const ExpertPart& part : shape.parts) {
      layer->part_offset.push_back(layer->slot_stride);
      layer->slot_stride += part_stride(part.bytes, alignment);
    }
    layers_.push_back(std::move(layer));
  }
  allocate_slots(device, alignment);
}

/// One buffer for the slots of all layers: the larger it is, the more of it lies in huge pages. A read into a
/// huge page is one piece for the disk's driver, into small pages it is a list of them, and how many depends
/// on where the kernel found pages when the engine opened.
void ExpertCache::allocate_slots(Device& device, uint64_t alignment) {
  uint64_t bytes = 0;
  for (const auto& layer : layers_) bytes += layer->slot_stride * layer->content.size();
  if (bytes == 0) return;
  // A device aligns large buffers to 4096; a file system that asks for more gets it by hand.
  const uint64_t room = bytes + (alignment > 4096 ? alignment : 0);
  memory_ = device.allocate(std::max<uint64_t>(room, 4096), "expert slots");
  auto* base = reinterpret_cast<uint8_t*>(round_up(reinterpret_cast<uintptr_t>(memory_.data()), alignment));
  WEIR_CHECK(base + bytes <= memory_.as<uint8_t>() + memory_.bytes(), "a buffer at {} for alignment {}",
             memory_.data(), alignment);
  for (const auto& layer : layers_) {
    layer->base = base;
    base += layer->slot_stride * layer->content.size();
  }
}

ExpertCache::~ExpertCache() {
  // Hazard: reads still under way write into slot memory, which goes now.
  abandon();
}

uint64_t ExpertCache::slot_bytes(const ExpertLayer& layer, uint64_t alignment) {
  uint64_t sum = 0;
  for (const ExpertPart& part : layer.parts) sum += part_stride(part.bytes, alignment);
  return sum;
}

FetchPlan ExpertCache::plan(int layer, std::span<const int32_t> needed, std::span<const int32_t> uses) {
  Layer& l = *layers_[static_cast<size_t>(layer)];
  abandon();
  // A run that an error ended half-way has planned reads that never landed.
  for (size_t s = 0; s < l.content.size(); ++s)
    if (l.slots.expert_of_slot[s] != l.content[s]) forget_slot(l.slots, static_cast<int32_t>(s));
  return plan_fetch(l.slots, needed, uses, policy_);
}

void ExpertCache::submit(int layer, const Wave& wave) {
  Layer& l = *layers_[static_cast<size_t>(layer)];
  const ExpertLayer& shape = store_.layer(layer);
  Landing& landing = *landing_;
  if (broken_)
    throw failure("layer {}: experts cannot be read any more: an earlier failure left reads unfinished",
                  layer);
  WEIR_CHECK(landing.returned == landing.misses.size(), "{} of {} misses taken", landing.returned,
             landing.misses.size());
  for (const Fetch& hit : wave.hits)
    WEIR_CHECK(l.pins[static_cast<size_t>(hit.slot)] > 0, "hit {} in slot {} is not pinned", hit.expert,
               hit.slot);
  landing.layer = layer;
  landing.misses.assign(wave.misses.begin(), wave.misses.end());
  landing.parts_left.assign(wave.misses.size(), static_cast<int>(shape.parts.size()));
  landing.faults.assign(wave.misses.size(), {});
  landing.returned = 0;
  landing.requests.clear();
  for (size_t i = 0; i < wave.misses.size(); ++i) {
    const Fetch& miss = wave.misses[i];
    const auto slot = static_cast<size_t>(miss.slot);
    WEIR_CHECK(l.pins[slot] == 0 && !l.filling[slot], "refilling slot {} of layer {}: {} pins, filling {}",
               slot, layer, l.pins[slot], l.filling[slot]);
    l.content[slot] = -1;
    l.filling[slot] = 1;
    for (size_t p = 0; p < shape.parts.size(); ++p) {
      const ExpertPart& part = shape.parts[p];
      landing.requests.push_back({part.file, part.offset + static_cast<uint64_t>(miss.expert) * part.bytes,
                                  part.bytes, l.base + slot * l.slot_stride + l.part_offset[p],
                                  static_cast<uint32_t>(i), layer, miss.expert});
    }
  }
  reader_.submit(landing.requests);
}

int ExpertCache::next_landed(bool wait, Fault& fault) {
  Landing& landing = *landing_;
  fault = {};
  while (landing.returned < landing.misses.size()) {
    std::optional<ReadDone> done = reader_.next(wait);
    if (!done) return -1;
    const size_t i = done->tag;
    if (done->fault && !landing.faults[i]) landing.faults[i] = std::move(done->fault);
    // A slot whose read failed is given back only when its other parts have come: they still write into it.
    if (--landing.parts_left[i] > 0) continue;
    ++landing.returned;
    Layer& l = *layers_[static_cast<size_t>(landing.layer)];
    const Fetch& miss = landing.misses[i];
    const auto slot = static_cast<size_t>(miss.slot);
    l.filling[slot] = 0;
    if (!landing.faults[i]) {
      l.content[slot] = miss.expert;
    } else if (l.slots.expert_of_slot[slot] == miss.expert) {
      forget_slot(l.slots, miss.slot);  // unless a later wave has planned another expert there
    }
    fault = std::move(landing.faults[i]);
    return static_cast<int>(i);
  }
  return -1;
}

void ExpertCache::abandon() noexcept {
  Fault fault;
  try {
    while (next_landed(true, fault) >= 0) {
    }
    broken_ |= landing_->returned < landing_->misses.size();
  } catch (const std::exception&) {
    broken_ = true;  // out of memory: parts of this wave may come at any time
  }
}

ExpertPin ExpertCache::pin(int layer, int32_t slot) {
  ++layers_[static_cast<size_t>(layer)]->pins[static_cast<size_t>(slot)];
  return ExpertPin(this, layer, slot);
}

void ExpertCache::unpin(int layer, int32_t slot) {
  int& pins = layers_[static_cast<size_t>(layer)]->pins[static_cast<size_t>(slot)];
  WEIR_CHECK(pins > 0, "layer {} slot {}", layer, slot);
  --pins;
}

ExpertCache::Weights ExpertCache::weights(int layer, int32_t expert, int32_t slot) const {
  const Layer& l = *layers_[static_cast<size_t>(layer)];
  const ExpertLayer& shape = store_.layer(layer);
  WEIR_CHECK(l.content[static_cast<size_t>(slot)] == expert, "slot {} holds {}, not {}", slot,
             l.content[static_cast<size_t>(slot)], expert);
  Weights weights;
  for (size_t p = 0; p < shape.parts.size(); ++p) {
    const ExpertPart& part = shape.parts[p];
    const uint64_t offset = part.offset + static_cast<uint64_t>(expert) * part.bytes;
    const uint8_t* data =
        l.base + static_cast<uint64_t>(slot) * l.slot_stride + l.part_offset[p] + reader_.remainder(offset);
    const Matrix matrix{data, part.type, part.in, part.out};
    switch (part.kind) {
      case ExpertPartKind::gate:
        weights.gate = matrix;
        break;
      case ExpertPartKind::up:
        weights.up = matrix;
        break;
      case ExpertPartKind::down:
        weights.down = matrix;
        break;
      case ExpertPartKind::gate_up:  // gate's rows, then up's
        weights.gate = {data, part.type, part.in, part.out / 2};
        weights.up = {data + part.bytes / 2, part.type, part.in, part.out / 2};
        break;
    }
  }
  return weights;
}

SlotsState ExpertCache::state() const {
  SlotsState state;
  Hash64 hash;
  const auto add = [&hash](const auto& values) {
    hash.add_words(values.data(), values.size() * sizeof values[0]);
  };
  for (const auto& layer : layers_) {
    state.slots += layer->content.size();
    for (const int32_t expert : layer->content) state.filled += expert >= 0 ? 1 : 0;
    add(layer->content), add(layer->slots.frequency), add(layer->slots.last_use);
    hash.add_value(layer->slots.tick);
  }
  state.fingerprint = hash.value();
  return state;
}

void ExpertCache::reset() {
  abandon();  // Hazard: reads still under way would land in slots that count as empty.
  for (auto& layer : layers_) {
    for (const int pins : layer->pins) WEIR_CHECK(pins == 0, "{} pins at a reset", pins);
    layer->slots = LayerSlots(static_cast<int>(layer->slots.slot_of_expert.size()),
                              static_cast<int>(layer->slots.expert_of_slot.size()));
    std::fill(layer->content.begin(), layer->content.end(), -1);
  }
}

const LayerSlots& ExpertCache::slots(int layer) const { return layers_[static_cast<size_t>(layer)]->slots; }

uint64_t ExpertCache::slot_memory_bytes() const { return memory_.bytes(); }

}  // namespace weir
