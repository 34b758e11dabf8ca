// The sampler on rows of a large vocabulary: reading one and choosing from it, by top-k, with and without a
// penalty. There are 64 in turn, so that one comes from beyond the core's own caches, as a row does that a
// GPU has written, and the branch predictor does not know it.
#include <benchmark/benchmark.h>

#include <vector>

#include "base/error.h"
#include "base/random.h"
#include "engine/sampler.h"

namespace weir {
namespace {

constexpr size_t kVocab = 151'936, kRows = 64;  // Qwen3-30B-A3B's

/// About normal, with a deviation of 2.9.
const std::vector<float>& logits() {
  static const std::vector<float> all = [] {
    std::vector<float> v(kRows * kVocab);
    for (size_t i = 0; i < v.size(); ++i) {
      double sum = 0;
      for (uint64_t j = 0; j < 4; ++j) sum += random_unit(j, i);
      v[i] = static_cast<float>(5 * (sum - 2));
    }
    return v;
  }();
  return all;
}

void choose(benchmark::State& state) {
  SamplerOptions o;
  o.temperature = 0.2f, o.min_p = 0;
  o.top_k = static_cast<int>(state.range(0));
  o.greedy = o.top_k == 1;
  if (state.range(1) != 0) o.repeat_penalty = 1.1f;
  std::vector<Token> recent;
  for (uint64_t i = 0; i < 64; ++i) recent.push_back(static_cast<Token>(random_u64(9, i) % kVocab));
  Sampler sampler(static_cast<int>(kVocab));
  int position = 0;
  for (auto _ : state) {
    const size_t row = static_cast<size_t>(position) % kRows;
    WEIR_CHECK(sampler.read({&logits()[row * kVocab], kVocab}) < 0);
    benchmark::DoNotOptimize(sampler.choose(recent, o, position++));
  }
}
BENCHMARK(choose)
    ->ArgNames({"top_k", "penalty"})
    ->ArgsProduct({{64, 40, 1, 0}, {0, 1}})
    ->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace weir
