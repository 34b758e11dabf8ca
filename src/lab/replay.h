// Replays a recorded routing through the slots without running the model: the engine's own grouping and
// plan_fetch for the policies, and the offline optimum that none of them can beat. Pure functions of a trace;
// prints nothing, reads no model.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "experts/policy.h"
#include "experts/route_trace.h"
#include "gguf/reader.h"

namespace weir::lab {

/// One call of a layer's experts. Its demand is needed[begin, end) of the layer.
struct DemandCall {
  size_t begin = 0, end = 0;
  Phase phase = Phase::prefill;
};

/// What a layer was asked for, call by call: rows grouped as the engine groups them.
struct LayerDemand {
  int layer = 0, experts = 0;
  uint64_t expert_bytes = 0;
  std::vector<int32_t> needed, uses;  ///< all calls, one after the other
  std::vector<DemandCall> calls;
  std::span<const int32_t> needed_by(const DemandCall& c) const { return span(needed, c); }
  std::span<const int32_t> uses_by(const DemandCall& c) const { return span(uses, c); }

 private:
  static std::span<const int32_t> span(const std::vector<int32_t>& all, const DemandCall& c) {
    return std::span(all).subspan(c.begin, c.end - c.begin);
  }
};

struct Demand {
  int top_k = 0;
  std::vector<LayerDemand> layers;  ///< those with routed experts
  std::array<uint64_t, phase_count> tokens{}, rounds{};
};
Demand make_demand(const RouteTrace& trace);

/// Which calls are reported; every call is replayed. None: all.
using PhaseChoice = std::optional<Phase>;
inline bool counts(PhaseChoice choice, Phase phase) { return !choice || *choice == phase; }
const char* phase_choice_name(PhaseChoice choice);  ///< "decode", "all"
uint64_t tokens_in(const Demand& demand, PhaseChoice choice);
uint64_t rounds_in(const Demand& demand, PhaseChoice choice);

/// What a call's reads cost and what they hide behind (docs/replay.md): reading takes
/// latency + bytes / rate, and the call's hits are computed meanwhile.
struct WaitModel {
  double bytes_per_second = 0;  ///< 0: unknown, and nothing is predicted
  double latency_ns = 0;        ///< of a call that reads anything
  std::array<double, phase_count> hidden_ns_per_hit{};
  double read_ns(uint64_t bytes) const;
  double exposed_ns(uint64_t bytes, int hits, Phase phase) const;
};

struct Traffic {
  uint64_t hits = 0, misses = 0, bytes = 0;
  double read_ns = 0, exposed_ns = 0;  ///< predicted; 0 without a rate
  double hit_rate() const;
  Traffic& operator+=(const Traffic& other);
};

/// A policy, or the optimum.
struct Contender {
  std::optional<ExpertPolicy> policy;  ///< none: the Belady bound
  const char* name() const { return policy ? policy_name(*policy) : "belady"; }
  bool operator==(const Contender&) const = default;
};

/// One layer's calls through `slots` slots (at most its experts are used).
Traffic replay_layer(const LayerDemand& demand, int slots, ExpertPolicy policy, PhaseChoice choice,
                     const WaitModel& wait = {});
/// The most hits that any choice of victims could have in the calls of `choice`, knowing the future. A call's
/// experts lie in slots together where they fit, as in the engine; where they do not, any of them and of
/// those that were there may stay.
Traffic optimum_layer(const LayerDemand& demand, int slots, PhaseChoice choice, const WaitModel& wait = {});

struct ReplayOptions {
  std::vector<int> slots;  ///< each at least top_k
  std::vector<ExpertPolicy> policies{ExpertPolicy::lfu, ExpertPolicy::lru};
  PhaseChoice phase;
  WaitModel wait;
};

struct ReplayRow {
  int slots = 0;
  uint64_t memory_bytes = 0;  ///< of the experts in the slots of all layers
  Contender contender;
  Traffic total;
  std::vector<Traffic> layers;  ///< as Demand::layers
};

/// Ordered by slots; in each the policies as given, then the bound.
std::vector<ReplayRow> replay(const Demand& demand, const ReplayOptions& options);
/// The sum over layers.
Traffic replay_total(const Demand& demand, int slots, Contender contender, PhaseChoice choice,
                     const WaitModel& wait = {});

/// Experts' bytes with that many slots in each layer.
uint64_t slots_memory(const RouteTraceHeader& header, int slots);
/// The most slots whose experts fit into `bytes`; 0 where not even one a layer does.
int slots_in_memory(const RouteTraceHeader& header, uint64_t bytes);
int most_experts(const RouteTraceHeader& header);
/// Multiples of top_k up to every expert of the largest layer.
std::vector<int> default_slots(const RouteTraceHeader& header);

/// Throws Error (input) where the trace holds no call, `name` being its path.
void require_calls(const RouteTrace& trace, const std::string& name);
/// Throws Error (input) where the trace was recorded with another model.
void require_same_model(const RouteTraceHeader& header, const std::string& name, const gguf::Model& model);
/// `asked`, or decode where there is any and everything otherwise. Throws Error (input) naming the phases
/// that the trace has where the asked one is missing.
PhaseChoice choose_phase(const Demand& demand, const std::string& name, const std::string& asked);

}  // namespace weir::lab
