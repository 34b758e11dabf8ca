// The engine: one model, one device, a fixed number of lanes that share rounds. Opening it happens in two
// steps, so that the plan can be shown (or asked for alone) before a byte of weights is read. Used from one
// thread.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "device/device.h"
#include "engine/kv.h"
#include "engine/lane.h"
#include "engine/request.h"
#include "engine/sampler.h"
#include "experts/cache.h"
#include "experts/plan.h"
#include "experts/runner.h"
#include "ledger/ledger.h"
#include "model/family.h"
#include "text/tokenizer.h"

namespace weir {

struct EngineOptions {
  std::string model;
  int threads = 0;  ///< 0: the processors this process may use
  Isa isa = Isa::automatic;
  std::optional<uint64_t> memory;   ///< --memory; none: what the machine leaves (choose_budget)
  std::optional<int> expert_slots;  ///< per layer
  ExpertPolicy policy = ExpertPolicy::lfu;
  int context = 0;  ///< 0: the smaller of the model's and 4096
  int lanes = 1;
  int prefill_chunk = 0;  ///< rows; 0: 512, less where the budget is tight
  ReaderOptions reader;
  LedgerOptions ledger;
  uint64_t text_bytes = 0;          ///< size of the text to be tokenised: counted in the plan
  std::string route_trace;          ///< file, or empty
  uint64_t landing_order_seed = 0;  ///< tests: see ExpertRunner
  OperationProbe* probe = nullptr;  ///< sees the residual stream between operations; must outlive the engine
};

class Engine {
 public:
  /// Reads the header, checks the model, makes the plan; throws Error for what cannot work. Loads nothing.
  explicit Engine(const EngineOptions& options);
  ~Engine();
  /// Reads the resident weights and allocates everything the plan names.
  void load();

  const gguf::Model& model() const { return model_; }
  const ModelConfig& config() const { return family_->config(); }
  const Tokenizer& tokenizer() const { return *tokenizer_; }
  const ResidencyPlan& plan() const { return plan_; }
  const EngineOptions& options() const { return options_; }  ///< with defaults filled in
  int context() const { return options_.context; }
  /// "cpu: 2 threads, avx2; experts: io_uring, unbuffered".
  std::string description() const;
  Ledger* ledger() { return ledger_paused_ ? nullptr : ledger_.get(); }  ///< null: off
  /// Switches an open ledger off and on again, as if the engine had been opened without it: for measuring its
  /// cost. Only while no request is open.
  void pause_ledger(bool paused);
  /// Expert traffic since load().
  ExpertCounters expert_counters() const;
  /// What the slots hold now. Nothing for a model without experts.
  SlotsState expert_slots() const;
  /// Empties every slot, and what the policy remembers. Only while no request is open.
  void reset_experts();
  MemoryUse memory_use() const;
  /// Completes the route trace's file; nothing where there is none.
  void close_trace();

  /// A request was accepted (before its text is tokenised): the ledger's clock starts. submit() does it where
  /// no one has.
  void start_clock();
  /// Queues a request; it gets a lane when one is free. Throws Error (input) where it cannot be served: an
  /// empty prompt, a token outside the vocabulary, a prompt that does not fit the context.
  int submit(Request request);
  /// One round for all open lanes. False where there was nothing to do. Finished requests are in
  /// take_finished().
  bool step();
  std::vector<Result> take_finished();
  /// Submits, steps until it is finished, returns its result.
  Result run(Request request);

 private:
  friend class Round;
  PlanRequest plan_request(int chunk) const;
  void choose_plan();
  void load_rope_table();

  EngineOptions options_;
  std::unique_ptr<Ledger> ledger_;
  bool ledger_paused_ = false;
  std::unique_ptr<Device> device_;  // before every owner of a Buffer: destroyed after them
  gguf::Model model_;
  std::unique_ptr<Family> family_;
  std::unique_ptr<Tokenizer> tokenizer_;
  ExpertStore store_;
  std::unique_ptr<ExpertReader> reader_;
  Budget budget_;
  ResidencyPlan plan_;

  Weights weights_;
  std::unique_ptr<KvCache> kv_;
  Buffer rope_;
  RopeTable rope_table_;
  std::unique_ptr<ExpertCache> cache_;
  std::unique_ptr<ExpertRunner> runner_;
  std::unique_ptr<RouteTraceWriter> trace_;
  std::unique_ptr<class Round> round_;

  std::vector<Lane> lanes_;
  std::vector<Token> end_tokens_;
  std::deque<Lane> waiting_;
  std::vector<Result> finished_;
  int next_id_ = 0;
};

}  // namespace weir
