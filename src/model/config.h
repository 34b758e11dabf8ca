// The numbers of a model that the rest of the engine plans with, read from a file's metadata and checked.
#pragma once

#include <cstdint>
#include <string>

#include "model/rope.h"

namespace weir {

class ArchitectureKeys;

/// No published model has a tenth of it: keeps a corrupt block_count from being believed.
inline constexpr int64_t most_layers = 10'000;

struct ModelConfig {
  std::string architecture;  ///< general.architecture: the prefix of its keys
  int layers = 0;
  int64_t hidden = 0;
  int heads = 0, kv_heads = 0, head_dim = 0;
  int vocab = 0;
  int context = 0;  ///< the model's own limit
  float eps = 0;    ///< RMS norm
  double rope_base = 0;
  int n_rot = 0;
  RopeScaling rope_scaling;
  int64_t ff = 0;              ///< dense feed-forward width, 0 where there is none
  int experts = 0, top_k = 0;  ///< 0 for dense models
  int64_t expert_ff = 0;
};

/// The keys every transformer has. Throws Error (input) naming file, key and value where one is missing or
/// unusable.
ModelConfig read_common_config(ArchitectureKeys& keys);
/// expert_count, expert_used_count, expert_feed_forward_length (absent: feed_forward_length /
/// expert_used_count, as files from before that key mean it). Call after read_common_config.
void read_expert_config(ArchitectureKeys& keys, ModelConfig& config);

}  // namespace weir
