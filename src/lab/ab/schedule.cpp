#include "lab/ab/schedule.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "base/random.h"

namespace weir::lab::ab {

namespace {

/// The seed's draws, in the order they are asked for.
class Draws {
 public:
  explicit Draws(uint64_t seed) : seed_(seed) {}
  /// Uniform in [0, n); n is so small beside 2^64 that the modulo's bias does not matter.
  int below(int n) { return static_cast<int>(random_u64(seed_, next_++) % static_cast<uint64_t>(n)); }
  Side coin() { return below(2) == 0 ? Side::a : Side::b; }

 private:
  uint64_t seed_, next_ = 0;
};

std::vector<int> shuffled(int n, Draws& draws) {
  std::vector<int> order(static_cast<size_t>(n));
  std::iota(order.begin(), order.end(), 0);
  for (int i = n - 1; i > 0; --i)
    std::swap(order[static_cast<size_t>(i)], order[static_cast<size_t>(draws.below(i + 1))]);
  return order;
}

/// Which blocks are null: one at a random place in each three, and one among the last where fewer are left.
std::vector<bool> place_null_blocks(int real, Draws& draws) {
  std::vector<bool> null;
  while (real > 0) {
    const int group = std::min(real, 2);
    const int place = draws.below(group + 1);
    for (int i = 0; i <= group; ++i) null.push_back(i == place);
    real -= group;
  }
  return null;
}

void add_block(std::vector<PlannedRun>& runs, PlannedRun run, Side first) {
  const Side labels[] = {first, other(first), other(first), first};
  const int first_pair = run.pair;
  for (int i = 0; i < 4; ++i) {
    run.pair = run.kind == RunKind::warm_up ? -1 : first_pair + i / 2;
    run.label = labels[i];
    run.arm = run.kind == RunKind::null_pair ? Side::a : run.label;
    runs.push_back(run);
  }
}

}  // namespace

int null_pairs(int pairs) {
  const int real_blocks = pairs / pairs_per_block;
  return pairs_per_block * ((real_blocks + 1) / 2);
}

std::vector<PlannedRun> make_schedule(int pairs, uint64_t seed, int prompts) {
  WEIR_CHECK(pairs >= 2 && pairs % pairs_per_block == 0 && prompts >= 1, "pairs {} prompts {}", pairs,
             prompts);
  static_assert(warm_ups_per_arm == 2, "one block of them");
  Draws draws(seed);
  const std::vector<int> order = shuffled(prompts, draws);
  const auto prompt_of = [&](int block) { return order[static_cast<size_t>(block % prompts)]; };
  std::vector<PlannedRun> runs;
  add_block(runs, {RunKind::warm_up, -1, -1, Side::a, Side::a, prompt_of(0)}, draws.coin());
  int block = 0, real = 0, nulls = 0;
  for (const bool null : place_null_blocks(pairs / pairs_per_block, draws)) {
    int& of_kind = null ? nulls : real;
    add_block(runs,
              {null ? RunKind::null_pair : RunKind::pair, block, pairs_per_block * of_kind, Side::a, Side::a,
               prompt_of(of_kind)},
              draws.coin());
    ++of_kind, ++block;
  }
  return runs;
}

}  // namespace weir::lab::ab
