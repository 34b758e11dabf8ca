// Runs one layer's routed experts for a batch: group rows by expert, plan, read all misses at once, compute
// the hits meanwhile, take misses as they land, add in increasing expert id. The one place where waiting for
// experts happens, and where it is charged. Knows no family.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "device/device.h"
#include "experts/cache.h"
#include "experts/resident.h"
#include "experts/route_trace.h"

namespace weir {

struct MoeArgs {
  int layer = 0;
  int rows = 0, top_k = 0;
  const float* x = nullptr;        ///< [rows, hidden], device
  float* h = nullptr;              ///< [rows, hidden], device: the sum over experts is added here
  const int32_t* ids = nullptr;    ///< [rows, top_k], device, increasing in each row
  const float* weights = nullptr;  ///< [rows, top_k], device
  Activation activation = Activation::swiglu;
};

/// Rows that could not be computed because a read failed, and why.
struct RowFault {
  int row;
  std::string message;
};

class ExpertRunner {
 public:
  /// `max_rows` bounds a batch; scratch for parts is allocated here (parts_bytes, for the plan).
  ExpertRunner(Device& device, const ExpertStore& store, ExpertCache& cache, int max_rows, int top_k);
  /// For a device that routes itself: nothing is planned, read or waited for, and the host sees no ids.
  ExpertRunner(Device& device, const ExpertStore& store, const ResidentExperts& resident, int max_rows,
               int top_k);
  static uint64_t parts_bytes(const ExpertStore& store, int max_rows, int top_k);

  /// Appends to `faults`; the other rows are complete and exact.
  void run(const MoeArgs& args, std::vector<RowFault>& faults);

  void set_trace(RouteTraceWriter* trace) { trace_ = trace; }
  /// Called ahead of every wait for a read: reads are in flight, and this thread has nothing to do.
  void set_on_wait(std::function<void()> look) { on_wait_ = std::move(look); }
  /// Since the start. Nothing for a device that routes itself: it counts (Device::expert_visits).
  const ExpertCounters& totals() const { return totals_; }
  /// Tests: misses are taken in the order of this seed instead of as they land.
  void set_landing_order_seed(uint64_t seed) { landing_seed_ = seed; }

 private:
  void run_resident(const MoeArgs& args);
  void group_pairs(const MoeArgs& args);
  std::span<const int32_t> pairs_of(int32_t expert) const;
  void run_wave(const MoeArgs& args, const Wave& wave, std::vector<RowFault>& faults);
  size_t take_landed(const MoeArgs& args, const Wave& wave, std::vector<RowFault>& faults);
  size_t wait_landed(const MoeArgs& args, const Wave& wave, std::vector<RowFault>& faults);
  void file_landed(const MoeArgs& args, const Wave& wave, int index, const Fault& fault,
                   std::vector<RowFault>& faults);
  void fail_rows(const MoeArgs& args, int32_t expert, const Fault& fault, std::vector<RowFault>& faults);
  void shuffle_landed();
  void compute(const MoeArgs& args, std::span<const Fetch> experts);
  void account(const FetchPlan& plan);

  Device& device_;
  const ExpertStore& store_;
  ExpertCache* cache_ = nullptr;               ///< one of
  const ResidentExperts* resident_ = nullptr;  ///< these two
  Buffer parts_;
  RouteTraceWriter* trace_ = nullptr;
  std::function<void()> on_wait_;
  ExpertCounters totals_;
  uint64_t landing_seed_ = 0;
  int max_rows_, top_k_;

  // Of the call under way; members so that a round allocates nothing once they have grown.
  std::vector<int32_t> ids_;
  ExpertDemand demand_;
  std::vector<int32_t> pairs_, pair_begin_, next_pair_;  ///< pairs by expert
  std::vector<ExpertPin> pins_;
  std::vector<Fetch> landed_;  ///< landed, not yet computed
  std::vector<ExpertWork> work_;
  std::vector<float> zeros_;
  uint64_t draws_ = 0;       ///< of landing_seed_'s stream
  uint64_t exposed_ns_ = 0;  ///< time waited, ledger on only
};

}  // namespace weir
