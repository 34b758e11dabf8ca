// The timing ledger: every instant of a generation's wall time is charged once to a role (additive account);
// time hidden behind other work goes to a second, non-additive column. Knows no CUDA and no model. Off is a
// null pointer: the helpers below take `Ledger*` and cost one branch. On, a role switch is one clock read and
// a few adds; storage is fixed at start, nothing allocates or locks in a round. Used by the engine's one
// thread only.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "ledger/role.h"

namespace weir {

/// Count, sum, min, max and a log2 histogram of nanoseconds; fixed size.
struct Tally {
  uint64_t count = 0, sum_ns = 0, min_ns = UINT64_MAX, max_ns = 0;
  std::array<uint32_t, 40>
      histogram{};  ///< bucket b counts values in [2^b, 2^(b+1)) ns; bucket 0 also takes 0
  void add(uint64_t ns);
};

/// What one role did in one phase.
struct RoleAccount {
  Tally per_round;         ///< exposed time a round (rounds in which the role ran)
  uint64_t switches = 0;   ///< times the role was entered
  uint64_t bytes = 0;      ///< bytes its operations declared
  uint64_t hidden_ns = 0;  ///< ran behind other work: never added to wall
  bool ran() const { return per_round.sum_ns || switches || bytes || hidden_ns; }
};

/// Counters of expert traffic, per phase.
struct ExpertCounters {
  uint64_t hits = 0, misses = 0, bytes_read = 0, reads = 0;
  uint64_t read_busy_ns = 0;  ///< union of the times with at least one read in flight
};

/// One phase of a generation. sum over roles of per_round.sum_ns == wall_ns == rounds.sum_ns + tail_ns,
/// exactly.
struct PhaseAccount {
  Tally rounds;          ///< wall time per round
  uint64_t rows = 0;     ///< rows evaluated (prompt tokens; decode: one per lane and step)
  uint64_t tokens = 0;   ///< tokens the phase's speed counts: see Ledger::tokens
  uint64_t wall_ns = 0;  ///< equals the sum of all roles' sum_ns, unattributed included
  uint64_t tail_ns = 0;  ///< part of wall in no round: the last reply, a round that an error cut short
  uint64_t injected_rounds = 0;  ///< rounds lengthened by delay injection
  std::array<RoleAccount, role_count> roles{};
  ExpertCounters experts;
  uint64_t worker_busy_ns = 0, worker_barrier_ns = 0, tasks = 0;  ///< imbalance of the thread team
  bool empty() const { return wall_ns == 0 && rounds.count == 0; }
};

/// One round as the ring keeps it (for the trace and for the line every N rounds).
struct RoundReport {
  uint64_t index = 0;  ///< since the ledger was made
  Phase phase = Phase::prefill;
  uint64_t begin_ns = 0, end_ns = 0;  ///< begin: the end of the round before, or begin_generation
  int rows = 0, lanes = 0;
  uint64_t tokens = 0;
  bool injected = false;     ///< the delay of LedgerOptions::inject_ns was spun in this round
  uint64_t injected_ns = 0;  ///< how long that spin took: longer than asked where it lost the processor
  std::array<uint64_t, role_count> role_ns{};  ///< adds up to end_ns - begin_ns
  ExpertCounters experts;
};

/// A span on a track, for the Chrome trace (the last spans that fit; drops are counted).
struct Span {
  uint64_t begin_ns, end_ns;
  uint64_t value;  ///< bytes for reads, 0 for roles
  int32_t expert;  ///< of the layer, for reads; 0 for roles
  uint16_t name;   ///< Role for the role track; layer for reads
  uint8_t track;   ///< 0 roles, 1 expert reads
};

/// A stretch of a device's own work, its times moved to the host's clock.
struct DeviceSpan {
  Role role = Role::unattributed;
  uint64_t begin_ns = 0, end_ns = 0;
};

/// How well a device's clock is known on the host's.
struct DeviceClock {
  uint64_t tick_ns = 0;   ///< its smallest step
  uint64_t bound_ns = 0;  ///< a time of the device may be off by so much on the host's clock
};

struct LedgerOptions {
  bool enabled = false;
  int log_every = 0;         ///< a line on stderr each N decode rounds; 0 none
  int ring_rounds = 256;     ///< rounds kept
  int ring_spans = 1 << 16;  ///< spans kept when trace is on
  bool trace = false;
  /// The engine makes the rings smaller: no longer than the run, and less where slots would go for them.
  bool fit = false;
  uint64_t (*clock)() = &now_ns;  ///< replaced in tests only
  // Delay injection (test and what-if): spin inject_ns once in `inject_role` in about half of the rounds,
  // chosen by (inject_seed, round index). Tokens cannot change.
  Role inject_role = Role::unattributed;
  uint64_t inject_ns = 0;
  uint64_t inject_seed = 0;
};

/// Parses --ledger's value: a positive integer N (on, a line every N decode rounds) or 0 (off). Anything else
/// throws Error that names the value.
int parse_ledger_flag(const std::string& value);
/// Parses WEIR_LEDGER: unset, empty or 0 is off; a positive integer is on; anything else is off with one
/// warning that names the value.
int parse_ledger_environment(const char* value);

class Ledger {
 public:
  explicit Ledger(const LedgerOptions& options);
  /// Bytes a ledger with these options takes, all of them from the start, and what writing its trace takes at
  /// the end: for the plan.
  static uint64_t bytes(const LedgerOptions& options);

  // --- the account of a generation ---
  /// Clears the aggregates, the ring and the drop counters (cumulative counters stay) and starts the clock in
  /// `role`: a request was accepted, or a cached prompt is continued. A generation still running is ended
  /// first.
  void begin_generation(Role role = Role::tokenize);
  /// Stops the clock: the last token was delivered. Time until the next begin is not charged. What was
  /// charged since the last round goes to that round's phase as its tail (prefill where there was no round);
  /// so does a round that an error left open, under its own phase and uncounted.
  void end_generation();
  bool running() const { return running_; }

  /// A round starts now; what has been charged since the last end_round (tokenising, replying) belongs to it.
  void begin_round(Phase phase);
  /// Charges up to now, files the round and returns it. `lanes` and `rows` are the batch's.
  const RoundReport& end_round(int rows, int lanes);

  /// Switches the account to `role`: one clock read, charged to the role before.
  void enter(Role role);
  Role current() const { return current_; }
  /// Charges [last switch, now) after the fact, while the role is `gap`: each span (in order of time, cut to
  /// that interval) to its role, as one switch; what is before, between and after them to `gap`.
  void charge_device(std::span<const DeviceSpan> spans);
  /// Said in the reports.
  void set_device_clock(const DeviceClock& clock) { device_clock_ = clock; }
  const std::optional<DeviceClock>& device_clock() const { return device_clock_; }
  /// Tokens the lanes gained in the open round, where that is not what follows from the batch: without a call
  /// a prefill or decode round counts its rows and a verify round its lanes. Ignored in prefill, whose speed
  /// is in prompt rows.
  void tokens(uint64_t n) { pending_tokens_ += n; }
  /// Bytes an operation of the current role moves at least (weights and KV read): GB/s beside its time.
  void bytes(uint64_t n) { bytes_for(current_, n); }
  /// The same for a role that runs elsewhere, or will be charged later.
  void bytes_for(Role role, uint64_t n) { pending_[static_cast<int>(role)].bytes += n; }
  /// Time that ran behind other work, to the non-additive column of `role`.
  void hidden(Role role, uint64_t ns) { pending_[static_cast<int>(role)].hidden_ns += ns; }
  void expert_traffic(const ExpertCounters& delta);
  void imbalance(uint64_t busy_ns, uint64_t barrier_ns, uint64_t tasks);
  /// A finished read (for the trace); times from now_ns().
  void read_span(uint64_t begin_ns, uint64_t end_ns, int layer, int expert, uint64_t bytes);

  /// For a device that spins itself, where `role` begins: the delay that the open round is to have there,
  /// once a round; else 0. What is handed out counts as injected.
  uint64_t take_device_delay(Role role);
  /// What take_device_delay() would hand out in the open round, and to which role; 0: nothing, role
  /// untouched.
  uint64_t device_delay_pending(Role* role) const;
  /// Another delay to inject (LedgerOptions) from the next round on; 0 ns: none. Between rounds only.
  void inject(Role role, uint64_t ns, uint64_t seed);

  // --- reading ---
  const PhaseAccount& phase(Phase p) const { return current_generation_[static_cast<int>(p)]; }
  const PhaseAccount& cumulative(Phase p) const { return cumulative_[static_cast<int>(p)]; }
  uint64_t generation_wall_ns() const { return mark_ns_ - generation_begin_ns_; }  ///< up to the last switch
  /// Rounds of this generation that left the ring.
  uint64_t rounds_dropped() const { return rounds_dropped_; }
  uint64_t spans_dropped() const { return spans_dropped_; }
  uint64_t cumulative_rounds_dropped() const { return cumulative_rounds_dropped_; }
  /// True from the end of every log_every-th round of decode, and of verify, until the next round begins: a
  /// line is due (report.h writes it, outside the round).
  bool line_due() const { return line_due_; }
  std::vector<RoundReport> ring() const;  ///< oldest first
  std::vector<Span> spans() const;        ///< oldest first
  /// The same one by one, without a copy: 0 is the oldest.
  size_t rounds_kept() const { return rounds_kept_; }
  size_t spans_kept() const { return spans_kept_; }
  const RoundReport& kept_round(size_t i) const;
  const Span& kept_span(size_t i) const;
  const LedgerOptions& options() const { return options_; }
  /// The rounds (by index) in which the delay was injected, and in which it was not, are decided by this.
  bool injects(uint64_t round_index) const;

 private:
  struct Pending {
    uint64_t ns = 0, switches = 0, bytes = 0, hidden_ns = 0;
  };
  void charge(uint64_t now) { charge_to(current_, now); }
  void charge_to(Role role, uint64_t until);
  void push_span(const Span& span);
  void spin_injected_delay();
  RoundReport& next_in_ring();
  void file_pending(PhaseAccount& account) const;
  void file_round(PhaseAccount& account, const RoundReport& round) const;
  void file_tail(PhaseAccount& account) const;
  void clear_pending();

  LedgerOptions options_;
  bool running_ = false, in_round_ = false, injected_ = false, line_due_ = false;
  Role current_ = Role::unattributed;
  Phase round_phase_ = Phase::prefill;  // of the open round, else of the last one filed
  uint64_t mark_ns_ = 0;                // everything before is charged
  uint64_t generation_begin_ns_ = 0, round_begin_ns_ = 0, round_index_ = 0;
  // Charged but not filed yet: from the last end_round on.
  std::array<Pending, role_count> pending_{};
  ExpertCounters pending_experts_;
  uint64_t injected_ns_ = 0;  // of the open round
  uint64_t pending_busy_ = 0, pending_barrier_ = 0, pending_tasks_ = 0, pending_tokens_ = 0;
  std::optional<DeviceClock> device_clock_;
  std::array<PhaseAccount, phase_count> current_generation_{}, cumulative_{};
  // Rings of fixed size: next_* is the place to write, which holds the oldest once the ring is full.
  std::vector<RoundReport> ring_;
  std::vector<Span> spans_;
  size_t next_round_ = 0, next_span_ = 0, rounds_kept_ = 0, spans_kept_ = 0;
  uint64_t rounds_dropped_ = 0, spans_dropped_ = 0, cumulative_rounds_dropped_ = 0;
};

/// `ledger` may be null (off).
inline void enter_role(Ledger* ledger, Role role) {
  if (ledger) ledger->enter(role);
}

/// Enters a role for a scope and goes back to the one before.
class RoleScope {
 public:
  RoleScope(Ledger* ledger, Role role) : ledger_(ledger) {
    if (ledger_) before_ = ledger_->current(), ledger_->enter(role);
  }
  ~RoleScope() {
    if (ledger_) ledger_->enter(before_);
  }
  RoleScope(const RoleScope&) = delete;
  RoleScope& operator=(const RoleScope&) = delete;

 private:
  Ledger* ledger_;
  Role before_ = Role::unattributed;
};

}  // namespace weir
