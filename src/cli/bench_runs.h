// What weir bench measures, and how one run of it is made: prompts evaluated from nothing, and tokens decoded
// after a context of some depth in one or several lanes. Tokens are seeded and varied (a greedy loop would
// fake cache hits). Knows nothing of options and tables.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/engine.h"

namespace weir::cli {

/// One row of the table.
struct BenchTest {
  enum class Kind : uint8_t { prompt, decode } kind = Kind::prompt;
  int tokens = 0;  ///< of the prompt; or decoded in each lane
  int depth = 0;   ///< positions before the first decoded token's
  int lanes = 1;
  std::string name() const;  ///< "prompt 512", "decode 128", "decode 128 at 4096", "decode 64 x 4"
};

struct BenchSample {
  double tokens_per_second = 0;  ///< of all lanes together
  uint64_t hits = 0, misses = 0, bytes_read = 0;
};

/// A prompt's logits are no part of its time; a warm-up makes the last token's, so that a model whose numbers
/// are not finite is found without a decode test too.
enum class BenchRun : uint8_t { warm_up, counted };
/// Runs the test once. Throws Error where a request fails or an interrupt cancels it.
BenchSample run_bench_test(Engine& engine, const BenchTest& test, uint64_t seed,
                           BenchRun run = BenchRun::counted);

/// Decode speed with the ledger on over off, and off over off: what two recordings of the same round differ
/// by, which is no cost of the ledger's.
struct LedgerCost {
  std::vector<double> on, off, off_again;  ///< tokens a second, by round
  std::vector<double> ratios() const;      ///< on over the mean of the two that are off
  std::vector<double> null_ratios() const;
};
/// `rounds` times: on, off and off again in an order by chance, each recorded anew and run once unmeasured
/// before it counts. The engine must have been opened with a ledger; it is on afterwards.
LedgerCost measure_ledger_cost(Engine& engine, const BenchTest& test, int rounds, uint64_t seed);

}  // namespace weir::cli
