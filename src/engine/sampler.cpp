#include "engine/sampler.h"

#include <algorithm>
#include <cmath>

#include "base/arithmetic.h"
#include "base/error.h"
#include "base/random.h"

namespace weir {

Token Sampler::argmax(std::span<const float> logits) {
  size_t best = 0;
  for (size_t i = 1; i < logits.size(); ++i)
    if (logits[i] > logits[best]) best = i;
  return static_cast<Token>(best);
}

int64_t Sampler::first_not_finite(std::span<const float> logits) {
  for (size_t i = 0; i < logits.size(); ++i)
    if (!(logits[i] <= 3.4028234e38f)) return static_cast<int64_t>(i);
  return -1;
}

namespace {

bool penalises(const SamplerOptions& o) { return o.repeat_penalty != 1.0f && o.repeat_last > 0; }
bool is_greedy(const SamplerOptions& o) { return o.greedy || o.temperature <= 0; }

}  // namespace

bool Sampler::is_argmax(const SamplerOptions& o) { return is_greedy(o) && !penalises(o); }

Token Sampler::choose(std::span<const float> logits, std::span<const Token> recent, const SamplerOptions& o,
                      int position) {
  WEIR_CHECK(!logits.empty());
  if (is_argmax(o)) return argmax(logits);
  const bool greedy = is_greedy(o);
  collect(logits, recent, o, greedy ? 1 : o.top_k);
  if (greedy) return candidates_.front().id;
  if (o.top_p < 1) keep_top_p(o.top_p);
  if (o.min_p > 0) keep_min_p(o.min_p);
  return draw(o.temperature, o.seed, position);
}

void Sampler::collect(std::span<const float> logits, std::span<const Token> recent, const SamplerOptions& o,
                      int k) {
  penalised_.clear();
  if (penalises(o)) {
    const size_t last = std::min(recent.size(), static_cast<size_t>(o.repeat_last));
    penalised_.assign(recent.end() - static_cast<std::ptrdiff_t>(last), recent.end());
    std::sort(penalised_.begin(), penalised_.end());
    penalised_.erase(std::unique(penalised_.begin(), penalised_.end()), penalised_.end());
  }
  const auto before = [](const Candidate& a, const Candidate& b) {
    return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
  };
  // One pass with a heap of the k best, the worst on top: nearly every candidate fails the first comparison.
  const size_t limit = k > 0 ? std::min(static_cast<size_t>(k), logits.size()) : logits.size();
  candidates_.clear();
  auto penalised = penalised_.begin();
  for (size_t i = 0; i < logits.size(); ++i) {
    float logit = logits[i];
    if (penalised != penalised_.end() && static_cast<size_t>(*penalised) == i) {
      logit = logit <= 0 ? logit * o.repeat_penalty : logit / o.repeat_penalty;
      ++penalised;
    }
    if (candidates_.size() == limit) {
      if (!(logit > candidates_.front().logit)) continue;  // equal logits: the lower id is in already
      std::pop_heap(candidates_.begin(), candidates_.end(), before);
      candidates_.back() = {logit, static_cast<Token>(i)};
      std::push_heap(candidates_.begin(), candidates_.end(), before);
    } else {
      candidates_.push_back({logit, static_cast<Token>(i)});
      if (candidates_.size() == limit) std::make_heap(candidates_.begin(), candidates_.end(), before);
    }
  }
  std::sort(candidates_.begin(), candidates_.end(), before);
}

void Sampler::keep_top_p(float p) {
  weights_.clear();
  float sum = 0;
  for (const auto& c : candidates_) {
    weights_.push_back(exp_f32(c.logit - candidates_.front().logit));
    sum += weights_.back();
  }
  float reached = 0;
  size_t kept = 0;
  while (kept < candidates_.size()) {
    reached += weights_[kept++] / sum;
    if (reached >= p) break;
  }
  candidates_.resize(kept);
}

void Sampler::keep_min_p(float p) {
  size_t kept = 1;
  while (kept < candidates_.size() && exp_f32(candidates_[kept].logit - candidates_.front().logit) >= p)
    ++kept;
  candidates_.resize(kept);
}

Token Sampler::draw(float temperature, uint64_t seed, int position) {
  weights_.clear();
  float sum = 0;
  for (const auto& c : candidates_) {
    weights_.push_back(exp_f32((c.logit - candidates_.front().logit) / temperature));
    sum += weights_.back();
  }
  const auto target =
      static_cast<float>(random_unit(seed, static_cast<uint64_t>(position)) * static_cast<double>(sum));
  float reached = 0;
  for (size_t i = 0; i < candidates_.size(); ++i) {
    reached += weights_[i];
    if (target < reached) return candidates_[i].id;
  }
  return candidates_.back().id;
}

}  // namespace weir
