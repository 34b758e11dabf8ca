// The command's word about itself, by simulation: how often each order of runs finds a difference that is not
// there, how often the judge does where openings differ, how often it refuses clean arms, whether it finds a
// planted difference. Pure in its options.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace weir::lab::ab {

struct SelfTestOptions {
  uint64_t seed = 1;
  int pairs = 12;
  int experiments = 10'000;  ///< of each cell of the table of orders
  int judged = 4'000;        ///< of each row that goes through the whole judge
  bool open_once = false;    ///< tests: the judged experiments open each arm once, as they did before
  std::function<void(int done, int total)> on_progress = nullptr;
};

/// Share of experiments with identical arms in which the estimate is resolved.
struct FalsePositives {
  std::string condition;
  double blocked = 0, alternating = 0;
  double once = 0;        ///< random order, but each arm opened once
  double randomised = 0;  ///< random order, each half of a pair an opening of its own
};

/// What the judge said of experiments of one kind, as shares of all.
struct Verdicts {
  std::string condition;
  double faster = 0, slower = 0, unresolved = 0, refused = 0;
  double by_nulls = 0, by_order = 0, by_drift = 0, by_control = 0;  ///< refusals, by check
};

struct SelfTest {
  int pairs = 0, experiments = 0, judged = 0;
  double noise = 0;
  double nominal = 0;       ///< level of the verdict
  double most_false = 0;    ///< upper end of what `judged` experiments at that level give, 95 %
  int runs_of_opening = 0;  ///< in the judged experiments
  std::vector<FalsePositives> orders;
  std::vector<Verdicts> clean;  ///< identical arms, in the order of the seed
  Verdicts planted;             ///< B faster by planted_effect, openings alike
  Verdicts planted_openings;    ///< B 5 % faster, openings 3 % apart, drift
  Verdicts once;                ///< identical arms, each opened once, openings 3 % apart
  Verdicts blocked;             ///< identical arms in a blocked order, under drift
  double planted_effect = 0;
  std::vector<std::string> failures;  ///< one line each; empty: the command keeps its word
};

SelfTest self_test(const SelfTestOptions& options);
std::string self_test_text(const SelfTest& result);
nlohmann::ordered_json self_test_json(const SelfTest& result);

}  // namespace weir::lab::ab
