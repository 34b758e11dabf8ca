// The figures of both arms, prompt by prompt: of the paired runs and of nothing else, so that they agree with
// the verdict. Pure.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "lab/ab/pairs.h"

namespace weir::lab::ab {

struct ArmFigures {
  int runs = 0;
  double mean_value = 0;  ///< geometric: the arms' means have the ratio of the verdict, exactly
  double hit_rate = 0;    ///< over the runs
  uint64_t mean_bytes_read = 0;
};

struct ArmsRow {
  int prompt = 0;  ///< index into Design::prompts; the whole's is of no meaning
  int pairs = 0;
  double log_ratio = 0;  ///< mean of the pairs'
  std::array<ArmFigures, 2> arms;
};

struct ArmsTable {
  std::vector<ArmsRow> prompts;  ///< those that were used, in the design's order
  ArmsRow whole;
  std::array<uint64_t, 2> peak_bytes{};  ///< of each arm, over all of its runs
};
ArmsTable arms_table(const Experiment& experiment);

}  // namespace weir::lab::ab
