// The observations file: one experiment as JSON (docs/ab.md has the fields), rewritten as a whole after every
// run so that whatever interrupts leaves a readable one. Owns the format; judges nothing.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "lab/ab/experiment.h"

namespace weir::lab::ab {

nlohmann::ordered_json to_json(const Experiment& experiment);
/// Throws Error (input) that names `source` and the field where something is missing, of the wrong type or
/// out of range.
Experiment from_json(const nlohmann::ordered_json& json, const std::string& source);

/// Replaces the file. Throws Error (failure).
void write_observations(const Experiment& experiment, const std::string& path);
/// Throws Error (input): no such file, no JSON, not an experiment.
Experiment read_observations(const std::string& path);

}  // namespace weir::lab::ab
