// What reading experts costs here and what it hides behind, for replay's predictions: measured on the model's
// own slices, or taken from a ledger that a run wrote. Knows nothing of slots.
#pragma once

#include <string>

#include "experts/reader.h"
#include "lab/replay.h"

namespace weir::lab {

struct ReadCost {
  double bytes_per_second = 0, latency_ns = 0;
  std::string how;  ///< for people: what was measured
};

/// Reads seeded random experts of the model through ExpertReader, one at a time and top_k at a time (a
/// layer's misses are in flight together), a few hundred in all but at most about half a GiB, and fits
/// latency + bytes / rate to the medians. Throws Error: input where the trace is of another model, failure
/// where a read fails.
ReadCost measure_read_cost(const std::string& model_path, const RouteTraceHeader& header,
                           const std::string& trace_name, const ReaderOptions& options);

/// From a file of --ledger-json.
struct LedgerFigures {
  std::array<double, phase_count> hidden_ns_per_hit{};  ///< time to compute one expert that was there
  double bytes_per_second =
      0;  ///< over the time with a read in flight, of the chosen phases; 0: nothing read
};
/// Throws Error (input) naming the file and what is missing from it.
LedgerFigures read_ledger_figures(const std::string& path, PhaseChoice choice);

}  // namespace weir::lab
