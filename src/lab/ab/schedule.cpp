#include "lab/ab/schedule.h"

#include <algorithm>
#include <numeric>
#include <optional>

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

template <typename T>
std::vector<T> shuffled(std::vector<T> values, Draws& draws) {
  for (auto i = static_cast<int>(values.size()) - 1; i > 0; --i)
    std::swap(values[static_cast<size_t>(i)], values[static_cast<size_t>(draws.below(i + 1))]);
  return values;
}

std::vector<int> prompt_order(const Design& design, Draws& draws) {
  std::vector<int> order(design.prompts.size());
  std::iota(order.begin(), order.end(), 0);
  return shuffled(std::move(order), draws);
}

/// Who comes first in each of `n` pairs: each label in half of them, a coin's in the odd one.
std::vector<Side> balanced_firsts(int n, Draws& draws) {
  std::vector<Side> firsts(static_cast<size_t>(n), Side::a);
  std::fill(firsts.begin() + n / 2, firsts.end(), Side::b);
  if (n % 2 == 1) firsts.back() = draws.coin();
  return shuffled(std::move(firsts), draws);
}

/// Which pairs are null: one at a random place in each three.
std::vector<bool> place_null_pairs(int pairs, Draws& draws) {
  std::vector<bool> null;
  for (int i = 0; i < null_pairs(pairs); ++i) {
    const int place = draws.below(3);
    for (int j = 0; j < 3; ++j) null.push_back(j == place);
  }
  return null;
}

/// Appends pairs, each with openings of its own.
class Openings {
 public:
  Openings(std::vector<PlannedRun>& runs, int first) : runs_(runs), next_(first) {}
  /// `null_arm`: the arm of both halves.
  void add_pair(PlannedRun run, Side first, int runs, std::optional<Side> null_arm = {}) {
    for (const Side label : {first, other(first)}) {
      run.label = label;
      run.arm = null_arm.value_or(label);
      run.opening = next_++;
      for (int i = 0; i < runs; ++i) runs_.push_back(run);
    }
  }

 private:
  std::vector<PlannedRun>& runs_;
  int next_;
};

// The pilot draws from a stream of its own: the numbers that it leads to do not change it.
constexpr uint64_t pilot_stream = 0x70696c6f74;

}  // namespace

int null_pairs(int pairs) { return pairs / 2; }

std::vector<PlannedRun> make_pilot(const Design& design) {
  WEIR_CHECK(design.pilot_openings >= 2 && design.pilot_openings % 2 == 0 && design.pilot_runs >= 1,
             "{} openings of {} runs", design.pilot_openings, design.pilot_runs);
  Draws draws(design.seed ^ pilot_stream);
  const int prompt = prompt_order(design, draws).front();
  std::vector<PlannedRun> runs;
  Openings openings(runs, 0);
  Side first = draws.coin();  // ABBA or BAAB
  for (int i = 0; i < design.pilot_openings / 2; ++i, first = other(first))
    openings.add_pair({RunKind::pilot, -1, -1, Side::a, Side::a, prompt}, first, design.pilot_runs);
  return runs;
}

std::vector<PlannedRun> make_schedule(const Design& design) {
  const int pairs = design.pairs;
  WEIR_CHECK(pairs >= 2 && pairs % 2 == 0 && design.runs >= 1 && !design.prompts.empty(), "pairs {} runs {}",
             pairs, design.runs);
  Draws draws(design.seed);
  const std::vector<int> order = prompt_order(design, draws);
  const std::vector<Side> firsts = balanced_firsts(pairs, draws);
  const std::vector<Side> null_firsts = balanced_firsts(null_pairs(pairs), draws);
  const Side first_null_arm = draws.coin();
  std::vector<PlannedRun> runs = make_pilot(design);
  Openings openings(runs, design.pilot_openings);
  int block = 0, real = 0, nulls = 0;
  for (const bool null : place_null_pairs(pairs, draws)) {
    int& of_kind = null ? nulls : real;
    const auto number = static_cast<size_t>(of_kind);
    const PlannedRun run{null ? RunKind::null_pair : RunKind::pair,
                         block++,
                         of_kind,
                         Side::a,
                         Side::a,
                         order[number % order.size()]};
    if (null)
      openings.add_pair(run, null_firsts[number], design.runs,
                        number % 2 == 0 ? first_null_arm : other(first_null_arm));
    else
      openings.add_pair(run, firsts[number], design.runs);
    ++of_kind;
  }
  if (design.open_once)
    for (auto& run : runs)
      if (run.kind != RunKind::pilot) run.opening = design.pilot_openings + static_cast<int>(index(run.arm));
  return runs;
}

}  // namespace weir::lab::ab
