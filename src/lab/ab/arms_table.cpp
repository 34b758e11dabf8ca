#include "lab/ab/arms_table.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "base/stats.h"

namespace weir::lab::ab {

namespace {

ArmFigures figures(const std::vector<const Observation*>& runs) {
  ArmFigures f;
  f.runs = static_cast<int>(runs.size());
  if (runs.empty()) return f;
  double logs = 0, bytes = 0;
  uint64_t hits = 0, uses = 0;
  for (const Observation* o : runs) {
    logs += std::log(o->value), bytes += static_cast<double>(o->bytes_read);
    hits += o->hits, uses += o->hits + o->misses;
  }
  const auto n = static_cast<double>(runs.size());
  f.mean_value = std::exp(logs / n);
  f.mean_bytes_read = static_cast<uint64_t>(bytes / n);
  f.hit_rate = ratio(hits, uses);
  return f;
}

ArmsRow row_of(const std::vector<const Pair*>& pairs) {
  ArmsRow row;
  row.pairs = static_cast<int>(pairs.size());
  std::vector<const Observation*> a, b;
  for (const Pair* pair : pairs) {
    a.insert(a.end(), pair->a.begin(), pair->a.end());
    b.insert(b.end(), pair->b.begin(), pair->b.end());
    row.log_ratio += pair->log_ratio / static_cast<double>(pairs.size());
  }
  row.arms = {figures(a), figures(b)};
  return row;
}

}  // namespace

ArmsTable arms_table(const Experiment& experiment) {
  ArmsTable table;
  const auto pairs = complete_pairs(experiment, RunKind::pair);
  std::map<int, std::vector<const Pair*>> by_prompt;
  std::vector<const Pair*> all;
  for (const auto& pair : pairs) {
    by_prompt[pair.a.front()->run.prompt].push_back(&pair);
    all.push_back(&pair);
  }
  for (const auto& [prompt, its] : by_prompt) {
    table.prompts.push_back(row_of(its));
    table.prompts.back().prompt = prompt;
  }
  table.whole = row_of(all);
  for (const auto& o : experiment.observations) {
    uint64_t& peak = table.peak_bytes[index(o.run.arm)];
    peak = std::max(peak, o.peak_bytes);
  }
  return table;
}

}  // namespace weir::lab::ab
