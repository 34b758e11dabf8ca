#include "engine/sampler.h"

#include <string.h>

#include <algorithm>
#include <bit>
#include <functional>
#include <limits>

#include "base/arithmetic.h"
#include "base/error.h"
#include "base/random.h"

namespace weir {

namespace {

/// Logits of a block, a multiple of eight. Larger ones are fewer to put in order, smaller ones have less to
/// look through: a usual top-k of 40 to 64 should take a small part of them.
size_t block_of(size_t tokens) { return tokens >= 65'536 ? 128 : 64; }
constexpr float greatest_finite = std::numeric_limits<float>::max();

/// The registers of the baseline instruction sets: reading by four nearly keeps up with memory.
using Four = float __attribute__((vector_size(16)));
using Mask = int32_t __attribute__((vector_size(16)));

Four load(const float* x) {
  Four four;
  memcpy(&four, x, sizeof four);
  return four;
}

Four larger(Four a, Four b) { return a > b ? a : b; }

/// The largest of a block's logits; `good` loses bits where one is NaN or +inf.
float largest_of_block(const float* x, size_t block, Mask& good) {
  Four largest = load(x);
  for (size_t i = 0; i < block; i += 8) {
    const Four a = load(x + i), b = load(x + i + 4);
    largest = larger(largest, larger(a, b));
    good &= (a <= greatest_finite) & (b <= greatest_finite);
  }
  return std::max(std::max(largest[0], largest[1]), std::max(largest[2], largest[3]));
}

/// Grows with the logit (not NaN) and, among equal ones (-0 and +0 are), as the id falls.
uint64_t rank(float logit, size_t id) {
  const auto bits = std::bit_cast<uint32_t>(logit + 0.0f);
  const uint32_t order = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
  return uint64_t{order} << 32 | static_cast<uint32_t>(~id);
}

/// 0 for -0.
float logit_of(uint64_t rank) {
  const auto order = static_cast<uint32_t>(rank >> 32);
  return std::bit_cast<float>(order & 0x80000000u ? order & 0x7fffffffu : ~order);
}

Token id_of(uint64_t rank) { return static_cast<Token>(~static_cast<uint32_t>(rank)); }

bool penalises(const SamplerOptions& o) { return o.repeat_penalty != 1.0f && o.repeat_last > 0; }
bool is_greedy(const SamplerOptions& o) { return o.greedy || o.temperature <= 0; }
float penalised(float logit, float penalty) { return logit <= 0 ? logit * penalty : logit / penalty; }

}  // namespace

Sampler::Sampler(int tokens) : tokens_(static_cast<size_t>(tokens)) {
  candidates_.reserve(tokens_);
  weights_.reserve(tokens_);
  blocks_.reserve(tokens_ / block_of(tokens_) + 1);
}

uint64_t Sampler::host_bytes(int tokens) {
  const auto n = static_cast<uint64_t>(tokens);
  return n * (sizeof(Candidate) + sizeof(float)) + (n / block_of(n) + 1) * sizeof(Candidate);
}

bool Sampler::is_argmax(const SamplerOptions& o) { return is_greedy(o) && !penalises(o); }

int64_t Sampler::read(std::span<const float> logits) {
  logits_ = logits.first(std::min(tokens_, logits.size()));
  blocks_.clear();
  Mask good = {-1, -1, -1, -1};
  const size_t block = block_of(tokens_);
  size_t i = 0;
  for (; i + block <= logits_.size(); i += block)
    blocks_.push_back(rank(largest_of_block(&logits[i], block, good), i));
  const auto rest = logits_.subspan(i);
  if (!rest.empty()) blocks_.push_back(rank(*std::max_element(rest.begin(), rest.end()), i));
  const auto is_good = [](float logit) { return logit <= greatest_finite; };
  const auto unblocked = logits.subspan(i);  // what cannot be chosen is among them
  if ((good[0] & good[1] & good[2] & good[3]) && std::all_of(unblocked.begin(), unblocked.end(), is_good))
    return -1;
  return std::find_if_not(logits.begin(), logits.end(), is_good) - logits.begin();
}

Token Sampler::choose(std::span<const Token> recent, const SamplerOptions& o, int position) {
  WEIR_CHECK(!logits_.empty());
  const bool greedy = is_greedy(o);
  collect(recent, o, greedy ? 1 : o.top_k);
  if (greedy) return id_of(candidates_.front());
  if (o.top_p < 1) keep_top_p(o.top_p);
  if (o.min_p > 0) keep_min_p(o.min_p);
  return draw(o.temperature, o.seed, position);
}

void Sampler::collect(std::span<const Token> recent, const SamplerOptions& o, int k) {
  find_penalised(recent, o);
  const size_t limit = k > 0 ? std::min(static_cast<size_t>(k), logits_.size()) : logits_.size();
  // This many blocks hold at least `limit` logits that no penalty changes and that reach the floor, and no
  // other block holds one. Where the best were lowered since read(), it takes more.
  size_t count = limit + penalised_.size();
  while (!collect_from(count) && candidates_.size() < limit) count *= 2;
  for (const Token id : penalised_) {
    const auto i = static_cast<size_t>(id);
    candidates_.push_back(rank(penalised(logits_[i], o.repeat_penalty), i));
  }
  if (limit < candidates_.size()) {
    const auto end = candidates_.begin() + static_cast<std::ptrdiff_t>(limit);
    std::nth_element(candidates_.begin(), end, candidates_.end(), std::greater<>());
    candidates_.resize(limit);
  }
  std::sort(candidates_.begin(), candidates_.end(), std::greater<>());
}

bool Sampler::collect_from(size_t count) {
  const bool all = count >= blocks_.size();
  const size_t block = block_of(tokens_);
  const auto end = all ? blocks_.end() : blocks_.begin() + static_cast<std::ptrdiff_t>(count);
  if (!all) std::nth_element(blocks_.begin(), end - 1, blocks_.end(), std::greater<>());
  const Candidate floor = all ? 0 : *(end - 1) - (block - 1);  // its largest logit, at its last id
  candidates_.clear();
  for (auto bound = blocks_.begin(); bound != end; ++bound) {
    const auto first = static_cast<size_t>(id_of(*bound)), last = std::min(first + block, logits_.size());
    for (size_t i = first; i < last; ++i) {
      const Candidate candidate = rank(logits_[i], i);
      if (candidate < floor) continue;
      if (!std::binary_search(penalised_.begin(), penalised_.end(), static_cast<Token>(i)))
        candidates_.push_back(candidate);
    }
  }
  return all;
}

void Sampler::find_penalised(std::span<const Token> recent, const SamplerOptions& o) {
  penalised_.clear();
  if (!penalises(o)) return;
  const size_t last = std::min(recent.size(), static_cast<size_t>(o.repeat_last));
  penalised_.assign(recent.end() - static_cast<std::ptrdiff_t>(last), recent.end());
  std::sort(penalised_.begin(), penalised_.end());
  penalised_.erase(std::unique(penalised_.begin(), penalised_.end()), penalised_.end());
  while (!penalised_.empty() && static_cast<size_t>(penalised_.back()) >= logits_.size())
    penalised_.pop_back();  // a prompt may hold ids that cannot be chosen
}

void Sampler::keep_top_p(float p) {
  weights_.clear();
  float sum = 0;
  const float largest = logit_of(candidates_.front());
  for (const Candidate c : candidates_) {
    weights_.push_back(exp_f32(logit_of(c) - largest));
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
  const float largest = logit_of(candidates_.front());
  while (kept < candidates_.size() && exp_f32(logit_of(candidates_[kept]) - largest) >= p) ++kept;
  candidates_.resize(kept);
}

Token Sampler::draw(float temperature, uint64_t seed, int position) {
  weights_.clear();
  float sum = 0;
  const float largest = logit_of(candidates_.front());
  for (const Candidate c : candidates_) {
    weights_.push_back(exp_f32((logit_of(c) - largest) / temperature));
    sum += weights_.back();
  }
  const auto target =
      static_cast<float>(random_unit(seed, static_cast<uint64_t>(position)) * static_cast<double>(sum));
  float reached = 0;
  for (size_t i = 0; i < candidates_.size(); ++i) {
    reached += weights_[i];
    if (target < reached) return id_of(candidates_[i]);
  }
  return id_of(candidates_.back());
}

}  // namespace weir
