// What a person and a program read of an experiment and its verdict. Made from the two alone, so that the
// report of stored observations is the one that was printed when they were made.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "lab/ab/judge.h"

namespace weir::lab::ab {

/// Several lines, each ended. A refused experiment gets reasons and raw observations, no ratio and no roles.
std::string report_text(const Experiment& experiment, const Verdict& verdict);
/// The same as JSON (docs/ab.md), the raw observations included.
nlohmann::ordered_json report_json(const Experiment& experiment, const Verdict& verdict);

/// Figures of one arm over its counted runs (null pairs included).
struct ArmSummary {
  int runs = 0;
  double median_value = 0;
  double hit_rate = 0;
  uint64_t median_bytes_read = 0, peak_bytes = 0;
};
ArmSummary summarise(const Experiment& experiment, Side arm);

}  // namespace weir::lab::ab
