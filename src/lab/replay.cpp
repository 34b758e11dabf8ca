// From a trace to demands, and demands through the engine's plan_fetch.
#include "lab/replay.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "base/stats.h"

namespace weir::lab {

namespace {

uint64_t sum_in(const std::array<uint64_t, phase_count>& by_phase, PhaseChoice choice) {
  if (choice) return by_phase[static_cast<size_t>(*choice)];
  return std::accumulate(by_phase.begin(), by_phase.end(), uint64_t{0});
}

/// The bytes and the waits that follow from a call's hits and misses.
void add_call(Traffic& traffic, const LayerDemand& demand, Phase phase, int hits, int misses,
              const WaitModel& wait) {
  const uint64_t bytes = static_cast<uint64_t>(misses) * demand.expert_bytes;
  traffic.hits += static_cast<uint64_t>(hits);
  traffic.misses += static_cast<uint64_t>(misses);
  traffic.bytes += bytes;
  traffic.read_ns += wait.read_ns(bytes);
  traffic.exposed_ns += wait.exposed_ns(bytes, hits, phase);
}

std::string phases_of(const Demand& demand) {
  std::string text;
  for (int p = 0; p < phase_count; ++p)
    if (const uint64_t tokens = demand.tokens[static_cast<size_t>(p)])
      text += fmt::format("{}{} ({} tokens)", text.empty() ? "" : ", ", phase_name(static_cast<Phase>(p)),
                          tokens);
  return text;
}

}  // namespace

Demand make_demand(const RouteTrace& trace) {
  const RouteTraceHeader& header = trace.header;
  Demand demand;
  demand.top_k = header.top_k;
  std::vector<size_t> index(header.experts.size(), 0);
  std::vector<std::array<uint64_t, phase_count>> rows;
  for (int l = 0; l < header.layers; ++l) {
    const auto i = static_cast<size_t>(l);
    if (header.experts[i] == 0) continue;
    index[i] = demand.layers.size();
    LayerDemand& layer = demand.layers.emplace_back();
    layer.layer = l;
    layer.experts = header.experts[i];
    layer.expert_bytes = header.expert_bytes[i];
  }
  rows.resize(demand.layers.size());
  std::array<std::optional<uint32_t>, phase_count> last_round{};
  ExpertDemand call;
  std::vector<int32_t> ids;
  for (const RouteRecord& record : trace.records) {
    const size_t i = index[static_cast<size_t>(record.layer)];
    LayerDemand& layer = demand.layers[i];
    ids.assign(record.ids.begin(), record.ids.end());
    count_demand(call, ids, layer.experts);
    const size_t begin = layer.needed.size();
    layer.needed.insert(layer.needed.end(), call.needed.begin(), call.needed.end());
    layer.uses.insert(layer.uses.end(), call.uses.begin(), call.uses.end());
    layer.calls.push_back({begin, layer.needed.size(), record.phase});
    const auto phase = static_cast<size_t>(record.phase);
    rows[i][phase] += static_cast<uint64_t>(record.rows);
    if (last_round[phase] != record.round) ++demand.rounds[phase];
    last_round[phase] = record.round;
  }
  // Every row passes every layer, so any layer could say how many tokens there were.
  for (const auto& layer : rows)
    for (size_t p = 0; p < layer.size(); ++p) demand.tokens[p] = std::max(demand.tokens[p], layer[p]);
  return demand;
}

const char* phase_choice_name(PhaseChoice choice) { return choice ? phase_name(*choice) : "all"; }
uint64_t tokens_in(const Demand& demand, PhaseChoice choice) { return sum_in(demand.tokens, choice); }
uint64_t rounds_in(const Demand& demand, PhaseChoice choice) { return sum_in(demand.rounds, choice); }

double WaitModel::read_ns(uint64_t bytes) const {
  if (bytes_per_second <= 0 || bytes == 0) return 0;
  return latency_ns + static_cast<double>(bytes) / bytes_per_second * 1e9;
}

double WaitModel::exposed_ns(uint64_t bytes, int hits, Phase phase) const {
  return std::max(0.0, read_ns(bytes) - hits * hidden_ns_per_hit[static_cast<size_t>(phase)]);
}

double Traffic::hit_rate() const { return ratio(hits, hits + misses); }

Traffic& Traffic::operator+=(const Traffic& other) {
  hits += other.hits;
  misses += other.misses;
  bytes += other.bytes;
  read_ns += other.read_ns;
  exposed_ns += other.exposed_ns;
  return *this;
}

Traffic replay_layer(const LayerDemand& demand, int slots, ExpertPolicy policy, PhaseChoice choice,
                     const WaitModel& wait) {
  LayerSlots state(demand.experts, std::min(slots, demand.experts));
  Traffic traffic;
  for (const DemandCall& call : demand.calls) {
    const FetchPlan plan = plan_fetch(state, demand.needed_by(call), demand.uses_by(call), policy);
    if (counts(choice, call.phase)) add_call(traffic, demand, call.phase, plan.hits, plan.misses, wait);
  }
  return traffic;
}

namespace {

constexpr size_t never = SIZE_MAX;

/// For each needed expert of each call: the layer's next call that needs it, where that call counts.
std::vector<size_t> next_uses(const LayerDemand& demand, PhaseChoice choice) {
  std::vector<size_t> next(demand.needed.size(), never);
  std::vector<size_t> of_expert(static_cast<size_t>(demand.experts), never);
  for (size_t c = demand.calls.size(); c-- > 0;) {
    const DemandCall& call = demand.calls[c];
    for (size_t i = call.begin; i < call.end; ++i) {
      size_t& later = of_expert[static_cast<size_t>(demand.needed[i])];
      next[i] = later;
      later = counts(choice, call.phase) ? c : never;
    }
  }
  return next;
}

/// Keeps the `room` experts that are needed soonest; those never needed again go in any case.
void keep_soonest(std::vector<int32_t>& kept, const std::vector<size_t>& next_use, size_t room) {
  const auto use = [&](int32_t e) { return next_use[static_cast<size_t>(e)]; };
  std::erase_if(kept, [&](int32_t e) { return use(e) == never; });
  if (kept.size() <= room) return;
  std::nth_element(kept.begin(), kept.begin() + static_cast<std::ptrdiff_t>(room), kept.end(),
                   [&](int32_t a, int32_t b) { return use(a) < use(b); });
  kept.resize(room);
}

}  // namespace

// Keeping an expert from one use to the next is an interval worth one hit (none where the next use does not
// count). Across a call, the kept intervals that do not touch it have the slots that its own experts leave.
// Wherever too many overlap, the one that ends last is given up: the optimum for intervals of equal worth,
// because it overlaps whatever comes as long as any other does.
Traffic optimum_layer(const LayerDemand& demand, int slots, PhaseChoice choice, const WaitModel& wait) {
  const auto room = static_cast<size_t>(std::min(slots, demand.experts));
  const std::vector<size_t> next = next_uses(demand, choice);
  std::vector<size_t> next_use(static_cast<size_t>(demand.experts), never);
  std::vector<uint8_t> needed(static_cast<size_t>(demand.experts), 0);
  std::vector<int32_t> kept;  // between calls
  Traffic traffic;
  for (const DemandCall& call : demand.calls) {
    const auto wanted = demand.needed_by(call);
    for (const int32_t e : wanted) needed[static_cast<size_t>(e)] = 1;
    const size_t before = kept.size();
    std::erase_if(kept, [&](int32_t e) { return needed[static_cast<size_t>(e)] != 0; });
    const size_t hits = before - kept.size();
    for (size_t i = call.begin; i < call.end; ++i) next_use[static_cast<size_t>(demand.needed[i])] = next[i];
    if (wanted.size() <= room) {
      keep_soonest(kept, next_use, room - wanted.size());
      kept.insert(kept.end(), wanted.begin(), wanted.end());
    } else {
      kept.insert(kept.end(), wanted.begin(), wanted.end());
      keep_soonest(kept, next_use, room);
    }
    for (const int32_t e : wanted) needed[static_cast<size_t>(e)] = 0;
    if (counts(choice, call.phase))
      add_call(traffic, demand, call.phase, static_cast<int>(hits), static_cast<int>(wanted.size() - hits),
               wait);
  }
  return traffic;
}

namespace {

std::vector<Traffic> by_layer(const Demand& demand, int slots, Contender contender, PhaseChoice choice,
                              const WaitModel& wait) {
  std::vector<Traffic> layers;
  for (const LayerDemand& layer : demand.layers)
    layers.push_back(contender.policy ? replay_layer(layer, slots, *contender.policy, choice, wait)
                                      : optimum_layer(layer, slots, choice, wait));
  return layers;
}

Traffic sum(const std::vector<Traffic>& layers) {
  Traffic total;
  for (const Traffic& layer : layers) total += layer;
  return total;
}

}  // namespace

Traffic replay_total(const Demand& demand, int slots, Contender contender, PhaseChoice choice,
                     const WaitModel& wait) {
  return sum(by_layer(demand, slots, contender, choice, wait));
}

std::vector<ReplayRow> replay(const Demand& demand, const ReplayOptions& options) {
  std::vector<int> slots = options.slots;
  std::sort(slots.begin(), slots.end());
  slots.erase(std::unique(slots.begin(), slots.end()), slots.end());
  std::vector<Contender> contenders;
  for (const ExpertPolicy policy : options.policies) contenders.push_back({policy});
  contenders.push_back({});
  std::vector<ReplayRow> rows;
  for (const int s : slots) {
    uint64_t memory = 0;
    for (const LayerDemand& layer : demand.layers)
      memory += static_cast<uint64_t>(std::min(s, layer.experts)) * layer.expert_bytes;
    for (const Contender& contender : contenders) {
      auto layers = by_layer(demand, s, contender, options.phase, options.wait);
      const Traffic total = sum(layers);
      rows.push_back({s, memory, contender, total, std::move(layers)});
    }
  }
  return rows;
}

uint64_t slots_memory(const RouteTraceHeader& header, int slots) {
  uint64_t bytes = 0;
  for (size_t l = 0; l < header.experts.size(); ++l)
    bytes += static_cast<uint64_t>(std::min(slots, header.experts[l])) * header.expert_bytes[l];
  return bytes;
}

int most_experts(const RouteTraceHeader& header) {
  return header.experts.empty() ? 0 : *std::max_element(header.experts.begin(), header.experts.end());
}

int slots_in_memory(const RouteTraceHeader& header, uint64_t bytes) {
  int slots = 0;
  while (slots < most_experts(header) && slots_memory(header, slots + 1) <= bytes) ++slots;
  return slots;
}

std::vector<int> default_slots(const RouteTraceHeader& header) {
  const int most = most_experts(header);
  std::vector<int> slots;
  for (const int times : {1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64})
    if (times * header.top_k < most) slots.push_back(times * header.top_k);
  slots.push_back(most);
  return slots;
}

void require_calls(const RouteTrace& trace, const std::string& name) {
  if (trace.records.empty())
    throw input_error("{}: the trace holds no routing; record one with weir run --route-trace FILE", name);
}

void require_same_model(const RouteTraceHeader& header, const std::string& name, const gguf::Model& model) {
  if (header.fingerprint != model.fingerprint())
    throw input_error("{}: recorded with another model (fingerprint {:016x}); {} has {:016x}", name,
                      header.fingerprint, model.path(), model.fingerprint());
}

PhaseChoice choose_phase(const Demand& demand, const std::string& name, const std::string& asked) {
  PhaseChoice choice;
  if (asked.empty()) {
    if (tokens_in(demand, Phase::decode) > 0) choice = Phase::decode;
    return choice;
  }
  if (asked == "all") return choice;
  for (int p = 0; p < phase_count; ++p)
    if (asked == phase_name(static_cast<Phase>(p))) choice = static_cast<Phase>(p);
  if (!choice) throw input_error("--phase '{}': expected prefill, decode, verify or all", asked);
  if (tokens_in(demand, choice) == 0)
    throw input_error("--phase {}: {} has no such round; it has {}", asked, name, phases_of(demand));
  return choice;
}

}  // namespace weir::lab
