// Arms that are option sets of the engine. Both stay loaded where the machine has room for both; else each
// run opens and loads its arm, so that neither has an advantage. Every run is one generation with the ledger
// on.
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

namespace weir::lab::ab {

struct EngineArm {
  EngineOptions options;
  ScopedEnvironment::Settings environment;  ///< while the arm opens, loads and runs
};

struct PromptText {
  std::string name, text;
};

class EngineArms final : public Runner {
 public:
  /// Opens both arms, which plans and loads nothing. `design` holds what the user asked for; what follows
  /// from the model and the prompts is filled in. Throws Error (input) that names the arm: it does not fit
  /// alone, a prompt does not fit its context. `room_bytes`: what the machine leaves for both.
  EngineArms(std::array<EngineArm, 2> arms, std::vector<PromptText> prompts, Design& design,
             uint64_t room_bytes, const std::atomic<bool>* cancel);

  Setting setting() const;
  std::optional<Observation> observe(const PlannedRun& run) override;

 private:
  struct Arm {
    EngineArm given;
    std::unique_ptr<Engine> engine;
    std::vector<std::vector<Token>> prompts;
    ArmFacts facts;
    bool loaded = false;
  };
  void open(Side side);
  void prepare_engine(Side side);
  void tokenise(Side side, const std::vector<PromptText>& prompts);
  std::optional<Observation> measure(const PlannedRun& run);
  /// Brings the arm to the start that the policy asks for. False where it was interrupted.
  bool prepare(Arm& arm, const PlannedRun& run);
  Result generate(Arm& arm, const PlannedRun& run);

  std::array<Arm, 2> arms_;
  const Design& design_;
  const std::atomic<bool>* cancel_;
  MemoryMeter meter_;
  bool both_resident_ = true;
  uint64_t model_bytes_ = 0;
};

}  // namespace weir::lab::ab
