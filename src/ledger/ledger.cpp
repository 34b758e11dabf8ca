// The account itself: charging, filing rounds, the rings, delay injection and the switch's values. Additivity
// rests on one rule: only charge() moves mark_ns_, and it adds exactly what it moved by to one role. Must not
// format or print (report.cpp) and must not allocate after construction.
#include "ledger/ledger.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <system_error>

#include "base/error.h"
#include "base/log.h"
#include "base/random.h"
#include "ledger/trace.h"

namespace weir {
namespace {

void add(ExpertCounters& to, const ExpertCounters& from) {
  to.hits += from.hits;
  to.misses += from.misses;
  to.bytes_read += from.bytes_read;
  to.reads += from.reads;
  to.read_busy_ns += from.read_busy_ns;
}

/// The value of a decimal number that fits an int and is not negative, else -1.
int parse_count(const std::string& text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool whole = error == std::errc() && end == text.data() + text.size();
  return whole && text[0] != '-' ? value : -1;
}

/// Of a full or part-full ring, by age: 0 is the oldest.
template <typename T>
const T& by_age(const std::vector<T>& ring, size_t next, size_t kept, size_t i) {
  const size_t oldest = kept < ring.size() ? 0 : next;
  return ring[(oldest + i) % ring.size()];
}

template <typename T>
std::vector<T> oldest_first(const std::vector<T>& ring, size_t next, size_t kept) {
  std::vector<T> ordered;
  ordered.reserve(kept);
  for (size_t i = 0; i < kept; ++i) ordered.push_back(by_age(ring, next, kept, i));
  return ordered;
}

}  // namespace

void Tally::add(uint64_t ns) {
  ++count;
  sum_ns += ns;
  min_ns = std::min(min_ns, ns);
  max_ns = std::max(max_ns, ns);
  const size_t bucket = ns == 0 ? 0 : static_cast<size_t>(std::bit_width(ns)) - 1;
  ++histogram[std::min(bucket, histogram.size() - 1)];
}

int parse_ledger_flag(const std::string& value) {
  const int every = parse_count(value);
  if (every < 0)
    throw input_error("--ledger '{}': give a positive integer N (a line every N decode rounds) or 0 (off)",
                      value);
  return every;
}

int parse_ledger_environment(const char* value) {
  if (value == nullptr || *value == '\0') return 0;
  const int every = parse_count(value);
  if (every >= 0) return every;
  warn("WEIR_LEDGER='{}': not a positive integer or 0; the ledger stays off", value);
  return 0;
}

Ledger::Ledger(const LedgerOptions& options) : options_(options) {
  WEIR_CHECK(options.ring_rounds > 0 && options.ring_spans > 0, "rounds {} spans {}", options.ring_rounds,
             options.ring_spans);
  ring_.resize(static_cast<size_t>(options.ring_rounds));
  if (options.trace) spans_.resize(static_cast<size_t>(options.ring_spans));
}

uint64_t Ledger::bytes(const LedgerOptions& options) {
  const auto rounds = static_cast<uint64_t>(options.ring_rounds) * sizeof(RoundReport);
  if (!options.trace) return sizeof(Ledger) + rounds;
  return sizeof(Ledger) + rounds + trace_write_bytes +
         static_cast<uint64_t>(options.ring_spans) * (sizeof(Span) + trace_index_bytes);
}

void Ledger::begin_generation(Role role) {
  if (running_) end_generation();
  // Read first: clearing is part of accepting the request.
  mark_ns_ = generation_begin_ns_ = round_begin_ns_ = options_.clock();
  current_generation_.fill(PhaseAccount{});
  clear_pending();
  next_round_ = next_span_ = rounds_kept_ = spans_kept_ = 0;
  rounds_dropped_ = spans_dropped_ = 0;
  in_round_ = injected_ = line_due_ = false;
  round_phase_ = Phase::prefill;
  current_ = role;
  ++pending_[static_cast<int>(role)].switches;
  running_ = true;
}

void Ledger::end_generation() {
  if (!running_) return;
  charge(options_.clock());
  file_tail(current_generation_[static_cast<int>(round_phase_)]);
  file_tail(cumulative_[static_cast<int>(round_phase_)]);
  clear_pending();
  running_ = in_round_ = false;
}

void Ledger::begin_round(Phase phase) {
  WEIR_CHECK(running_ && !in_round_, "running {} in a round {}", running_, in_round_);
  in_round_ = true;
  injected_ = line_due_ = false;
  injected_ns_ = 0;
  round_phase_ = phase;
}

const RoundReport& Ledger::end_round(int rows, int lanes) {
  WEIR_CHECK(running_ && in_round_, "running {} in a round {}", running_, in_round_);
  charge(options_.clock());
  RoundReport& round = next_in_ring();
  round.index = round_index_++;
  round.phase = round_phase_;
  round.begin_ns = round_begin_ns_;
  round.end_ns = mark_ns_;
  round.rows = rows;
  round.lanes = lanes;
  const int implied = round_phase_ == Phase::verify ? lanes : rows;
  const bool counted = pending_tokens_ != 0 && round_phase_ != Phase::prefill;
  round.tokens = counted ? pending_tokens_ : static_cast<uint64_t>(implied);
  round.injected = injected_;
  round.injected_ns = injected_ns_;
  for (int r = 0; r < role_count; ++r) round.role_ns[r] = pending_[r].ns;
  round.experts = pending_experts_;

  PhaseAccount& account = current_generation_[static_cast<int>(round_phase_)];
  file_round(account, round);
  file_round(cumulative_[static_cast<int>(round_phase_)], round);
  clear_pending();
  round_begin_ns_ = mark_ns_;
  in_round_ = false;
  line_due_ = options_.log_every > 0 && round_phase_ != Phase::prefill &&
              account.rounds.count % static_cast<uint64_t>(options_.log_every) == 0;
  return round;
}

void Ledger::enter(Role role) {
  if (running_) charge(options_.clock());
  current_ = role;
  ++pending_[static_cast<int>(role)].switches;
  if (role == options_.inject_role) [[unlikely]]
    spin_injected_delay();
}

void Ledger::charge_to(Role role, uint64_t until) {
  pending_[static_cast<int>(role)].ns += until - mark_ns_;
  if (options_.trace && until != mark_ns_) push_span({mark_ns_, until, 0, 0, static_cast<uint16_t>(role), 0});
  mark_ns_ = until;
}

void Ledger::charge_device(std::span<const DeviceSpan> spans) {
  WEIR_CHECK(current_ == Role::gap, "device spans in {}", role_name(current_));
  if (!running_) return;
  const uint64_t now = options_.clock();
  for (const DeviceSpan& span : spans) {
    ++pending_[static_cast<int>(span.role)].switches;
    charge_to(Role::gap, std::clamp(span.begin_ns, mark_ns_, now));
    charge_to(span.role, std::clamp(span.end_ns, mark_ns_, now));
  }
  charge_to(Role::gap, now);
}

void Ledger::spin_injected_delay() {
  if (!in_round_ || injected_ || !injects(round_index_)) return;
  injected_ = true;
  // mark_ns_ stays at the switch, so the next one charges the spin to this role.
  do {
    injected_ns_ = options_.clock() - mark_ns_;
  } while (injected_ns_ < options_.inject_ns);
}

uint64_t Ledger::device_delay_pending(Role* role) const {
  const bool on_device = role_lane(options_.inject_role) != LaneKind::host &&
                         options_.inject_role != Role::gap && options_.inject_role != Role::expert_wait;
  if (!on_device || !in_round_ || injected_ || !injects(round_index_)) return 0;
  *role = options_.inject_role;
  return options_.inject_ns;
}

uint64_t Ledger::take_device_delay(Role role) {
  Role pending = Role::unattributed;
  const uint64_t ns = device_delay_pending(&pending);
  if (ns == 0 || pending != role) return 0;
  injected_ = true;
  injected_ns_ = ns;
  return ns;
}

bool Ledger::injects(uint64_t round_index) const {
  return options_.inject_ns > 0 && (random_u64(options_.inject_seed, round_index) & 1) != 0;
}

void Ledger::inject(Role role, uint64_t ns, uint64_t seed) {
  WEIR_CHECK(!in_round_, "a delay for {} in the midst of a round", role_name(role));
  options_.inject_role = role;
  options_.inject_ns = ns;
  options_.inject_seed = seed;
}

void Ledger::expert_traffic(const ExpertCounters& delta) { add(pending_experts_, delta); }

void Ledger::imbalance(uint64_t busy_ns, uint64_t barrier_ns, uint64_t tasks) {
  pending_busy_ += busy_ns;
  pending_barrier_ += barrier_ns;
  pending_tasks_ += tasks;
}

void Ledger::read_span(uint64_t begin_ns, uint64_t end_ns, int layer, int expert, uint64_t bytes) {
  if (options_.trace) push_span({begin_ns, end_ns, bytes, expert, static_cast<uint16_t>(layer), 1});
}

void Ledger::push_span(const Span& span) {
  if (spans_kept_ == spans_.size())
    ++spans_dropped_;
  else
    ++spans_kept_;
  spans_[next_span_] = span;
  if (++next_span_ == spans_.size()) next_span_ = 0;
}

RoundReport& Ledger::next_in_ring() {
  if (rounds_kept_ == ring_.size())
    ++rounds_dropped_, ++cumulative_rounds_dropped_;
  else
    ++rounds_kept_;
  RoundReport& place = ring_[next_round_];
  if (++next_round_ == ring_.size()) next_round_ = 0;
  return place;
}

/// All but time: time is filed as a round or as a tail.
void Ledger::file_pending(PhaseAccount& account) const {
  for (int r = 0; r < role_count; ++r) {
    account.roles[r].switches += pending_[r].switches;
    account.roles[r].bytes += pending_[r].bytes;
    account.roles[r].hidden_ns += pending_[r].hidden_ns;
  }
  add(account.experts, pending_experts_);
  account.worker_busy_ns += pending_busy_;
  account.worker_barrier_ns += pending_barrier_;
  account.tasks += pending_tasks_;
}

void Ledger::file_round(PhaseAccount& account, const RoundReport& round) const {
  file_pending(account);
  const uint64_t wall = round.end_ns - round.begin_ns;
  account.rounds.add(wall);
  account.wall_ns += wall;
  account.rows += static_cast<uint64_t>(round.rows);
  account.tokens += round.tokens;
  account.injected_rounds += round.injected;
  for (int r = 0; r < role_count; ++r)
    if (pending_[r].ns != 0 || pending_[r].switches != 0) account.roles[r].per_round.add(pending_[r].ns);
}

void Ledger::file_tail(PhaseAccount& account) const {
  file_pending(account);
  const uint64_t tail = mark_ns_ - round_begin_ns_;
  account.wall_ns += tail;
  account.tail_ns += tail;
  for (int r = 0; r < role_count; ++r) account.roles[r].per_round.sum_ns += pending_[r].ns;
}

void Ledger::clear_pending() {
  pending_.fill(Pending{});
  pending_experts_ = {};
  pending_busy_ = pending_barrier_ = pending_tasks_ = pending_tokens_ = 0;
}

std::vector<RoundReport> Ledger::ring() const { return oldest_first(ring_, next_round_, rounds_kept_); }

std::vector<Span> Ledger::spans() const { return oldest_first(spans_, next_span_, spans_kept_); }

const RoundReport& Ledger::kept_round(size_t i) const { return by_age(ring_, next_round_, rounds_kept_, i); }

const Span& Ledger::kept_span(size_t i) const { return by_age(spans_, next_span_, spans_kept_, i); }

}  // namespace weir
