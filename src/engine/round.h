// A round: the rows of all lanes that share one forward pass. step() names every phase; open this file first.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "device/device.h"
#include "engine/engine.h"

namespace weir {

class Round {
 public:
  explicit Round(Engine& engine);
  /// Bytes of the buffers below, in the device's memory and in the host's: for the plan.
  static uint64_t device_bytes(int max_rows, int vocab, int end_tokens);
  static uint64_t host_bytes(int max_rows, int vocab);
  /// One round. False where no lane is open and none is waiting.
  bool step();
  /// step() threw `error`, a device's or a callback's: every open request fails with it, and the next round
  /// begins as if this one had never been.
  void give_up(const std::exception& error);

 private:
  /// A row whose logits are wanted.
  struct Output {
    int row = 0, lane = 0, position = 0;
    bool sample = false;  ///< the lane's newest row: its logits decide the next token
    bool show = false;    ///< the request asked to see them
    bool logits = false;  ///< they come to the host; else the device's choice alone does
    bool ban = false;     ///< end tokens are not to be chosen
    bool same_way(const Output& other) const { return logits == other.logits && ban == other.ban; }
  };

  void admit();
  bool compose();
  void add_rows(Lane& lane, int index, int count);
  bool needs_logits(const Lane& lane, const Output& output) const;
  void evaluate();
  std::optional<RecordKey> record_key() const;
  void upload();
  void forward(const std::atomic<bool>* cancel);
  void head(size_t first);
  std::span<const Output> slice(size_t first) const;
  /// The flag that all lanes of this round share, or null: only then may a pass end early.
  const std::atomic<bool>* shared_cancel() const;
  void drop_cancelled();
  void fail_lanes();
  void decide();
  void decide_slice(std::span<const Output> outputs);
  void decide_one(const Output& output, std::span<float> logits, const Choice& choice);
  void show(const Lane& lane, const Output& output, std::span<const float> logits);
  void take_lanes();
  Token sample(const Lane& lane, const Output& output, std::span<float> logits);
  void deliver(Lane& lane, Token token);
  void close_finished();
  void close_account();
  void finish(Lane& lane, Finish why);
  void fail(Lane& lane, const std::string& why);
  void fail_not_finite(Lane& lane, int position, int64_t token);
  const std::string& diagnose(const std::atomic<bool>* cancel);

  Engine& e_;
  Phase phase_ = Phase::prefill;
  bool prefilled_last_ = false;
  int lanes_in_round_ = 0;
  std::vector<int32_t> token_, position_, lane_;
  std::vector<LaneSpan> lane_spans_;
  std::vector<Output> outputs_;
  std::vector<RowFault> faults_;
  std::optional<std::string> diagnosis_;  ///< of the model's weights: they do not change
  Rows rows_;                             // of the batch, in device memory
  const int32_t* device_index_ = nullptr;
  // In the host's memory and in the device's: [rows] tokens, positions, lanes, then [outputs] their rows,
  // each as long as the round has them; [head_rows, vocab]; [head_rows].
  Buffer batch_, device_batch_;
  Buffer host_logits_, logits_;
  Buffer host_choices_, choices_;
  Buffer end_tokens_;  // in device memory
  Sampler sampler_;
};

}  // namespace weir
