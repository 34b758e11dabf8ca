#include "lab/verify.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>

#include "base/error.h"

namespace weir::lab {

namespace {

std::string first_difference(const std::vector<Token>& a, const std::vector<Token>& b) {
  const size_t n = std::min(a.size(), b.size());
  for (size_t i = 0; i < n; ++i)
    if (a[i] != b[i]) return fmt::format("new token {}: {} instead of {}", i, b[i], a[i]);
  if (a.size() != b.size()) return fmt::format("{} new tokens instead of {}", b.size(), a.size());
  return "the same tokens from different logits";
}

/// `id` is the one that the engine will give it. With `tokens_only` nothing in it asks for logits: on a GPU
/// they then stay there, as in weir run, and the device chooses.
Request make_request(const VerifyPrompt& prompt, int n, int id, bool tokens_only, TrailRecorder* recorder) {
  Request r;
  r.prompt = prompt.tokens;
  r.max_tokens = n;
  r.ignore_eos = true;
  r.sampler.greedy = true;
  if (tokens_only) return r;
  r.hash_logits = true;
  r.logits_from = static_cast<int>(prompt.tokens.size()) - 1;
  if (recorder)
    r.on_logits = [=](int position, std::span<const float> row) { recorder->add_logits(id, position, row); };
  return r;
}

void store(VerifyOutcome& outcome, size_t index, Result result) {
  if (result.finish == Finish::failed)
    throw CellFailure(Error(result.error_kind, fmt::format("{}: {}", outcome.cell, result.error)));
  outcome.tokens_hash[index] = result.tokens_hash;
  if (!outcome.tokens_only) outcome.logits_hash[index] = result.logits_hash;
  outcome.tokens[index] = std::move(result.tokens);
}

}  // namespace

std::vector<std::string> differences(const VerifyOutcome& base, const VerifyOutcome& outcome) {
  std::vector<std::string> lines;
  const bool with_logits = !base.tokens_only && !outcome.tokens_only;
  for (size_t i = 0; i < base.prompts.size(); ++i) {
    const bool same_logits = !with_logits || base.logits_hash[i] == outcome.logits_hash[i];
    if (base.tokens_hash[i] == outcome.tokens_hash[i] && same_logits) continue;
    lines.push_back(fmt::format("{}, prompt {}: {}", outcome.cell, base.prompts[i],
                                first_difference(base.tokens[i], outcome.tokens[i])));
  }
  return lines;
}

namespace {

class Matrix {
 public:
  explicit Matrix(const EngineOptions& base) : base_(base) {}
  template <typename F>
  VerifyCell& add(std::string name, F&& change) {
    cells_.push_back({std::move(name), base_});
    change(cells_.back().options);
    return cells_.back();
  }
  /// Not in the short matrix.
  template <typename F>
  void add_long(std::string name, F&& change) {
    add(std::move(name), change).quick = false;
  }
  std::vector<VerifyCell> take() { return std::move(cells_); }

 private:
  EngineOptions base_;
  std::vector<VerifyCell> cells_;
};

void add_rounds(Matrix& m, int context) {
  for (const int chunk : {1, 7, 64})
    m.add(fmt::format("prefill chunk {}", chunk), [=](EngineOptions& o) { o.prefill_chunk = chunk; }).quick =
        chunk == 7;
  m.add("prefill in one chunk", [=](EngineOptions& o) { o.prefill_chunk = context; });
  m.add("lanes 4", [](EngineOptions& o) { o.lanes = 4; }).together = true;
}

void add_ledger(Matrix& m) {
  m.add("ledger 1", [](EngineOptions& o) { o.ledger.enabled = true; });
  m.add_long("ledger 16", [](EngineOptions& o) { o.ledger.enabled = true, o.ledger.ring_rounds = 16; });
  m.add("ledger with delays", [](EngineOptions& o) {
    o.ledger.enabled = o.ledger.trace = true;
    o.ledger.inject_role = Role::attention, o.ledger.inject_ns = 100'000;
  });
}

void add_streaming(Matrix& m, int k, int experts) {
  const auto streaming = [=](EngineOptions& o) { o.expert_slots = std::min(experts, 2 * k); };
  for (const int slots : {k, k + 1, 2 * k, experts})
    if (slots <= experts)
      m.add(fmt::format("expert slots {}", slots), [=](EngineOptions& o) { o.expert_slots = slots; }).quick =
          slots == k || slots == experts;
  m.add_long("policy lfu", [=](EngineOptions& o) { o.policy = ExpertPolicy::lfu, streaming(o); });
  m.add("policy lru", [=](EngineOptions& o) { o.policy = ExpertPolicy::lru, streaming(o); });
  m.add_long("io direct", [](EngineOptions& o) { o.reader.mode = IoMode::direct; });
  m.add("io buffered", [](EngineOptions& o) { o.reader.mode = IoMode::buffered; });
  m.add("io thread pool", [](EngineOptions& o) { o.reader.io_uring = false; });
  for (const uint64_t seed : {1, 2, 3})
    m.add(fmt::format("landing order {}", seed), [=](EngineOptions& o) {
       o.landing_order_seed = seed, streaming(o);
     }).quick = seed == 1;
}

std::vector<VerifyCell> gpu_matrix(const EngineOptions& base, int context) {
  Matrix m(base);
  m.add("base", [](EngineOptions&) {});
  m.add("graphs off", [](EngineOptions& o) { o.graphs = false; });
  add_rounds(m, context);
  m.add("choice on the GPU", [](EngineOptions&) {}).tokens_only = true;
  auto& choices = m.add("choice on the GPU, lanes 4", [](EngineOptions& o) { o.lanes = 4; });
  choices.tokens_only = choices.together = true, choices.quick = false;
  m.add_long("lanes 4, graphs off", [](EngineOptions& o) { o.lanes = 4, o.graphs = false; });
  add_ledger(m);
  m.add_long("ledger 1, graphs off", [](EngineOptions& o) { o.ledger.enabled = true, o.graphs = false; });
  const std::string cpu = "cpu", portable = "portable";
  m.add(cpu, [](EngineOptions& o) {
     o.device = "cpu", o.arithmetic = Arithmetic::portable;
     o.vram.reset(), o.graphs = true, o.make_device = nullptr;
   }).reference = cpu;
  m.add(portable, [](EngineOptions& o) { o.arithmetic = Arithmetic::portable; }).reference = cpu;
  for (const int chunk : {1, 7})
    m.add(fmt::format("portable, prefill chunk {}", chunk), [=](EngineOptions& o) {
       o.arithmetic = Arithmetic::portable, o.prefill_chunk = chunk;
     }).reference = cpu;
  auto& lanes =
      m.add("portable, lanes 4", [](EngineOptions& o) { o.arithmetic = Arithmetic::portable, o.lanes = 4; });
  lanes.reference = cpu, lanes.together = true;
  return m.take();
}

}  // namespace

std::vector<VerifyCell> verify_matrix(const EngineOptions& base, const Engine& probe) {
  if (probe.plan().device) return gpu_matrix(base, probe.context());
  Matrix m(base);
  m.add("base", [](EngineOptions&) {});
  m.add("threads 1", [](EngineOptions& o) { o.threads = 1; });
  m.add_long("threads 2", [](EngineOptions& o) { o.threads = 2; });
  add_rounds(m, probe.context());
  if (const int k = probe.config().top_k; k > 0) add_streaming(m, k, probe.config().experts);
  add_ledger(m);
  m.add("isa scalar", [](EngineOptions& o) { o.isa = Isa::scalar; });
  m.add("isa avx2", [](EngineOptions& o) { o.isa = Isa::avx2; });
  return m.take();
}

size_t reference_of(const std::vector<VerifyCell>& cells, size_t i) {
  if (cells[i].reference.empty()) return 0;
  for (size_t j = 0; j <= i; ++j)
    if (cells[j].name == cells[i].reference) return j;
  WEIR_CHECK(false, "no cell {}", cells[i].reference);
  return 0;
}

VerifyOutcome run_cell(const VerifyCell& cell, const std::vector<VerifyPrompt>& prompts, int n,
                       TrailRecorder* recorder) {
  EngineOptions options = cell.options;
  if (recorder) options.probe = recorder;
  Engine engine(options);
  engine.load();
  VerifyOutcome outcome;
  outcome.cell = cell.name;
  outcome.tokens_only = cell.tokens_only;
  for (const auto& p : prompts) outcome.prompts.push_back(p.name);
  outcome.tokens_hash.resize(prompts.size());
  if (!cell.tokens_only) outcome.logits_hash.resize(prompts.size());
  outcome.tokens.resize(prompts.size());
  const auto request = [&](size_t i) {
    return make_request(prompts[i], n, static_cast<int>(i), cell.tokens_only, recorder);
  };
  if (cell.together) {
    std::map<int, size_t> index_of;
    for (size_t i = 0; i < prompts.size(); ++i) index_of[engine.submit(request(i))] = i;
    while (engine.step()) {
    }
    for (auto& result : engine.take_finished()) {
      const size_t index = index_of.at(result.id);
      store(outcome, index, std::move(result));
    }
  } else {
    for (size_t i = 0; i < prompts.size(); ++i) store(outcome, i, engine.run(request(i)));
  }
  outcome.experts = engine.expert_counters();
  return outcome;
}

std::string Parting::describe() const {
  if (first.operation.empty())
    return "run again with every operation hashed, both were equal: the difference comes and goes";
  const std::string layer = first.layer >= 0 ? fmt::format("layer {}, ", first.layer) : "";
  return fmt::format("first: prompt {}, position {}, {}{}", prompt, first.position, layer, first.operation);
}

Parting locate_difference(const VerifyCell& base, const VerifyCell& cell,
                          const std::vector<VerifyPrompt>& prompts, int n) {
  TrailRecorder left(base.options.probe), right(cell.options.probe);
  const VerifyOutcome a = run_cell(base, prompts, n, &left), b = run_cell(cell, prompts, n, &right);
  const int layers = Engine(base.options).config().layers;
  for (size_t i = 0; i < prompts.size(); ++i) {
    const auto id = static_cast<int>(i);
    const FirstDifference first = first_difference(left.trail(id), right.trail(id), layers);
    const auto& x = a.tokens[i];
    const auto& y = b.tokens[i];
    const auto at = std::mismatch(x.begin(), x.end(), y.begin(), y.end()).first - x.begin();
    const int position = static_cast<int>(prompts[i].tokens.size()) + static_cast<int>(at);
    // Everything equal up to there, the logits included where they were compared, and yet another token:
    // nothing is left but the choice. What differs from that position on only follows from it.
    if (x != y && (first.operation.empty() || first.position >= position))
      return {prompts[i].name, {position, -1, cell.tokens_only ? "head or sample" : "sample"}};
    if (!first.operation.empty()) return {prompts[i].name, first};
  }
  return {};
}

}  // namespace weir::lab
