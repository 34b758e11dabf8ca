// Runs the prompts of a profile on an engine, ledger on, routing recorded.
#pragma once

#include <atomic>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "lab/profile/profile.h"
#include "lab/prompts.h"

namespace weir::lab {

struct ProfileRequest {
  int new_tokens = 128;
  uint64_t seed = 1;
  float temperature = 0.2f, top_p = 0.95f;
  int top_k = 64;
  const std::atomic<bool>* cancel = nullptr;
  std::function<void()> on_token;  ///< for progress: each new token
};

/// `options` with what a profile needs: the ledger, with room for every round of one generation, and the
/// routing of MoE models recorded in `route_trace`.
EngineOptions profile_engine_options(EngineOptions options, const ProfileRequest& request,
                                     const std::string& route_trace);

ProfileSettings profile_settings(const Engine& engine, const ProfileRequest& request);

/// One generation that the ledger accounted for, exactly request.new_tokens long. Nothing where it was
/// cancelled. Throws Error (failure) where it failed.
std::optional<ProfileRun> run_prompt(Engine& engine, const FittedPrompt& prompt,
                                     const ProfileRequest& request);

/// After an uncounted prefill of the first prompt: each prompt once, then the replay of the recorded routing.
/// The engine is loaded, with options from profile_engine_options; its trace is closed. Nothing where it was
/// cancelled.
std::optional<Profile> measure_profile(Engine& engine, const std::vector<FittedPrompt>& prompts,
                                       const ProfileRequest& request);

}  // namespace weir::lab
