// weir verify: runs one prompt set through settings that must not change a token or a logit, compares hashes
// with the base cell, and finds the first operation that made a difference. Printing is the caller's.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "lab/trail.h"

namespace weir::lab {

struct VerifyPrompt {
  std::string name;
  std::vector<Token> tokens;
};

/// One setting of the matrix.
struct VerifyCell {
  std::string name;  ///< "threads 2"
  EngineOptions options;
  bool together = false;     ///< all prompts at once in lanes of one engine, instead of one after the other
  bool quick = true;         ///< belongs to the short matrix too
  bool tokens_only = false;  ///< asks for no logits and compares none: a GPU then chooses the tokens itself
  std::string reference{};   ///< the cell that it must equal, which comes before it; empty: the first
};

struct VerifyOutcome {
  std::string cell;
  std::vector<std::string> prompts;
  bool tokens_only = false;                        ///< as its cell: logits_hash is then empty
  std::vector<uint64_t> tokens_hash, logits_hash;  ///< per prompt
  std::vector<std::vector<Token>> tokens;
  ExpertCounters experts;
};

/// A request of a cell failed: unlike a setting that cannot be opened here, this is no reason to leave the
/// cell out.
class CellFailure : public Error {
 public:
  explicit CellFailure(const Error& error) : Error(error) {}
};

/// What differs from the base outcome, one line each; empty where all is equal. Of logits nothing is said
/// where one of the two has tokens only.
std::vector<std::string> differences(const VerifyOutcome& base, const VerifyOutcome& outcome);

/// The matrix for a model: threads, prefill chunk, slots, policy, I/O, landing order, lanes, ledger,
/// instruction set; on a GPU prefill chunk, lanes, ledger, recordings, its own choice of tokens, and the
/// portable arithmetic against the CPU's. The first cell is the base. `base` carries the user's own settings
/// (memory, context). One cell of each kind is marked quick.
std::vector<VerifyCell> verify_matrix(const EngineOptions& base, const Engine& probe);

/// Index of the cell that cells[i] must equal.
size_t reference_of(const std::vector<VerifyCell>& cells, size_t i);

/// Runs one cell: greedy, `n` new tokens a prompt. Throws CellFailure, and what opening the engine throws.
/// `recorder` (or null) sees every operation; the cell's own probe is then the recorder's to call.
VerifyOutcome run_cell(const VerifyCell& cell, const std::vector<VerifyPrompt>& prompts, int n,
                       TrailRecorder* recorder = nullptr);

/// Where a cell parted from the base.
struct Parting {
  std::string prompt;
  FirstDifference first;  ///< no operation: the second time both were equal
  std::string describe() const;
};
/// Runs both cells again with every operation hashed: the first prompt that differs and where. The head is
/// not told from the choice where the cell has tokens only.
Parting locate_difference(const VerifyCell& base, const VerifyCell& cell,
                          const std::vector<VerifyPrompt>& prompts, int n);

}  // namespace weir::lab
