// From observations to a verdict, or to the reasons why there is none. A pure function: the same experiment
// gets the same verdict, whether it was just made or is read from a file.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lab/ab/experiment.h"
#include "lab/ab/pairs.h"

namespace weir::lab::ab {

/// The level of each test that can refuse; the chance that one of them refuses clean arms.
inline constexpr double refusal_level = 0.01;
inline constexpr double least_coverage = 0.99;
/// Share of the model's bytes by which page caches may differ at the start of runs that should find the same.
inline constexpr double page_cache_tolerance = 0.05;
/// Share of the processors' time that the hypervisor may take while an experiment runs. It takes it in pieces
/// of milliseconds, mostly from one processor, and threads that wait for each other wait for all of it: at 36
/// % pairs of equal openings differed by 8 to 68 % (standard deviation), where 2 % is usual.
inline constexpr double most_stolen = 0.05;

enum class CheckState : uint8_t { passed, failed, skipped };

/// One condition that a verdict needs.
struct Check {
  std::string name;
  CheckState state = CheckState::passed;
  std::string detail;       ///< what was found, in words and figures
  std::optional<double> p;  ///< of tests
};

enum class Outcome : uint8_t { faster, slower, unresolved, refused };

struct Verdict {
  Outcome outcome = Outcome::refused;
  std::vector<Check> checks;         ///< always the same ones, in the same order
  std::optional<Estimate> estimate;  ///< nothing where refused: there is no headline then
};

/// `requested_pairs`: the number that was asked for when judging, where one was.
Verdict judge(const Experiment& experiment, std::optional<int> requested_pairs = {});

/// Exit codes of the command.
int exit_code(Outcome outcome);
const char* name(Outcome outcome);
const char* name(CheckState state);

}  // namespace weir::lab::ab
