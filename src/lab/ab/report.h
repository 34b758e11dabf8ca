// What a person and a program read of an experiment and its verdict. Made from the two alone, so that the
// report of stored observations is the one that was printed when they were made.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "lab/ab/judge.h"

namespace weir::lab::ab {

enum class Detail : uint8_t {
  summary,
  observations,  ///< and the order, and every run
};

/// One line, not ended: "verdict: B, --expert-policy lru, is faster, on 2 prompts". With what it does not
/// cover, where that is so.
std::string verdict_line(const Experiment& experiment, const Verdict& verdict);
/// Several lines, each ended; verdict_line() is the first and the last. A refused experiment gets reasons, no
/// ratio and no roles.
std::string report_text(const Experiment& experiment, const Verdict& verdict,
                        Detail detail = Detail::summary);
/// The same as JSON (docs/ab.md), the raw observations included.
nlohmann::ordered_json report_json(const Experiment& experiment, const Verdict& verdict);

}  // namespace weir::lab::ab
