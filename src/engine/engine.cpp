#include "engine/engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/clock.h"
#include "base/control_groups.h"
#include "base/error.h"
#include "base/rope_table.h"
#include "engine/open_device.h"
#include "engine/round.h"
#include "text/tokenizer_keys.h"

namespace weir {

namespace {

constexpr int default_context = 4096;
// Rows of a prefill round, largest first: the first whose scratch is under a tenth of the budget is taken. A
// GPU's begin at the first, the CPU's at 512.
constexpr int chunk_choices[] = {2048, 1024, 512, 256, 128, 64, 32, 16, 8};
constexpr int widest_cpu_chunk = 512;

/// What a text takes up to this is in the process's own item: 64 KiB of short words.
constexpr uint64_t text_free = uint64_t{384} << 10;
/// A context that nobody asked for shrinks to no less than this: under it, the refusal's numbers say more.
constexpr int smallest_context = 256;

/// Of the host's memory that a GPU's driver and runtime take at most.
constexpr uint64_t driver_bytes = uint64_t{512} << 20;

/// What the process itself takes besides the plan's other items: code and libraries, the file's metadata and
/// the tokenizer's tables, thread stacks. Measured: 6 to 8.5 MiB with 1,024 to 32,768 tokens, 16 MiB with
/// 151,936 (peak less the other items); this is 8 to 19 MiB there.
uint64_t process_overhead(const gguf::Model& model, int vocab, int threads) {
  uint64_t header = 0;
  for (const auto& file : model.files()) header += file.data_offset;
  return (15ull << 19) + 2 * header + 40ull * static_cast<uint64_t>(vocab) +
         128ull * 1024 * static_cast<uint64_t>(threads);
}

}  // namespace

const char* finish_name(Finish finish) {
  switch (finish) {
    case Finish::end_of_text:
      return "end_of_text";
    case Finish::length:
      return "length";
    case Finish::context:
      return "context";
    case Finish::cancelled:
      return "cancelled";
    case Finish::failed:
      return "failed";
  }
  return "?";
}

void throw_if_failed(const Result& result, const std::string& what) {
  if (result.finish != Finish::failed) return;
  throw Error(result.error_kind, what.empty() ? result.error : fmt::format("{}: {}", what, result.error));
}

Engine::Engine(const EngineOptions& options) : options_(options), model_(gguf::Model::open(options.model)) {
  family_ = Family::create(model_);
  tokenizer_ = Tokenizer::load(model_);
  const ModelConfig& c = config();
  family_->require_rows(model_, tokenizer_->size());
  for (Token t = 0; t < tokenizer_->size(); ++t)
    if (tokenizer_->is_end(t)) end_tokens_.push_back(t);
  if (options_.threads == 0) options_.threads = available_processors();
  context_asked_ = options_.context != 0;
  asked_chunk_ = options_.prefill_chunk;
  if (!context_asked_) options_.context = std::min(c.context, default_context);
  if (!options_.text.empty())
    text_bytes_ = options_.text.size() + tokenizer_->encode_bytes(options_.text, {});
  prompt_bytes_ = options_.text.size();
  options_.text = {};
  device_ = open_device(options_);
  if (const std::string why = device_->refusal(shape_of(*family_)); !why.empty())
    throw input_error("{}: {}", model_.path(), why);
  device_memory_ = device_->memory();
  store_ = ExpertStore(model_, family_->expert_tensors());
  if (!device_->routes_itself()) reader_ = ExpertReader::open(model_.files(), options_.reader);
  budget_ = choose_budget(options_.memory, read_memory_limits());
  const std::string cost = fit_instruments();
  if (!context_asked_) shrink_context();
  choose_plan();
  if (!cost.empty()) plan_.warnings.push_back(cost);
}

Engine::~Engine() = default;

ScratchNeeds Engine::scratch_needs(int rows, int context) const {
  ScratchNeeds needs = family_->scratch_needs(rows);
  needs.longest = context;
  return needs;
}

uint64_t Engine::working_bytes(int rows, int context) const {
  uint64_t bytes = family_->activation_bytes(rows) + device_->scratch_bytes(scratch_needs(rows, context)) +
                   Round::device_bytes(rows, config().vocab, static_cast<int>(end_tokens_.size()));
  if (config().experts > 0 && !device_->routes_itself())
    bytes += ExpertRunner::parts_bytes(store_, rows, config().top_k);
  return bytes;
}

int Engine::rows_of(int chunk) const { return std::max(chunk, options_.lanes); }

DevicePlanRequest Engine::device_plan_request(int chunk) const {
  const ModelConfig& c = config();
  DevicePlanRequest r;
  r.device = device_->name();
  r.vram = options_.vram;
  r.memory = *device_memory_;
  r.context = options_.context;
  r.model_context = c.context;
  r.lanes = options_.lanes;
  r.weight_bytes = Weights::bytes(family_->resident());
  r.expert_bytes = ResidentExperts::bytes(store_);
  r.kv_bytes_per_position = KvCache::bytes_per_position(c);
  r.table_bytes_per_position = static_cast<uint64_t>(c.n_rot) * sizeof(float);
  r.overhead_bytes = device_->overhead_bytes();
  r.scratch_bytes = [this, rows = rows_of(chunk)](int context) { return working_bytes(rows, context); };
  return r;
}

PlanRequest Engine::plan_request(int chunk) const {
  const ModelConfig& c = config();
  const int rows = rows_of(chunk);
  PlanRequest r;
  r.budget_bytes = budget_.bytes;
  r.budget_source = budget_.source;
  r.expert_slots = options_.expert_slots;
  r.context = options_.context;
  r.model_context = c.context;
  r.lanes = options_.lanes;
  r.scratch_bytes = Round::host_bytes(rows, c.vocab);
  r.text_bytes = std::max(text_bytes_, text_free) - text_free;
  r.overhead_bytes = process_overhead(model_, c.vocab, options_.threads) + r.text_bytes;
  if (observed_) plan_instruments(r, rows);
  r.top_k = c.top_k;
  for (int i = 0; i < store_.layers(); ++i) {
    r.experts.push_back(store_.layer(i).experts);
    r.slot_bytes.push_back(reader_ ? ExpertCache::slot_bytes(store_.layer(i), reader_->alignment()) : 0);
  }
  if (reader_) r.overhead_bytes += reader_->page_cache_bytes();
  if (on_device()) {  // the model is there: staging and the driver are here
    r.scratch_bytes += DeviceLoader::staging_bytes;
    r.overhead_bytes += driver_bytes;
    return r;
  }
  r.scratch_bytes += working_bytes(rows, options_.context);
  r.weight_bytes = Weights::bytes(family_->resident());
  r.kv_bytes_per_position = KvCache::bytes_per_position(c);
  r.table_bytes_per_position = static_cast<uint64_t>(c.n_rot) * sizeof(float);
  r.table_bytes = r.table_bytes_per_position * static_cast<uint64_t>(options_.context);
  return r;
}

/// A wide prefill round is worth a tenth of the budget, never an expert's slot at the floor.
bool Engine::chunk_fits(const PlanRequest& request, int chunk) const {
  if (on_device()) {
    const DevicePlanRequest r = device_plan_request(chunk);
    const uint64_t room = device_room(r);
    return r.scratch_bytes(r.context) <= room / 10 && device_bytes(r, r.context) <= room;
  }
  return chunk <= widest_cpu_chunk && request.scratch_bytes <= request.budget_bytes / 10 &&
         plan_fits(request);
}

int Engine::choose_chunk(const RequestOfChunk& request) const {
  const auto within_context = [&](int chunk) { return std::min(chunk, std::max(1, options_.context)); };
  if (asked_chunk_ > 0) return within_context(asked_chunk_);
  for (const int choice : chunk_choices)
    if (const int chunk = within_context(choice); chunk_fits(request(chunk), chunk)) return chunk;
  return narrowest_chunk();
}

int Engine::choose_chunk() const {
  return choose_chunk([this](int chunk) { return plan_request(chunk); });
}

/// The smallest budget and the largest context are those of the narrowest round, so that running with exactly
/// them works.
ResidencyPlan Engine::make_plan_of(const RequestOfChunk& request) const {
  const int chunk = choose_chunk(request);
  ResidencyPlan plan = make_plan(request(chunk));
  plan.prefill_chunk = chunk;
  if (asked_chunk_ > 0) return plan;
  const PlanRequest narrowest = request(narrowest_chunk());
  plan.minimum_budget = floor_bytes(narrowest);
  plan.largest_context = largest_context(narrowest);
  return plan;
}

ResidencyPlan Engine::plan_for(uint64_t budget) const {
  WEIR_CHECK(!on_device(), "the budget of {} is not --memory's", device_->name());
  return make_plan_of([&](int chunk) {
    PlanRequest r = plan_request(chunk);
    r.budget_bytes = budget;
    r.budget_source = "--memory";
    r.expert_slots.reset();
    return r;
  });
}

int Engine::narrowest_chunk() const {
  return std::min(chunk_choices[std::size(chunk_choices) - 1], std::max(1, options_.context));
}

bool Engine::context_fits(int context) {
  options_.context = context;
  const int chunk =
      options_.prefill_chunk > 0 ? std::min(options_.prefill_chunk, context) : narrowest_chunk();
  if (!plan_fits(plan_request(chunk))) return false;
  if (!on_device()) return true;
  const DevicePlanRequest r = device_plan_request(chunk);
  return device_bytes(r, context) <= device_room(r);
}

/// To the largest that fits; where even the smallest does not, that is refused with its numbers.
void Engine::shrink_context() {
  const int wanted = options_.context;
  int fitting = 0;
  if (context_fits(wanted)) return;
  for (int low = std::min(wanted, smallest_context), high = wanted - 1; low <= high;) {
    const int middle = low + (high - low) / 2;
    if (context_fits(middle)) {
      fitting = middle, low = middle + 1;
    } else {
      high = middle - 1;
    }
  }
  options_.context = fitting > 0 ? fitting : std::min(wanted, smallest_context);
  if (fitting > 0) wanted_context_ = wanted;
}

void Engine::choose_plan() {
  const int most_experts = store_.most_experts();
  if (on_device() && options_.expert_slots && *options_.expert_slots < most_experts)
    throw input_error(
        "--expert-slots {}: streaming to a GPU is not available: all {} experts of a layer must fit; leave "
        "it "
        "out, or use --device cpu",
        *options_.expert_slots, most_experts);
  plan_ = make_plan_of([this](int chunk) { return plan_request(chunk); });
  plan_.wanted_context = wanted_context_;
  const int chunk = options_.prefill_chunk = plan_.prefill_chunk;
  // The smallest budget and the largest context are those of the narrowest round and the smallest rings, so
  // that running with exactly them works.
  const LedgerOptions fitted = options_.ledger;
  if (fitted.enabled && fitted.fit) size_rings(rings(), 0);
  const PlanRequest least = plan_request(asked_chunk_ > 0 ? chunk : narrowest_chunk());
  options_.ledger = fitted;
  plan_.minimum_budget = floor_bytes(least);
  plan_.largest_context = largest_context(least);
  auto& warnings = plan_.warnings;
  for (const auto& unknown : {family_->warnings(), unknown_tokenizer_keys(model_)})
    warnings.insert(warnings.end(), unknown.begin(), unknown.end());
  if (config().experts == 0 && options_.expert_slots)
    warnings.push_back("the model has no routed experts: --expert-slots has no effect");
  warnings.insert(warnings.begin(), budget_.warnings.begin(), budget_.warnings.end());
  if (!on_device()) return;
  plan_.device = make_device_plan(device_plan_request(chunk),
                                  device_plan_request(asked_chunk_ > 0 ? chunk : narrowest_chunk()));
  warnings.insert(warnings.end(), plan_.device->warnings.begin(), plan_.device->warnings.end());
}

void Engine::load() {
  const ModelConfig& c = config();
  const int rows = rows_of(options_.prefill_chunk);
  if (options_.ledger.enabled) ledger_ = std::make_unique<Ledger>(options_.ledger);
  std::unique_ptr<DeviceLoader> loader;
  if (!device_->host_visible())
    loader = std::make_unique<DeviceLoader>(*device_, model_.files(), std::min(options_.threads, 8));
  weights_.load(*device_, model_, family_->resident(), loader.get());
  device_->reserve(scratch_needs(rows, options_.context));
  family_->bind(*device_, weights_, rows);
  kv_ = std::make_unique<KvCache>(*device_, c, options_.lanes, options_.context);
  load_rope_table();
  if (c.experts > 0) load_experts(loader.get(), rows);
  lanes_.resize(static_cast<size_t>(options_.lanes));
  round_ = std::make_unique<Round>(*this);
  device_->synchronize();  // the first round begins on an idle device, and the staging buffer goes
  device_->set_ledger(ledger_.get());
  if (reader_) reader_->set_ledger(ledger_.get());
}

void Engine::load_experts(DeviceLoader* loader, int rows) {
  const int top_k = config().top_k;
  if (device_->routes_itself()) {
    resident_experts_.load(*device_, store_, *loader);
    runner_ = std::make_unique<ExpertRunner>(*device_, store_, resident_experts_, rows, top_k);
  } else {
    std::vector<int> slots;
    for (const int experts : plan_.request.experts) slots.push_back(std::min(experts, plan_.slots));
    cache_ = std::make_unique<ExpertCache>(*device_, store_, *reader_, slots, *options_.policy);
    runner_ = std::make_unique<ExpertRunner>(*device_, store_, *cache_, rows, top_k);
    runner_->set_landing_order_seed(options_.landing_order_seed);
    if (!reader_->direct()) runner_->set_on_wait([this] { watch_page_cache(); });
  }
  if (!options_.route_trace.empty()) open_trace();
}

void Engine::open_trace() {
  RouteTraceHeader header{model_.fingerprint(), store_.layers(), config().top_k, {}, {}};
  for (int i = 0; i < store_.layers(); ++i) {
    header.experts.push_back(store_.layer(i).experts);
    header.expert_bytes.push_back(store_.layer(i).expert_bytes());
  }
  trace_ = std::make_unique<RouteTraceWriter>(options_.route_trace, header);
  runner_->set_trace(trace_.get());
}

std::vector<float> Engine::rope_factors() {
  if (!weights_.has(rope_factors_tensor)) return {};
  std::vector<float> factors(static_cast<size_t>(config().n_rot / 2));
  device_->download(factors.data(), weights_.vector(rope_factors_tensor), factors.size() * sizeof(float));
  device_->synchronize();
  for (const float factor : factors)
    if (!std::isfinite(factor) || factor <= 0)
      throw input_error("{}: tensor {} holds {}: expected numbers above 0", model_.path(),
                        rope_factors_tensor, factor);
  return factors;
}

void Engine::load_rope_table() {
  constexpr int block = 256;  // positions at once: no second whole table beside the device's
  const RopeFrequencies frequencies =
      rope_frequencies(config().rope_scaling, config().n_rot, config().rope_base, rope_factors());
  const RopeTableSpec spec{frequencies.pairs, frequencies.magnitude};
  const size_t half = frequencies.pairs.size();
  rope_ = device_->allocate(2 * half * static_cast<size_t>(options_.context) * sizeof(float), "rope tables");
  float* cos = rope_.as<float>();
  float* sin = cos + half * static_cast<size_t>(options_.context);
  std::vector<float> cos_block(half * block), sin_block(half * block);
  for (int first = 0; first < options_.context; first += block) {
    const int n = std::min(block, options_.context - first);
    const size_t at = half * static_cast<size_t>(first),
                 bytes = half * static_cast<size_t>(n) * sizeof(float);
    fill_rope_table(spec, first, n, cos_block.data(), sin_block.data());
    device_->upload(cos + at, cos_block.data(), bytes);
    device_->upload(sin + at, sin_block.data(), bytes);
  }
  rope_table_ = {cos, sin, config().n_rot, RopeStyle::neox};
}

std::string Engine::description() const {
  std::string text = device_->description();
  if (config().experts > 0)
    text += fmt::format("; experts: {}", reader_ ? reader_->description() : "resident");
  return text;
}

ExpertCounters Engine::expert_counters() const {
  ExpertCounters counters = runner_ ? runner_->totals() : ExpertCounters{};
  if (runner_ && device_->routes_itself()) counters.hits = device_->expert_visits();
  return counters;
}

SlotsState Engine::expert_slots() const { return cache_ ? cache_->state() : SlotsState{}; }

void Engine::reset_experts() {
  WEIR_CHECK(waiting_.empty() && !any_open(), "a reset while {} requests wait or a lane is open",
             waiting_.size());
  if (cache_) cache_->reset();
}

bool Engine::any_open() const {
  return std::any_of(lanes_.begin(), lanes_.end(), [](const Lane& lane) { return lane.open; });
}

void Engine::pause_ledger(bool paused) {
  WEIR_CHECK(ledger_ && !ledger_->running(), "a ledger that is {}", ledger_ ? "running" : "not there");
  ledger_paused_ = paused;
  device_->set_ledger(ledger());
  if (reader_) reader_->set_ledger(ledger());
}

void Engine::forget_recordings() { device_->forget_recordings(); }

std::vector<std::string> Engine::paths() const {
  std::vector<std::string> paths;
  for (const auto& file : model_.files()) paths.push_back(file.path);
  return paths;
}

MemoryUse Engine::memory_use() const {
  MemoryUse use = read_memory_use(paths());
  if (use.page_cache) use.peak_page_cache = std::max(*use.page_cache, peak_page_cache_);
  return use;
}

void Engine::watch_page_cache() {
  constexpr uint64_t interval_ns = 50'000'000, parts = 200;  // of the time at most
  const uint64_t begin = now_ns();
  if (begin < next_look_ns_) return;
  if (const auto bytes = page_cache_of(paths())) peak_page_cache_ = std::max(peak_page_cache_, *bytes);
  next_look_ns_ = begin + std::max(interval_ns, parts * (now_ns() - begin));
}

void Engine::close_trace() {
  if (trace_) trace_->close();
}

void Engine::start_clock() {
  if (ledger() && !ledger_->running()) ledger_->begin_generation(Role::tokenize);
}

int Engine::submit(Request request) {
  WEIR_CHECK(round_, "submit before load");
  try {
    check_request(request);
  } catch (const Error&) {
    stop_idle_clock();
    throw;
  }
  start_clock();
  Lane lane;
  lane.id = next_id_++;
  lane.tokens = request.prompt;
  lane.prompt_n = static_cast<int>(request.prompt.size());
  lane.accepted_ns = now_ns();
  lane.request = std::move(request);
  waiting_.push_back(std::move(lane));
  return next_id_ - 1;
}

/// A refused request's clock may run, with nothing to stop it.
void Engine::stop_idle_clock() {
  if (ledger() && waiting_.empty() && !any_open()) ledger_->end_generation();
}

void Engine::check_request(const Request& request) const {
  if (request.prompt.empty()) throw input_error("the prompt is empty: expected at least one token");
  for (const Token t : request.prompt)
    if (t < 0 || t >= config().vocab)
      throw input_error("token {} is outside the vocabulary: expected 0 to {}", t, config().vocab - 1);
  const int room = request.max_tokens == 0 ? context() : context() - 1;
  if (static_cast<int>(request.prompt.size()) > room)
    throw input_error(
        "the prompt has {} tokens but the context holds {}: expected {}", request.prompt.size(), context(),
        wanted_context_ > 0 ? fmt::format("a shorter one, or a larger {}: the budget holds no larger context",
                                          on_device() ? "--vram" : "--memory")
        : context() < config().context
            ? fmt::format("a shorter one, or a larger -c (the model's own limit is {})", config().context)
            : "a shorter one: this is the model's own limit");
}

bool Engine::step() {
  try {
    return round_->step();
  } catch (const std::exception& error) {
    round_->give_up(error);
    throw;
  }
}

std::vector<Result> Engine::take_finished() { return std::exchange(finished_, {}); }

Result Engine::run(Request request) {
  const int id = submit(std::move(request));
  for (;;) {
    const bool more = step();
    for (size_t i = 0; i < finished_.size(); ++i) {
      if (finished_[i].id != id) continue;
      Result result = std::move(finished_[i]);
      finished_.erase(finished_.begin() + static_cast<std::ptrdiff_t>(i));
      return result;
    }
    WEIR_CHECK(more, "request {} is not open", id);
  }
}

}  // namespace weir
