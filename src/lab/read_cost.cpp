// Measuring reads the way a decode round makes them: all of a layer's misses in flight together.
#include "lab/read_cost.h"

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/random.h"
#include "base/stats.h"
#include "experts/store.h"
#include "model/family.h"

namespace weir::lab {

namespace {

constexpr int most_batches = 48, fewest_batches = 8;
constexpr uint64_t most_bytes = 512ull << 20;

struct Free {
  void operator()(uint8_t* p) const { std::free(p); }
};

/// Reads batches of whole experts into memory that nobody looks at.
class Probe {
 public:
  Probe(const ExpertStore& store, ExpertReader& reader, int depth) : store_(store), reader_(reader) {
    uint64_t bytes = 0;
    for (int l = 0; l < store.layers(); ++l) {
      uint64_t strides = 0;
      for (const ExpertPart& part : store.layer(l).parts) strides += reader.stride(part.bytes);
      bytes = std::max(bytes, strides * static_cast<uint64_t>(depth));
      if (store.layer(l).experts > 0) layers_.push_back(l);
    }
    memory_.reset(static_cast<uint8_t*>(std::aligned_alloc(reader.alignment(), bytes)));
    if (!memory_) throw failure("{} for the reads to measure cannot be allocated", human_bytes(bytes));
  }

  /// Nanoseconds from submitting `count` random experts of a layer to the last one's arrival. Batch after
  /// batch takes layer after layer.
  double batch_ns(int batch, int count, uint64_t& bytes) {
    const int layer = layers_[static_cast<size_t>(batch) % layers_.size()];
    const ExpertLayer& shape = store_.layer(layer);
    std::vector<ReadRequest> requests;
    uint8_t* at = memory_.get();
    for (const int32_t expert : draw(shape.experts, std::min(count, shape.experts))) {
      for (const ExpertPart& part : shape.parts) {
        requests.push_back({part.file, part.offset + static_cast<uint64_t>(expert) * part.bytes, part.bytes,
                            at, static_cast<uint32_t>(requests.size()), layer});
        at += reader_.stride(part.bytes);
        bytes += part.bytes;
      }
    }
    const uint64_t begin = now_ns();
    reader_.submit(requests);
    for (size_t i = 0; i < requests.size(); ++i) {
      const auto done = reader_.next(/*wait=*/true);
      WEIR_CHECK(done, "a read is missing");
      if (done->fault) throw failure("measuring reads: {}", done->fault.message);
    }
    return static_cast<double>(now_ns() - begin);
  }

 private:
  std::vector<int32_t> draw(int experts, int count) {
    std::vector<int32_t> ids;
    while (static_cast<int>(ids.size()) < count) {
      const auto id = static_cast<int32_t>(random_u64(11, draws_++) % static_cast<uint64_t>(experts));
      if (std::find(ids.begin(), ids.end(), id) == ids.end()) ids.push_back(id);
    }
    return ids;
  }

  const ExpertStore& store_;
  ExpertReader& reader_;
  std::vector<int> layers_;
  std::unique_ptr<uint8_t, Free> memory_;
  uint64_t draws_ = 0;
};

uint64_t largest_expert(const ExpertStore& store) {
  uint64_t bytes = 1;
  for (int l = 0; l < store.layers(); ++l) bytes = std::max(bytes, store.layer(l).expert_bytes());
  return bytes;
}

}  // namespace

ReadCost measure_read_cost(const std::string& model_path, const RouteTraceHeader& header,
                           const std::string& trace_name, const ReaderOptions& options) {
  const gguf::Model model = gguf::Model::open(model_path);
  require_same_model(header, trace_name, model);
  const auto family = Family::create(model);
  const ExpertStore store(model, family->expert_tensors());
  const auto reader = ExpertReader::open(model.files(), options);
  const int deep = std::max(2, header.top_k);
  Probe probe(store, *reader, deep);
  const uint64_t pair_bytes = largest_expert(store) * static_cast<uint64_t>(deep + 1);
  const int batches =
      static_cast<int>(std::clamp<uint64_t>(most_bytes / pair_bytes, fewest_batches, most_batches));
  std::vector<double> one, many;
  uint64_t one_bytes = 0, many_bytes = 0;
  for (int i = 0; i < batches; ++i) {  // taken in turn: drift touches both alike
    one.push_back(probe.batch_ns(i, 1, one_bytes));
    many.push_back(probe.batch_ns(i, deep, many_bytes));
  }
  const double n = batches, one_mean = static_cast<double>(one_bytes) / n,
               many_mean = static_cast<double>(many_bytes) / n;
  const double slope = (median(many) - median(one)) / (many_mean - one_mean);  // ns a byte
  ReadCost cost;
  cost.latency_ns = median(one) - slope * one_mean;
  if (!(slope > 0 && cost.latency_ns >= 0)) {  // noise: one number says all that is known
    cost.latency_ns = 0;
    cost.bytes_per_second = many_mean / median(many) * 1e9;
  } else {
    cost.bytes_per_second = 1e9 / slope;
  }
  cost.how = fmt::format("measured on {} reads of 1 and {} of {} experts ({}; {})", batches, batches, deep,
                         human_bytes(one_bytes + many_bytes), reader->description());
  return cost;
}

LedgerFigures read_ledger_figures(const std::string& path, PhaseChoice choice) {
  using Json = nlohmann::json;
  const InputFile file = InputFile::open(path);
  std::string text(file.size(), '\0');
  file.pread_exact(text.data(), text.size(), 0);
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || json.value("schema", Json()) != "weir-ledger-1")
    throw input_error("{}: not a ledger: expected the file that weir run --ledger-json writes", path);
  LedgerFigures figures;
  double bytes = 0, busy_ns = 0;
  bool any = false;
  try {
    for (int p = 0; p < phase_count; ++p) {
      const auto phase = static_cast<Phase>(p);
      const Json& phases = json.at("phases");
      if (!counts(choice, phase) || !phases.contains(phase_name(phase))) continue;
      any = true;
      const Json& account = phases.at(phase_name(phase));
      const Json& experts = account.at("experts");
      const double hits = experts.at("hits").get<double>();
      const Json& roles = account.at("roles");
      if (hits > 0 && roles.contains("experts_hit"))
        figures.hidden_ns_per_hit[static_cast<size_t>(p)] =
            std::max(0.0, roles.at("experts_hit").at("ns").get<double>() / hits);
      bytes += experts.at("bytes_read").get<double>();
      busy_ns += experts.at("read_busy_ns").get<double>();
    }
  } catch (const Json::exception& e) {
    throw input_error("{}: a damaged ledger: {}", path, e.what());
  }
  if (!any) throw input_error("{}: the ledger has no phase {}", path, phase_choice_name(choice));
  if (busy_ns > 0) figures.bytes_per_second = std::max(0.0, bytes / busy_ns * 1e9);
  return figures;
}

}  // namespace weir::lab
