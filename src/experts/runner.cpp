// One layer's routed experts from ids to the sum: grouping, waves, waiting, and what is charged to whom.
#include "experts/runner.h"

#include <algorithm>

#include "base/clock.h"
#include "base/random.h"

namespace weir {
namespace {

/// Experts computed at a time: after each group the reader is looked at, so that a deep queue of reads keeps
/// moving while a wide batch is computed. One row's experts are one group.
constexpr size_t group_experts = 16;

int64_t widest_hidden(const ExpertStore& store) {
  int64_t hidden = 0;
  for (int l = 0; l < store.layers(); ++l) hidden = std::max(hidden, store.layer(l).hidden);
  return hidden;
}

}  // namespace

ExpertRunner::ExpertRunner(Device& device, const ExpertStore& store, ExpertCache& cache, int max_rows,
                           int top_k)
    : device_(device), store_(store), cache_(&cache), max_rows_(max_rows), top_k_(top_k) {
  parts_ = device.allocate(std::max<uint64_t>(parts_bytes(store, max_rows, top_k), 1), "expert outputs");
  pair_begin_.resize(static_cast<size_t>(store.most_experts()) + 1);
  zeros_.resize(static_cast<size_t>(widest_hidden(store)));
}

ExpertRunner::ExpertRunner(Device& device, const ExpertStore& store, const ResidentExperts& resident,
                           int max_rows, int top_k)
    : device_(device), store_(store), resident_(&resident), max_rows_(max_rows), top_k_(top_k) {}

uint64_t ExpertRunner::parts_bytes(const ExpertStore& store, int max_rows, int top_k) {
  return static_cast<uint64_t>(max_rows) * static_cast<uint64_t>(top_k) *
         static_cast<uint64_t>(widest_hidden(store)) * sizeof(float);
}

void ExpertRunner::run(const MoeArgs& args, std::vector<RowFault>& faults) {
  WEIR_CHECK(args.rows <= max_rows_ && args.top_k <= top_k_, "{} rows of {}, top {} of {}", args.rows,
             max_rows_, args.top_k, top_k_);
  if (args.rows == 0) return;
  if (resident_) return run_resident(args);
  exposed_ns_ = 0;
  device_.begin_role(Role::schedule);
  group_pairs(args);
  if (trace_) trace_->record(args.layer, ids_, args.rows);
  const FetchPlan plan = cache_->plan(args.layer, demand_.needed, demand_.uses);
  for (size_t w = 0; w < plan.waves.size(); ++w) {
    if (w > 0) {
      device_.begin_role(Role::schedule);
      device_.synchronize();  // hazard: the wave before may still be reading the slots that this one refills
    }
    run_wave(args, plan.waves[w], faults);
  }
  device_.begin_role(Role::experts_miss);
  device_.combine(
      {parts_.as<float>(), args.weights, args.h, args.rows, args.top_k, store_.layer(args.layer).hidden});
  account(plan);
}

void ExpertRunner::run_resident(const MoeArgs& args) {
  if (trace_) {
    ids_.resize(static_cast<size_t>(args.rows) * static_cast<size_t>(args.top_k));
    device_.download(ids_.data(), args.ids, ids_.size() * sizeof(int32_t));
    device_.synchronize();
    enter_role(device_.ledger(), Role::schedule);
    trace_->record(args.layer, ids_, args.rows);
  }
  device_.begin_role(Role::experts_hit);
  device_.routed_experts({resident_->bank(args.layer), args.x, args.h, args.rows, args.top_k, args.ids,
                          args.weights, args.activation});
}

/// Fills ids_, demand_ and pairs_: the pairs of expert e are pairs_[pair_begin_[e], pair_begin_[e + 1]).
void ExpertRunner::group_pairs(const MoeArgs& args) {
  const auto pairs = static_cast<size_t>(args.rows) * static_cast<size_t>(args.top_k);
  const auto experts = static_cast<size_t>(store_.layer(args.layer).experts);
  ids_.resize(pairs);
  device_.download(ids_.data(), args.ids, pairs * sizeof(int32_t));
  count_demand(demand_, ids_, static_cast<int>(experts));
  pair_begin_[0] = 0;
  for (size_t e = 0; e < experts; ++e) pair_begin_[e + 1] = pair_begin_[e] + demand_.count[e];
  pairs_.resize(pairs);
  next_pair_.assign(pair_begin_.begin(), pair_begin_.end());
  for (size_t p = 0; p < pairs; ++p)
    pairs_[static_cast<size_t>(next_pair_[static_cast<size_t>(ids_[p])]++)] = static_cast<int32_t>(p);
}

std::span<const int32_t> ExpertRunner::pairs_of(int32_t expert) const {
  const auto begin = static_cast<size_t>(pair_begin_[static_cast<size_t>(expert)]);
  const auto end = static_cast<size_t>(pair_begin_[static_cast<size_t>(expert) + 1]);
  return std::span(pairs_).subspan(begin, end - begin);
}

/// Hits while the misses are read, then whatever has landed, until the wave is complete.
void ExpertRunner::run_wave(const MoeArgs& args, const Wave& wave, std::vector<RowFault>& faults) {
  pins_.clear();
  for (const Fetch& hit : wave.hits) pins_.push_back(cache_->pin(args.layer, hit.slot));
  cache_->submit(args.layer, wave);
  landed_.clear();
  size_t taken = 0;
  if (!wave.hits.empty()) {
    device_.begin_role(Role::experts_hit);
    for (size_t i = 0; i < wave.hits.size(); i += group_experts) {
      compute(args, std::span(wave.hits).subspan(i, std::min(group_experts, wave.hits.size() - i)));
      taken += take_landed(args, wave, faults);
    }
  }
  if (landing_seed_ != 0) {
    while (taken < wave.misses.size()) taken += wait_landed(args, wave, faults);
    shuffle_landed();
  }
  while (taken < wave.misses.size() || !landed_.empty()) {
    if (landing_seed_ == 0) taken += take_landed(args, wave, faults);
    if (landed_.empty() && taken < wave.misses.size()) taken += wait_landed(args, wave, faults);
    if (landed_.empty()) continue;  // what came was a fault
    device_.begin_role(Role::experts_miss);
    const size_t limit = landing_seed_ == 0 ? group_experts : 1 + random_u64(landing_seed_, draws_++) % 3;
    const size_t count = std::min(landed_.size(), limit);
    for (size_t i = 0; i < count; ++i) pins_.push_back(cache_->pin(args.layer, landed_[i].slot));
    compute(args, std::span(landed_).first(count));
    landed_.erase(landed_.begin(), landed_.begin() + static_cast<ptrdiff_t>(count));
  }
  pins_.clear();
}

/// Takes the misses that have landed, without waiting; returns how many reads were over, faults included.
size_t ExpertRunner::take_landed(const MoeArgs& args, const Wave& wave, std::vector<RowFault>& faults) {
  size_t taken = 0;
  Fault fault;
  for (int i; (i = cache_->next_landed(false, fault)) >= 0; ++taken)
    file_landed(args, wave, i, fault, faults);
  return taken;
}

/// Blocks until a miss lands. The only place where this thread waits for experts.
size_t ExpertRunner::wait_landed(const MoeArgs& args, const Wave& wave, std::vector<RowFault>& faults) {
  device_.begin_role(Role::expert_wait);
  if (on_wait_) on_wait_();
  const uint64_t begin = device_.ledger() ? now_ns() : 0;
  Fault fault;
  const int i = cache_->next_landed(true, fault);
  if (device_.ledger()) exposed_ns_ += now_ns() - begin;
  WEIR_CHECK(i >= 0, "layer {}: a miss is missing", args.layer);
  file_landed(args, wave, i, fault, faults);
  return 1;
}

void ExpertRunner::file_landed(const MoeArgs& args, const Wave& wave, int index, const Fault& fault,
                               std::vector<RowFault>& faults) {
  const Fetch& miss = wave.misses[static_cast<size_t>(index)];
  if (fault) {
    fail_rows(args, miss.expert, fault, faults);
  } else {
    landed_.push_back(miss);
  }
}

/// The rows that need the expert fail; its outputs become zeros, so that nothing left over from another batch
/// enters a sum.
void ExpertRunner::fail_rows(const MoeArgs& args, int32_t expert, const Fault& fault,
                             std::vector<RowFault>& faults) {
  const auto hidden = static_cast<size_t>(store_.layer(args.layer).hidden);
  for (const int32_t pair : pairs_of(expert)) {
    device_.upload(parts_.as<float>() + static_cast<size_t>(pair) * hidden, zeros_.data(),
                   hidden * sizeof(float));
    const int row = pair / args.top_k;
    const bool known =
        std::any_of(faults.begin(), faults.end(), [&](const RowFault& f) { return f.row == row; });
    if (!known)
      faults.push_back({row, fmt::format("layer {} expert {}: {}", args.layer, expert, fault.message)});
  }
}

void ExpertRunner::shuffle_landed() {
  for (size_t i = landed_.size(); i > 1; --i)
    std::swap(landed_[i - 1], landed_[random_u64(landing_seed_, draws_++) % i]);
}

void ExpertRunner::compute(const MoeArgs& args, std::span<const Fetch> experts) {
  work_.clear();
  for (const Fetch& e : experts) {
    const ExpertCache::Weights w = cache_->weights(args.layer, e.expert, e.slot);
    work_.push_back({w.gate, w.up, w.down, pairs_of(e.expert)});
  }
  device_.experts({work_, args.x, args.top_k, args.activation, parts_.as<float>()});
}

void ExpertRunner::account(const FetchPlan& plan) {
  ExpertCounters delta = cache_->reader().take_counters();
  delta.hits = static_cast<uint64_t>(plan.hits);
  delta.misses = static_cast<uint64_t>(plan.misses);
  totals_.hits += delta.hits;
  totals_.misses += delta.misses;
  totals_.bytes_read += delta.bytes_read;
  totals_.reads += delta.reads;
  totals_.read_busy_ns += delta.read_busy_ns;
  Ledger* ledger = device_.ledger();
  if (!ledger) return;
  ledger->expert_traffic(delta);
  if (delta.read_busy_ns > exposed_ns_) ledger->hidden(Role::expert_wait, delta.read_busy_ns - exposed_ns_);
}

}  // namespace weir
