#include "lab/profile/measure.h"

#include <algorithm>
#include <thread>

#include "base/error.h"
#include "engine/open_device.h"
#include "lab/profile/hit_curve.h"
#include "lab/profile/levers.h"

namespace weir::lab {

namespace {

Request make_request(const FittedPrompt& prompt, const ProfileRequest& request, int new_tokens) {
  Request r;
  r.prompt = prompt.tokens;
  r.max_tokens = new_tokens;
  r.ignore_eos = true;
  r.sampler.temperature = request.temperature;
  r.sampler.top_k = request.top_k;
  r.sampler.top_p = request.top_p;
  r.sampler.min_p = 0;
  r.sampler.seed = request.seed;
  r.cancel = request.cancel;
  r.on_token = [&request](Token) {
    if (request.on_token) request.on_token();
  };
  return r;
}

void add_curve(Profile& profile, const Demand& demand) {
  const ProfileSettings& s = profile.settings;
  const std::vector<int> extra{s.slots, 2 * s.slots, slots_that_fit(s)};
  for (const int slots : slot_choices(s.experts_used, s.experts, extra))
    profile.curve.push_back(slot_traffic(demand, slots, s.policy));
}

}  // namespace

EngineOptions profile_engine_options(EngineOptions options, const ProfileRequest& request,
                                     const std::string& route_trace) {
  options.ledger.enabled = true;
  options.ledger.fit = false;                           // every round is looked at
  options.ledger.ring_rounds = request.new_tokens + 1;  // decode comes last
  options.route_trace = route_trace;
  return options;
}

ProfileSettings profile_settings(const Engine& engine, const ProfileRequest& request) {
  const ResidencyPlan& plan = engine.plan();
  ProfileSettings s;
  s.model = engine.model().path();
  s.device = engine.description();
  s.on_gpu = engine.plan().device.has_value();
  s.arithmetic = arithmetic_name(engine.arithmetic());
  s.threads = engine.options().threads;
  s.processors = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  s.context = engine.context();
  s.new_tokens = request.new_tokens;
  s.seed = request.seed;
  s.temperature = request.temperature;
  s.top_p = request.top_p;
  s.top_k = request.top_k;
  s.experts = engine.config().experts;
  s.experts_used = engine.config().top_k;
  s.slots = plan.slots;
  s.policy = *engine.options().policy;
  s.budget_bytes = plan.request.budget_bytes;
  s.plan_bytes = plan.total_bytes;
  for (const int experts : plan.request.experts) s.expert_layers += experts > 0 ? 1 : 0;
  for (size_t layer = 0; layer < plan.request.experts.size(); ++layer)
    if (plan.request.experts[layer] > plan.slots) s.slot_level_bytes += plan.request.slot_bytes[layer];
  return s;
}

std::optional<ProfileRun> run_prompt(Engine& engine, const FittedPrompt& prompt,
                                     const ProfileRequest& request) {
  const Result result = engine.run(make_request(prompt, request, request.new_tokens));
  if (result.finish == Finish::cancelled) return std::nullopt;
  throw_if_failed(result, prompt.name);
  const Ledger& ledger = *engine.ledger();
  ProfileRun run;
  run.prompt = prompt.name;
  run.text_tokens = prompt.text_tokens;
  run.prompt_tokens = static_cast<int>(prompt.tokens.size());
  run.new_tokens = static_cast<int>(result.tokens.size());
  run.tokens_hash = result.tokens_hash;
  run.prefill = ledger.phase(Phase::prefill);
  run.decode = ledger.phase(Phase::decode);
  for (const RoundReport& round : ledger.ring())
    if (round.phase == Phase::decode) run.rounds.push_back(round);
  WEIR_CHECK(run.rounds.size() == run.decode.rounds.count, "{} of {} rounds kept", run.rounds.size(),
             run.decode.rounds.count);
  return run;
}

std::optional<Profile> measure_profile(Engine& engine, const std::vector<FittedPrompt>& prompts,
                                       const ProfileRequest& request) {
  WEIR_CHECK(!prompts.empty() && engine.ledger() != nullptr, "{} prompts", prompts.size());
  Profile profile;
  profile.settings = profile_settings(engine, request);
  // The first pass over the weights pays for page faults that no later one does.
  const Result warm = engine.run(make_request(prompts.front(), request, 1));
  if (warm.finish == Finish::cancelled) return std::nullopt;
  throw_if_failed(warm, prompts.front().name);
  for (const FittedPrompt& prompt : prompts) {
    auto run = run_prompt(engine, prompt, request);
    if (!run) return std::nullopt;
    profile.runs.push_back(std::move(*run));
  }
  profile.counted = engine.expert_counters();
  profile.memory = engine.memory_use();
  engine.close_trace();
  if (profile.settings.experts > 0 && !engine.options().route_trace.empty())
    add_curve(profile, make_demand(RouteTrace::read(engine.options().route_trace)));
  return profile;
}

}  // namespace weir::lab
