#include "lab/ab/engine_arms.h"

#include <fcntl.h>

#include <algorithm>

#include "base/arithmetic.h"
#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/interrupt.h"
#include "base/log.h"
#include "engine/open_device.h"
#include "lab/machine.h"

namespace weir::lab::ab {

namespace {

// As weir profile samples: seeded, not greedy, since a loop of one phrase would make experts look local.
SamplerOptions sampler(uint64_t seed, int prompt) {
  SamplerOptions o;
  o.temperature = 0.2f, o.top_k = 64, o.top_p = 0.95f, o.min_p = 0;
  o.seed = seed * 1'000'003 + static_cast<uint64_t>(prompt);
  return o;
}

bool covers(Metric metric, Phase phase) {
  if (metric == Metric::total) return true;
  return (metric == Metric::prefill) == (phase == Phase::prefill);
}

std::vector<std::string> paths_of(const Engine& engine) {
  std::vector<std::string> paths;
  for (const auto& file : engine.model().files()) paths.push_back(file.path);
  return paths;
}

/// Drops the files' clean pages from the page cache, as far as no other process holds them.
void drop_page_cache(const Engine& engine) {
  for (const auto& path : paths_of(engine))
    posix_fadvise(InputFile::open(path).fd(), 0, 0, POSIX_FADV_DONTNEED);
}

StartState start_of(const Engine& engine) {
  const SlotsState slots = engine.expert_slots();
  return {slots.slots, slots.filled, slots.fingerprint, engine.memory_use().page_cache};
}

/// The account of the phases that the metric covers, and of the whole generation.
void read_ledger(const Ledger& ledger, Metric metric, Observation& o) {
  o.role_ns.assign(role_count, 0);
  for (int p = 0; p < phase_count; ++p) {
    const auto phase = static_cast<Phase>(p);
    const PhaseAccount& account = ledger.phase(phase);
    o.wall_ns += account.wall_ns;
    o.unattributed_ns += account.roles[static_cast<size_t>(Role::unattributed)].per_round.sum_ns;
    if (!covers(metric, phase)) continue;
    o.metric_ns += account.wall_ns;
    o.hits += account.experts.hits, o.misses += account.experts.misses;
    o.bytes_read += account.experts.bytes_read;
    for (size_t r = 0; r < o.role_ns.size(); ++r) o.role_ns[r] += account.roles[r].per_round.sum_ns;
  }
  o.value = static_cast<double>(o.metric_ns) * 1e-6;
}

/// Whether both arms can be loaded, as far as the memory of the device that they share goes.
bool fit_one_device(const ResidencyPlan& a, const ResidencyPlan& b) {
  if (!a.device || !b.device || a.device->device != b.device->device) return true;
  return a.device->total_bytes + b.device->total_bytes <=
         std::min(a.device->budget_bytes, b.device->budget_bytes);
}

/// Runs `work` so that its errors of input name the arm.
template <typename Work>
auto naming(Side side, Work work) {
  try {
    return work();
  } catch (const Error& e) {
    throw Error(e.kind(), fmt::format("arm {}: {}", name(side), e.what()));
  }
}

}  // namespace

EngineArms::EngineArms(std::array<EngineArm, 2> arms, const std::vector<Prompt>& prompts, Design& design,
                       uint64_t room_bytes, const std::atomic<bool>* cancel)
    : design_(design), cancel_(cancel) {
  uint64_t together = 0;
  for (const Side side : {Side::a, Side::b}) {
    Arm& arm = arms_[index(side)];
    arm.given = std::move(arms[index(side)]);
    meter_.begin(side);
    naming(side, [&] {
      open(side);
      for (const auto& prompt : prompts)
        arm.prompts.push_back(fit_prompt(prompt, *arm.engine, design_.predict));
    });
    meter_.end();
    together += arm.facts.plan_bytes;
  }
  can_stay_open_ = together <= room_bytes && fit_one_device(arms_[0].engine->plan(), arms_[1].engine->plan());
  const Engine& a = *arms_[0].engine;
  model_bytes_ = a.model().total_bytes();
  design.model = a.model().path();
  design.fingerprint = a.model().fingerprint();
  cut_alike();
  design.prompts.clear();
  for (size_t i = 0; i < prompts.size(); ++i)
    design.prompts.push_back({prompts[i].name,
                              Hash64().add(prompts[i].text.data(), prompts[i].text.size()).value(),
                              static_cast<int>(arms_[0].prompts[i].tokens.size())});
  for (const Side side : {Side::a, Side::b}) close(side);
}

void EngineArms::cut_alike() {
  for (size_t i = 0; i < arms_[0].prompts.size(); ++i) {
    FittedPrompt &a = arms_[0].prompts[i], &b = arms_[1].prompts[i];
    if (a.cut() && a.tokens.size() < b.tokens.size()) b.tokens.resize(a.tokens.size());
    if (b.cut() && b.tokens.size() < a.tokens.size()) a.tokens.resize(b.tokens.size());
  }
}

void EngineArms::open(Side side) {
  Arm& arm = arms_[index(side)];
  const ScopedEnvironment environment(arm.given.environment);
  EngineOptions& o = arm.given.options;
  o.ledger.enabled = true;
  o.ledger.log_every = 0;
  arm.engine = std::make_unique<Engine>(o);
  // Opened again, the arm must come to the same plan, whatever the machine leaves by then.
  const ResidencyPlan& plan = arm.engine->plan();
  for (const auto& warning : plan.warnings) log_warning(warning);  // each once
  o.threads = arm.engine->options().threads, o.context = arm.engine->context();
  o.prefill_chunk = arm.engine->options().prefill_chunk;
  o.memory = plan.request.budget_bytes;
  if (plan.device) o.vram = plan.device->budget_bytes;
  arm.facts = {arm.engine->description(), plan.slots, plan.total_bytes,
               arithmetic_name(arm.engine->arithmetic()), arithmetic_version};
}

void EngineArms::close(Side side) {
  Arm& arm = arms_[index(side)];
  arm.opening = -1;
  if (!arm.engine) return;
  meter_.begin(side);
  arm.engine.reset();
  meter_.end();
}

Setting EngineArms::setting() const {
  Setting s;
  s.machine = this_machine();
  s.model_bytes = model_bytes_;
  const EngineOptions &a = arms_[0].given.options, &b = arms_[1].given.options;
  s.same_slots = a.model == b.model &&
                 a.policy.value_or(ExpertPolicy::lfu) == b.policy.value_or(ExpertPolicy::lfu) &&
                 arms_[0].facts.slots == arms_[1].facts.slots && a.prefill_chunk == b.prefill_chunk;
  // What a run leaves in the page cache follows from how it reads, and from how often.
  s.same_pages = a.model == b.model && a.reader.mode == b.reader.mode && a.reader.advice == b.reader.advice &&
                 s.same_slots;
  s.arms = {arms_[0].facts, arms_[1].facts};
  for (int r = 0; r < role_count; ++r) s.roles.push_back(role_name(static_cast<Role>(r)));
  return s;
}

std::optional<Observation> EngineArms::observe(const PlannedRun& run) {
  return naming(run.arm, [&] { return measure(run); });
}

bool EngineArms::reopen(const PlannedRun& run) {
  Arm& arm = arms_[index(run.arm)];
  if (!design_.open_once) close(other(run.arm));
  close(run.arm);
  meter_.begin(run.arm);
  {
    const EndAtOnce nobody_looks;
    open(run.arm);
    const ScopedEnvironment environment(arm.given.environment);
    arm.engine->load();
  }
  arm.opening = run.opening;
  if (design_.cache == CachePolicy::warm) return true;
  // What only the first generation of an engine pays is no part of a cold start of its caches.
  const Result first = generate(arm, run);
  throw_if_failed(first);
  return first.finish != Finish::cancelled;
}

std::optional<Observation> EngineArms::measure(const PlannedRun& run) {
  Arm& arm = arms_[index(run.arm)];
  if (arm.opening == run.opening)
    meter_.begin(run.arm);
  else if (!reopen(run))
    return std::nullopt;
  const ScopedEnvironment environment(arm.given.environment);
  if (!prepare(arm, run)) return std::nullopt;
  Observation o;
  o.start = start_of(*arm.engine);
  const Result result = generate(arm, run);
  if (result.finish == Finish::cancelled) return std::nullopt;
  throw_if_failed(result);
  o.tokens = static_cast<int>(result.tokens.size());
  o.tokens_hash = result.tokens_hash;
  read_ledger(*arm.engine->ledger(), design_.metric, o);
  o.peak_bytes = meter_.end();
  return o;
}

bool EngineArms::prepare(Arm& arm, const PlannedRun& run) {
  arm.engine->reset_experts();
  if (design_.cache == CachePolicy::cold) {
    drop_page_cache(*arm.engine);
    return true;
  }
  const Result equaliser = generate(arm, run);
  throw_if_failed(equaliser);
  return equaliser.finish != Finish::cancelled;
}

Result EngineArms::generate(Arm& arm, const PlannedRun& run) {
  Request request;
  request.prompt = arm.prompts[static_cast<size_t>(run.prompt)].tokens;
  request.max_tokens = design_.predict;
  request.ignore_eos = true;  // the same number of tokens in every run
  request.sampler = sampler(design_.seed, run.prompt);
  request.cancel = cancel_;
  return arm.engine->run(std::move(request));
}

}  // namespace weir::lab::ab
