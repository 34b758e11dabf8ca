// The slots: memory for experts on every MoE layer, filled by the reader as a FetchPlan says, handed out as
// pins. Owns slot memory and which expert lies where; knows no family and computes nothing.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "device/device.h"
#include "experts/policy.h"
#include "experts/reader.h"
#include "experts/store.h"

namespace weir {

class ExpertCache;

/// A slot that may not be refilled while this lives. Move-only.
class ExpertPin {
 public:
  ExpertPin() = default;
  ExpertPin(ExpertCache* cache, int layer, int32_t slot);
  ~ExpertPin();
  ExpertPin(ExpertPin&& other) noexcept;
  ExpertPin& operator=(ExpertPin&& other) noexcept;

 private:
  ExpertCache* cache_ = nullptr;
  int layer_ = 0;
  int32_t slot_ = -1;
};

/// What a cache holds, for comparing the starts of two runs.
struct SlotsState {
  uint64_t slots = 0, filled = 0;  ///< over all layers
  uint64_t fingerprint = 0;        ///< of which expert lies where and of what the policy remembers
};

class ExpertCache {
 public:
  /// slots[layer] per MoE layer (0 for dense layers). Memory comes from `device`; strides from `reader`.
  ExpertCache(Device& device, const ExpertStore& store, ExpertReader& reader, const std::vector<int>& slots,
              ExpertPolicy policy);
  ~ExpertCache();
  ExpertCache(const ExpertCache&) = delete;
  ExpertCache& operator=(const ExpertCache&) = delete;

  /// Bytes one slot of `layer` takes, for the plan: pure in the store and the alignment.
  static uint64_t slot_bytes(const ExpertLayer& layer, uint64_t alignment);

  /// Plans `needed` (increasing) for a layer; see plan_fetch.
  FetchPlan plan(int layer, std::span<const int32_t> needed, std::span<const int32_t> uses);
  /// Submits every miss of the wave. The hits' slots must be pinned by the caller; a miss's slot must not be:
  /// refilling a pinned slot is a bug of ours.
  /// Throws Error (failure) after reads that could not be completed.
  void submit(int layer, const Wave& wave);
  /// Waits for the next expert of the last submitted wave whose parts have all landed (in any order). Returns
  /// its index in wave.misses, or -1 where all have been returned. A fault empties the slot.
  int next_landed(bool wait, Fault& fault);
  ExpertPin pin(int layer, int32_t slot);
  /// The expert's matrices in its slot (after its bytes have landed).
  struct Weights {
    Matrix gate, up, down;
  };
  Weights weights(int layer, int32_t expert, int32_t slot) const;

  const LayerSlots& slots(int layer) const;
  SlotsState state() const;
  /// Every slot is empty and the policy remembers nothing, as after construction. Nothing may be pinned.
  void reset();
  uint64_t slot_memory_bytes() const;
  ExpertReader& reader() { return reader_; }

 private:
  friend class ExpertPin;
  struct Layer;
  struct Landing;
  void allocate_slots(Device& device, uint64_t alignment);
  void unpin(int layer, int32_t slot);
  void abandon() noexcept;  ///< waits for reads of a wave that nobody takes any more
  const ExpertStore& store_;
  ExpertReader& reader_;
  ExpertPolicy policy_;
  Buffer memory_;  ///< the slots of all layers, one layer behind the other
  std::vector<std::unique_ptr<Layer>> layers_;
  std::unique_ptr<Landing> landing_;
  bool broken_ = false;  ///< reads of an earlier wave are unaccounted for: no more are submitted
};

}  // namespace weir
