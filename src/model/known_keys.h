// The keys of an architecture that no configuration read: mere description, a computation that weir does not
// do, or unknown. The one list of what other engines and converters know; a family that computes one of them
// reads it and thereby takes it out of here.
#pragma once

#include <string>
#include <vector>

#include "model/architecture_keys.h"
#include "model/config.h"

namespace weir {

struct UnreadKeys {
  /// Keys that change the computation and do not have the value that leaves it as it is:
  /// "qwen3.attention.causal is false, which is not supported: expected true". In the order of their names.
  std::vector<std::string> refused;
  /// Keys not on the list: "qwen3.frobnication is unknown and has no effect".
  std::vector<std::string> unknown;
};

/// Judges each "<arch>.*" key of the file that `keys` was never asked for.
UnreadKeys judge_unread(const ArchitectureKeys& keys, const ModelConfig& config);

}  // namespace weir
