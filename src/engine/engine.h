// The engine: one model, one device, a fixed number of lanes that share rounds. Opening it happens in two
// steps, so that the plan can be shown (or asked for alone) before a byte of weights is read. Used from one
// thread.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "device/device.h"
#include "engine/kv.h"
#include "engine/lane.h"
#include "engine/request.h"
#include "engine/sampler.h"
#include "experts/cache.h"
#include "experts/plan.h"
#include "experts/resident.h"
#include "experts/runner.h"
#include "ledger/ledger.h"
#include "model/family.h"
#include "text/tokenizer.h"

namespace weir {

struct EngineOptions {
  std::string model;
  std::string device = "cpu";            ///< or "cuda:N"
  std::optional<Arithmetic> arithmetic;  ///< none: fast on a GPU, portable (the only one) on the CPU
  std::optional<uint64_t> vram;          ///< --vram; none: what is free on the device, less a reserve
  bool graphs = true;                    ///< false: the device records no rounds; the same bits
  int threads = 0;                       ///< 0: the processors this process may use (available_processors)
  Isa isa = Isa::automatic;
  std::optional<uint64_t> memory;      ///< --memory; none: what the machine leaves (choose_budget)
  std::optional<int> expert_slots;     ///< per layer
  std::optional<ExpertPolicy> policy;  ///< none: lfu
  int context = 0;  ///< 0: the smaller of the model's and 4096, or what the budget holds of it
  int lanes = 1;
  int prefill_chunk = 0;  ///< rows; 0: 512 (on a GPU 2,048), less where the budget is tight
  ReaderOptions reader;
  LedgerOptions ledger;
  int new_tokens = 0;  ///< of the longest request; 0: unknown. A ledger that fits itself has rings for them
  std::string_view text;            ///< to be tokenised: the plan counts it; read by the constructor alone
  std::string route_trace;          ///< file, or empty
  uint64_t landing_order_seed = 0;  ///< tests: see ExpertRunner
  std::function<std::unique_ptr<Device>()> make_device;  ///< tests: a device of their own
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
  /// What opening these options with `budget` bytes as --memory would plan: this context, as many slots as
  /// fit, and the prefill rounds that such a budget is worth, where none were asked for. Loads and changes
  /// nothing. Throws as make_plan does. Not for a device that has all experts in memory of its own.
  ResidencyPlan plan_for(uint64_t budget) const;
  const EngineOptions& options() const { return options_; }  ///< with defaults filled in
  int context() const { return options_.context; }
  Arithmetic arithmetic() const { return *options_.arithmetic; }
  /// "cpu: 2 threads, avx2; experts: io_uring, unbuffered".
  std::string description() const;
  Ledger* ledger() { return ledger_paused_ ? nullptr : ledger_.get(); }  ///< null: off
  /// Switches an open ledger off and on again, as if the engine had been opened without it: for measuring its
  /// cost. Only while no request is open.
  void pause_ledger(bool paused);
  /// The device records its rounds anew (Device::forget_recordings). Only while no request is open.
  void forget_recordings();
  /// Expert traffic since load(). Where the device routes itself, it waits for it.
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
  /// take_finished(). Throws what a device or a request's callback threw: all open requests have failed with
  /// it then, and those that wait go on with the next step.
  bool step();
  std::vector<Result> take_finished();
  /// Submits, steps until it is finished, returns its result.
  Result run(Request request);

 private:
  friend class Round;
  /// Whether the model lives in memory of the device's own, which has a plan of its own.
  bool on_device() const { return device_memory_.has_value(); }
  PlanRequest plan_request(int chunk) const;
  DevicePlanRequest device_plan_request(int chunk) const;
  int rows_of(int chunk) const;
  /// Activations, scratch, batch and logits, in the device's memory.
  uint64_t working_bytes(int rows, int context) const;
  ScratchNeeds scratch_needs(int rows, int context) const;
  using RequestOfChunk = std::function<PlanRequest(int chunk)>;
  bool chunk_fits(const PlanRequest& request, int chunk) const;
  /// The chunk asked for, or the widest that the request's budget is worth; in today's context.
  int choose_chunk(const RequestOfChunk& request) const;
  ResidencyPlan make_plan_of(const RequestOfChunk& request) const;
  /// The chunk that takes least, in today's context.
  int narrowest_chunk() const;
  bool context_fits(int context);
  void shrink_context();
  int choose_chunk() const;
  void choose_plan();

  // instruments.cpp: what observing takes, and that it takes no slots where it need not.
  /// What a plan comes to: all that a run's speed and length hang on.
  struct Setting {
    int context = 0, chunk = 0, slots = 0;
    bool operator==(const Setting&) const = default;
  };
  /// With another budget, or without instruments; nothing where it does not fit. This engine stays as it is.
  enum class Observed : uint8_t { no, yes };
  std::optional<Setting> setting_with(uint64_t budget, Observed observed);
  void plan_instruments(PlanRequest& request, int rows) const;
  /// The sizes that the ledger's rings may have, in equal steps from the least to what the run can fill.
  struct Rings {
    static constexpr int steps = 64;
    int least_rounds = 0, rounds = 0, least_spans = 0, spans = 0;
  };
  Rings rings() const;
  void size_rings(const Rings& rings, int step);
  /// Chooses the rings. One line where instruments cost slots, rows or context all the same; or empty.
  std::string fit_instruments();
  std::string instrument_cost(const Setting& with);
  /// --memory's value for the smallest budget found that keeps `setting` with the instruments; or empty.
  std::string budget_that_keeps(const Setting& setting);
  void load_experts(DeviceLoader* loader, int rows);
  void open_trace();
  std::vector<float> rope_factors();  ///< of the file, or empty
  void load_rope_table();
  std::vector<std::string> paths() const;
  /// Buffered reads hold pages until they are dropped behind them: looks now and then, while one is in
  /// flight, how many there are, in at most 0.5 % of the time.
  void watch_page_cache();
  /// Throws Error (input) where the request cannot be served.
  void check_request(const Request& request) const;
  void stop_idle_clock();
  bool any_open() const;

  EngineOptions options_;
  std::unique_ptr<Ledger> ledger_;
  bool ledger_paused_ = false;
  std::unique_ptr<Device> device_;  // before every owner of a Buffer: destroyed after them
  gguf::Model model_;
  std::unique_ptr<Family> family_;
  std::unique_ptr<Tokenizer> tokenizer_;
  ExpertStore store_;
  std::unique_ptr<ExpertReader> reader_;
  std::optional<DeviceMemory> device_memory_;
  Budget budget_;
  uint64_t text_bytes_ = 0, prompt_bytes_ = 0;  ///< what tokenising the text takes, with it; the text alone
  bool context_asked_ = false, observed_ = true;
  int wanted_context_ = 0;  ///< where it had to shrink
  int asked_chunk_ = 0;     ///< --prefill-chunk; 0: chosen here
  ResidencyPlan plan_;

  Weights weights_;
  std::unique_ptr<KvCache> kv_;
  Buffer rope_;
  RopeTable rope_table_;
  std::unique_ptr<ExpertCache> cache_;  ///< on the CPU
  ResidentExperts resident_experts_;    ///< on a device that routes itself
  std::unique_ptr<ExpertRunner> runner_;
  std::unique_ptr<RouteTraceWriter> trace_;
  std::unique_ptr<class Round> round_;

  std::vector<Lane> lanes_;
  std::vector<Token> end_tokens_;
  std::deque<Lane> waiting_;
  std::vector<Result> finished_;
  int next_id_ = 0;
  uint64_t peak_page_cache_ = 0, next_look_ns_ = 0;
};

}  // namespace weir
