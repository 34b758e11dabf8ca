// A lane: one open request with its span of the KV cache, its tokens so far and how far they have been
// evaluated.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/hash.h"
#include "engine/request.h"

namespace weir {

struct Lane {
  bool open = false;
  int id = -1;
  Request request;
  std::vector<Token> tokens;  ///< the prompt, then what was generated
  int prompt_n = 0;
  int evaluated = 0;  ///< positions whose keys and values are in the cache
  int steps = 0;      ///< Timings::steps
  uint64_t accepted_ns = 0, first_token_ns = 0, last_token_ns = 0;
  Hash64 tokens_hash, logits_hash;
  Result result;

  bool prefilling() const { return open && evaluated < prompt_n; }
  bool decoding() const { return open && evaluated >= prompt_n; }
  int pending() const { return static_cast<int>(tokens.size()) - evaluated; }
};

}  // namespace weir
