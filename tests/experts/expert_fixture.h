// A small file with experts in three shapes (separate tensors, a dense layer, fused gate_up of other types),
// and the plain computation of what a layer's experts add to h, from bytes read with no cache in between.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "base/random.h"
#include "device/device.h"
#include "experts/runner.h"
#include "experts/store.h"
#include "gguf/writer.h"
#include "support/temp_dir.h"
#include "support/tiny_model.h"

namespace weir::test {

struct ExpertFile {
  static constexpr int experts = 12, layers = 3, top_k = 3, hidden = 64, ff = 32;
  TempDir dir;
  std::string path = dir.file("experts.gguf");
  gguf::Model model;
  std::vector<std::vector<ExpertStore::Named>> named;
  ExpertStore store;
  std::string bytes;  ///< the whole file

  ExpertFile() : model(write(path)) {
    using Kind = ExpertPartKind;
    named = {{{Kind::gate, model.find("gate.0")},
              {Kind::up, model.find("up.0")},
              {Kind::down, model.find("down.0")}},
             {},
             {{Kind::down, model.find("down.2")}, {Kind::gate_up, model.find("gate_up.2")}}};
    store = ExpertStore(model, named);
    bytes = read_file(path);
  }

  static gguf::Model write(const std::string& path) {
    gguf::Writer writer;
    writer.set("general.architecture", std::string("test"));
    uint64_t stream = 0;
    const auto add = [&](const std::string& name, Type type, int64_t in, int64_t out) {
      writer.add_tensor(name, type, {in, out, experts},
                        random_blocks(type, in * out * experts, 0.3f, 5, stream++));
    };
    add("gate.0", Type::Q8_0, hidden, ff);
    writer.add_tensor("pad", Type::F32, {3},
                      std::vector<uint8_t>(12, 1));  // offsets that are no multiple of 512
    add("up.0", Type::Q8_0, hidden, ff);
    add("down.0", Type::Q5_0, ff, hidden);
    add("gate_up.2", Type::F16, hidden, 2 * ff);
    add("down.2", Type::Q8_0, ff, hidden);
    writer.write(path);
    return gguf::Model::open(path);
  }

  /// The bytes of part `p` of an expert.
  std::vector<uint8_t> slice(int layer, size_t p, int32_t expert) const {
    const ExpertPart& part = store.layer(layer).parts[p];
    const auto* begin = reinterpret_cast<const uint8_t*>(bytes.data()) + part.offset +
                        static_cast<uint64_t>(expert) * part.bytes;
    return {begin, begin + part.bytes};
  }
};

/// A batch of random rows in the device's memory.
struct RandomBatch {
  int rows;
  std::vector<float> x, h;
  std::vector<int32_t> ids;
  std::vector<float> weights;

  RandomBatch(int count, uint64_t seed) : rows(count) {
    uint64_t n = 0;
    const auto value = [&] { return static_cast<float>(random_unit(seed, n++) * 2 - 1); };
    for (int i = 0; i < rows * ExpertFile::hidden; ++i) x.push_back(value()), h.push_back(value());
    for (int r = 0; r < rows; ++r) {
      std::vector<int32_t> row;
      while (row.size() < ExpertFile::top_k) {
        const auto id = static_cast<int32_t>(random_u64(seed, n++) % ExpertFile::experts);
        if (std::find(row.begin(), row.end(), id) == row.end()) row.push_back(id);
      }
      std::sort(row.begin(), row.end());
      ids.insert(ids.end(), row.begin(), row.end());
    }
    for (int i = 0; i < rows * ExpertFile::top_k; ++i) weights.push_back(value());
  }
  MoeArgs args(int layer) {
    return {layer, rows, ExpertFile::top_k, x.data(), h.data(), ids.data(), weights.data()};
  }
};

inline std::unique_ptr<Device> make_test_device(int max_rows) {
  auto device = make_cpu_device(1);
  ScratchNeeds needs;
  needs.rows = max_rows, needs.max_in = 64, needs.top_k = ExpertFile::top_k, needs.expert_ff = ExpertFile::ff;
  needs.hidden = ExpertFile::hidden, needs.experts = ExpertFile::experts, needs.heads = 1,
  needs.head_dim = 64;
  device->reserve(needs);
  return device;
}

/// h after the layer, computed one row and one expert at a time.
inline std::vector<float> plain_result(const ExpertFile& file, Device& device, int layer, RandomBatch batch) {
  std::vector<float> parts(static_cast<size_t>(batch.rows) * ExpertFile::top_k * ExpertFile::hidden);
  for (int32_t pair = 0; pair < batch.rows * ExpertFile::top_k; ++pair) {
    const int32_t expert = batch.ids[static_cast<size_t>(pair)];
    const ExpertLayer& shape = file.store.layer(layer);
    std::vector<std::vector<uint8_t>> bytes;
    for (size_t p = 0; p < shape.parts.size(); ++p) bytes.push_back(file.slice(layer, p, expert));
    ExpertWork work;
    if (shape.parts.size() == 3) {
      work.gate = {bytes[0].data(), shape.parts[0].type, ExpertFile::hidden, ExpertFile::ff};
      work.up = {bytes[1].data(), shape.parts[1].type, ExpertFile::hidden, ExpertFile::ff};
    } else {
      work.gate = {bytes[0].data(), shape.parts[0].type, ExpertFile::hidden, ExpertFile::ff};
      work.up = {bytes[0].data() + bytes[0].size() / 2, shape.parts[0].type, ExpertFile::hidden,
                 ExpertFile::ff};
    }
    work.down = {bytes.back().data(), shape.parts.back().type, ExpertFile::ff, ExpertFile::hidden};
    const std::vector<int32_t> pairs = {pair};
    work.pairs = pairs;
    const std::vector<ExpertWork> group = {work};
    device.experts({group, batch.x.data(), ExpertFile::top_k, Activation::swiglu, parts.data()});
  }
  device.combine({parts.data(), batch.weights.data(), batch.h.data(), batch.rows, ExpertFile::top_k,
                  ExpertFile::hidden});
  return batch.h;
}

}  // namespace weir::test
