// What a person and a program read of a ledger: the text report, the line every N rounds, the JSON document.
// The figures derived from an account have one definition, here, shared by all of them. Must not touch the
// account.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "ledger/ledger.h"

namespace weir {

/// Figures derived from one phase's account; 0 where the divisor is 0.
struct PhaseFigures {
  double tokens_per_second = 0;
  double coverage = 0;               ///< share of wall charged to a named role, 0..1
  double hit_rate = 0;               ///< hits / (hits + misses), 0..1
  double bytes_per_token = 0;        ///< bytes read from disk
  double read_bytes_per_second = 0;  ///< bytes read over the time with at least one read in flight
  uint64_t exposed_read_ns = 0;      ///< the role expert_wait
  uint64_t hidden_read_ns = 0;       ///< read busy time less exposed, floor 0
  double barrier_share = 0;          ///< of all workers' time inside tasks, 0..1
};
PhaseFigures phase_figures(const PhaseAccount& account);

/// Exact quantiles of the round time over the phase's rounds that are still in the ring.
struct RoundQuantiles {
  size_t rounds = 0;  ///< how many that were
  double p50_ns = 0, p90_ns = 0, p99_ns = 0;
};
RoundQuantiles round_quantiles(const Ledger& ledger, Phase phase);

/// The report for stderr, several lines, each ended. Deterministic: phases and roles in the order of their
/// tables.
std::string report_text(const Ledger& ledger);

/// One line (not ended) on the last log_every rounds of the phase that filed the last round, as far as the
/// ring kept them. Empty where no round was filed.
std::string round_line(const Ledger& ledger);

/// Call after each end_round: writes round_line to stderr where one is due. Null: does nothing.
void log_round_line(const Ledger* ledger);

/// The report as JSON (docs/ledger.md has the schema), keys in a fixed order.
nlohmann::ordered_json ledger_json(const Ledger& ledger);
/// The same as text, indented by two, ended by a newline.
std::string report_json(const Ledger& ledger);

}  // namespace weir
