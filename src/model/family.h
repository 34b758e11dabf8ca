// A model family: which tensors it needs, and its forward pass written in Device operations so that it reads
// like the diagram. One file each under families/, one row each in family.cpp. A family does no I/O: resident
// weights are given to it, routed experts go through the ExpertRunner.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "device/device.h"
#include "experts/runner.h"
#include "experts/store.h"
#include "gguf/reader.h"
#include "model/architecture_keys.h"
#include "model/config.h"
#include "model/operation_probe.h"
#include "model/weights.h"

namespace weir {

/// What a forward pass runs on. Everything is the engine's; rows.count is at most the max_rows given to
/// bind().
struct ForwardArgs {
  Rows rows;
  std::span<const KvLayer> kv;  ///< one per layer
  RopeTable rope;
  ExpertRunner* experts = nullptr;  ///< null for dense models
  std::vector<RowFault>* faults = nullptr;
  OperationProbe* probe = nullptr;  ///< null: nobody looks
  /// Set: the pass ends after the layer it is in, and its results are void. Null: it always runs to its end.
  const std::atomic<bool>* cancel = nullptr;
  bool cancelled() const { return cancel && cancel->load(std::memory_order_relaxed); }
};

class Family {
 public:
  /// Reads the configuration and checks every tensor it will use (presence, shape, block format), then that
  /// the file holds nothing else that matters: each tensor must be used, each key of the architecture read or
  /// without effect. Loads nothing. Throws Error (input) naming file and field, also for an architecture
  /// without a family.
  static std::unique_ptr<Family> create(const gguf::Model& model);
  struct Verdict {
    std::vector<std::string> objections;  ///< every reason for which create() would refuse, a line each
    std::vector<std::string> warnings;    ///< as warnings(), where the file got that far
  };
  /// What create() would say; never throws for what is in the file.
  static Verdict examine(const gguf::Model& model);
  /// "qwen3moe, qwen3": for messages.
  static std::string supported();
  static bool supports(std::string_view architecture);

  virtual ~Family() = default;
  const ModelConfig& config() const { return config_; }
  /// Lines for the user: keys of the architecture that nobody knows.
  const std::vector<std::string>& warnings() const { return warnings_; }
  /// Throws Error where a tokenizer of so many tokens has ids beyond the embedding's rows.
  void require_rows(const gguf::Model& model, int tokens) const;
  /// Tensors to keep in memory.
  const std::vector<const gguf::Tensor*>& resident() const { return resident_; }
  /// Routed experts, per layer (empty for a dense layer).
  const std::vector<std::vector<ExpertStore::Named>>& expert_tensors() const { return experts_; }

  /// Bytes of activations for batches of max_rows rows: for the plan.
  virtual uint64_t activation_bytes(int max_rows) const = 0;
  /// What the device must reserve for batches of max_rows rows and heads of head_rows rows.
  virtual ScratchNeeds scratch_needs(int max_rows) const = 0;
  /// Resolves weights and allocates activations. Call once, before forward().
  virtual void bind(Device& device, const Weights& weights, int max_rows) = 0;

  /// Walks the layers; the residual stream stays inside until head().
  virtual void forward(const ForwardArgs& args) = 0;
  /// logits[i, :] of the last forward's row index[i], i < count; index in device memory, count <= head_rows.
  virtual void head(const int32_t* index, int count, float* logits) = 0;

  /// Rows a head() call takes at most: bounds the logits buffer.
  static constexpr int head_rows = 16;

 protected:
  /// Adds a resident tensor after checking its shape; vectors must be F32, matrices computable. One that the
  /// family may do without is looked up with Model::find first. What a family reads but names in no need_
  /// call (a table it computes with on the host) is handed to use(): a tensor that is neither is refused.
  void need_vector(const gguf::Model& model, const std::string& name, int64_t n);
  void need_matrix(const gguf::Model& model, const std::string& name, int64_t in, int64_t out);
  /// Shows the residual stream to the probe, where there is one.
  void show(const ForwardArgs& args, Device& device, Operation operation, int layer, float* h) const {
    if (args.probe) args.probe->after(device, operation, layer, h, config_.hidden);
  }
  /// token_embd, output (where untied), output_norm; rope_freqs where the file has it.
  void need_ends(const gguf::Model& model);
  /// A layer's attention as AttentionBlock takes it, and the norm before its feed-forward.
  void need_attention(const gguf::Model& model, int layer);
  /// Adds a layer's routed experts: gate and up (or gate_up fused) and down.
  void need_experts(const gguf::Model& model, int layer);
  void use(const gguf::Tensor& tensor) { used_.insert(&tensor); }

  ModelConfig config_;
  std::vector<const gguf::Tensor*> resident_;
  std::vector<std::vector<ExpertStore::Named>> experts_;

 private:
  static std::unique_ptr<Family> make(const gguf::Model& model, std::vector<std::string>& objections);
  std::vector<std::string> unused_tensors(const gguf::Model& model) const;

  std::set<const gguf::Tensor*> used_;
  std::vector<std::string> warnings_;
};

// Each reads its configuration through `keys`, of the same model.
std::unique_ptr<Family> make_qwen3moe(const gguf::Model& model, ArchitectureKeys& keys);
std::unique_ptr<Family> make_qwen3(const gguf::Model& model, ArchitectureKeys& keys);

}  // namespace weir
