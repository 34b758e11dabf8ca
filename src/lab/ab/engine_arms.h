// Arms that are option sets of the engine. An opening is alone: the other arm's engine is closed before it,
// as it would be in a process of its own, unless each arm is opened once, when both stay. Every run is one
// generation with the ledger on.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "base/args.h"
#include "engine/engine.h"
#include "lab/ab/conduct.h"
#include "lab/ab/memory_meter.h"
#include "lab/prompts.h"

namespace weir::lab::ab {

struct EngineArm {
  EngineOptions options;
  ScopedEnvironment::Settings environment;  ///< while the arm opens, loads and runs
};

class EngineArms final : public Runner {
 public:
  /// Opens both arms, which plans and loads nothing. `design` holds what the user asked for; what follows
  /// from the model and the prompts is filled in. Throws Error (input) that names the arm: it does not fit
  /// alone, a prompt does not fit its context. Frozen prompts are cut to the smaller context instead.
  /// `room_bytes`: what the machine leaves for both.
  EngineArms(std::array<EngineArm, 2> arms, const std::vector<Prompt>& prompts, Design& design,
             uint64_t room_bytes, const std::atomic<bool>* cancel);

  Setting setting() const;
  /// The prompts as arm A runs them.
  const std::vector<FittedPrompt>& prompts() const { return arms_[0].prompts; }
  std::optional<Observation> observe(const PlannedRun& run) override;
  bool can_stay_open() const override { return can_stay_open_; }

 private:
  struct Arm {
    EngineArm given;
    std::unique_ptr<Engine> engine;
    std::vector<FittedPrompt> prompts;
    ArmFacts facts;
    int opening = -1;  ///< of `engine`, which is loaded then
  };
  /// The engine without its weights.
  void open(Side side);
  void close(Side side);
  void cut_alike();
  /// Opens and loads the arm for its next opening.
  bool reopen(const PlannedRun& run);
  std::optional<Observation> measure(const PlannedRun& run);
  /// Brings the arm to the start that the policy asks for. False where it was interrupted.
  bool prepare(Arm& arm, const PlannedRun& run);
  Result generate(Arm& arm, const PlannedRun& run);

  std::array<Arm, 2> arms_;
  const Design& design_;
  const std::atomic<bool>* cancel_;
  MemoryMeter meter_;
  bool can_stay_open_ = false;
  uint64_t model_bytes_ = 0;
};

}  // namespace weir::lab::ab
