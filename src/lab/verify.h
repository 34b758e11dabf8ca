// weir verify: runs one prompt set through settings that must not change a token or a logit, and compares
// hashes with the base cell. Pure comparison over engines; printing is the caller's.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "engine/engine.h"

namespace weir::lab {

struct VerifyPrompt {
  std::string name;
  std::vector<Token> tokens;
};

/// One setting of the matrix.
struct VerifyCell {
  std::string name;  ///< "threads 2"
  EngineOptions options;
  bool together = false;  ///< all prompts at once in lanes of one engine, instead of one after the other
};

struct VerifyOutcome {
  std::string cell;
  std::vector<std::string> prompts;
  std::vector<uint64_t> tokens_hash, logits_hash;  ///< per prompt
  std::vector<std::vector<Token>> tokens;
  ExpertCounters experts;
};

/// What differs from the base outcome, one line each; empty where all is equal.
std::vector<std::string> differences(const VerifyOutcome& base, const VerifyOutcome& outcome);

/// The matrix for a model: threads, prefill chunk, slots, policy, I/O, landing order, lanes, ledger,
/// instruction set. The first cell is the base. `base` carries the user's own settings (memory, context).
std::vector<VerifyCell> verify_matrix(const EngineOptions& base, const Engine& probe);

/// Runs one cell: greedy, `n` new tokens a prompt.
VerifyOutcome run_cell(const VerifyCell& cell, const std::vector<VerifyPrompt>& prompts, int n);

}  // namespace weir::lab
