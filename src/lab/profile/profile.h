// What a profile is made of: settings and one account per prompt. Plain data: measured by measure.cpp, judged
// by analysis.cpp and levers.cpp, printed by the reports, made up by tests.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "experts/plan.h"
#include "experts/policy.h"
#include "ledger/ledger.h"

namespace weir::lab {

/// One prompt's generation.
struct ProfileRun {
  std::string prompt;
  int text_tokens = 0;    ///< of the whole text
  int prompt_tokens = 0;  ///< evaluated: fewer where the text was cut to the context
  int new_tokens = 0;     ///< the first comes from prefill, so decode timed one step less
  uint64_t tokens_hash = 0;
  PhaseAccount prefill, decode;
  std::vector<RoundReport> rounds;  ///< decode's, in order: round i evaluated position prompt_tokens + i
};

struct ProfileSettings {
  std::string model, device;  ///< path; "cpu: 2 threads, avx2; experts: io_uring, unbuffered"
  bool on_gpu = false;
  std::string arithmetic = "portable";
  int threads = 1, processors = 1;
  int context = 0, new_tokens = 0;
  uint64_t seed = 0;
  float temperature = 0, top_p = 0;
  int top_k = 0;
  // Experts; 0 for a dense model.
  int experts = 0, experts_used = 0, slots = 0, expert_layers = 0;
  ExpertPolicy policy = ExpertPolicy::lfu;
  uint64_t budget_bytes = 0, plan_bytes = 0;
  uint64_t slot_level_bytes = 0;  ///< one more slot on every layer
};

/// Slot traffic of the recorded routing, replayed from empty slots.
struct SlotTraffic {
  int slots = 0;
  uint64_t hits = 0, misses = 0;  ///< of decode rounds
  uint64_t all_hits = 0, all_misses = 0;
};

struct Profile {
  ProfileSettings settings;
  std::vector<ProfileRun> runs;
  std::vector<SlotTraffic> curve;  ///< increasing slots, those in use among them; empty for a dense model
  ExpertCounters counted;          ///< by the engine, over all that the routing recorded
  MemoryUse memory;
};

}  // namespace weir::lab
