// A round: the rows of all lanes that share one forward pass. step() names every phase; open this file first.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "device/device.h"
#include "engine/engine.h"

namespace weir {

class Round {
 public:
  explicit Round(Engine& engine);
  /// Bytes of the buffers below: for the plan.
  static uint64_t bytes(int max_rows, int vocab);
  /// One round. False where no lane is open and none is waiting.
  bool step();

 private:
  /// A row whose logits are wanted.
  struct Output {
    int row = 0, lane = 0, position = 0;
    bool sample = false;  ///< the lane's newest row: its logits decide the next token
    bool show = false;    ///< the request asked to see them
  };

  void admit();
  bool compose();
  void add_rows(Lane& lane, int index, int count);
  void upload();
  void forward();
  /// The flag that all lanes of this round share, or null: only then may a pass end early.
  const std::atomic<bool>* shared_cancel() const;
  void drop_cancelled();
  void fail_lanes();
  void decide();
  void decide_slice(std::span<const Output> outputs);
  void show(const Lane& lane, const Output& output, std::span<const float> logits);
  void sample(Lane& lane, const Output& output, std::span<float> logits);
  void deliver(Lane& lane, Token token);
  void close_finished();
  void close_account();
  void finish(Lane& lane, Finish why);
  void fail(Lane& lane, const std::string& why);
  void fail_not_finite(Lane& lane, int position, int64_t token);

  Engine& e_;
  Phase phase_ = Phase::prefill;
  bool prefilled_last_ = false;
  int lanes_in_round_ = 0;
  std::vector<int32_t> token_, position_, lane_;
  std::vector<Output> outputs_;
  std::vector<RowFault> faults_;
  std::vector<float> host_logits_;  // [head_rows, vocab]
  std::vector<int32_t> index_;
  Buffer device_token_, device_position_, device_lane_, device_index_, logits_;
  Sampler sampler_;
};

}  // namespace weir
