// Made-up accounts for tests of the analysis: every time is chosen, so every answer is known.
#pragma once

#include <functional>
#include <string>

#include "base/random.h"
#include "lab/profile/profile.h"

namespace weir::lab {

inline void give(PhaseAccount& account, RoundReport& round, Role role, uint64_t ns) {
  account.roles[static_cast<size_t>(role)].per_round.add(ns);
  account.roles[static_cast<size_t>(role)].switches += 1;
  round.role_ns[static_cast<size_t>(role)] += ns;
}

/// `rounds` decode rounds after `prompt_tokens`; `attention_ns(position)` may depend on the context, experts
/// take 400 us, waiting 300 us, sampling 50 us, unattributed 1 us. Times jitter by about 1 %.
inline ProfileRun made_up_run(const std::string& name, int prompt_tokens, int rounds,
                              const std::function<double(int)>& attention_ns, uint64_t seed = 1) {
  ProfileRun run;
  run.prompt = name;
  run.text_tokens = run.prompt_tokens = prompt_tokens;
  run.new_tokens = rounds + 1;
  uint64_t now = 1'000'000, draw = 0;
  const auto jitter = [&](double ns) {
    return static_cast<uint64_t>(ns * (0.99 + 0.02 * random_unit(seed, draw++)));
  };
  for (int i = 0; i < rounds; ++i) {
    RoundReport round;
    round.index = static_cast<uint64_t>(i);
    round.phase = Phase::decode;
    round.begin_ns = now;
    give(run.decode, round, Role::attention, jitter(attention_ns(prompt_tokens + i)));
    give(run.decode, round, Role::experts_hit, jitter(400'000));
    give(run.decode, round, Role::expert_wait, jitter(300'000));
    give(run.decode, round, Role::sample, jitter(50'000));
    give(run.decode, round, Role::unattributed, 1'000);
    for (const uint64_t ns : round.role_ns) now += ns;
    round.end_ns = now;
    round.rows = round.lanes = 1;
    round.tokens = 1;
    run.decode.rounds.add(round.end_ns - round.begin_ns);
    run.decode.wall_ns += round.end_ns - round.begin_ns;
    run.decode.rows += 1;
    run.decode.tokens += 1;
    run.decode.experts.hits += 24;
    run.decode.experts.misses += 8;
    run.decode.experts.reads += 16;
    run.decode.experts.bytes_read += 16 * 65'536;
    run.decode.experts.read_busy_ns += 450'000;
    run.decode.worker_busy_ns += 800'000;
    run.decode.worker_barrier_ns += 80'000;
    run.decode.tasks += 10;
    run.rounds.push_back(round);
  }
  return run;
}

inline Profile made_up_profile() {
  Profile profile;
  profile.settings.model = "made-up.gguf";
  profile.settings.device = "cpu: 2 threads";
  profile.settings.threads = 2;
  profile.settings.processors = 8;
  profile.settings.context = 2048;
  profile.settings.experts = 32;
  profile.settings.experts_used = 4;
  profile.settings.slots = 8;
  profile.settings.budget_bytes = 100u << 20;
  profile.settings.plan_bytes = 90u << 20;
  profile.settings.slot_level_bytes = 4u << 20;
  const auto attention = [](int) { return 250'000.0; };
  profile.runs = {made_up_run("short", 60, 64, attention, 1), made_up_run("long", 1900, 64, attention, 2)};
  profile.curve = {
      {8, 750, 250, 800, 300}, {10, 800, 200, 850, 250}, {16, 900, 100, 950, 150}, {32, 1000, 0, 1000, 100}};
  profile.counted.hits = 800;
  profile.counted.misses = 300;
  return profile;
}

}  // namespace weir::lab
