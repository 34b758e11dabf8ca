// Chooses a token from one row of logits, on the host. Candidates are sorted by (logit descending, id
// ascending) and sums run in that order, so the choice is a pure function of (logits, recent tokens, options,
// position).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/request.h"

namespace weir {

class Sampler {
 public:
  explicit Sampler(int vocab) { candidates_.reserve(static_cast<size_t>(vocab)); }
  /// `logits` [vocab] must be finite or -inf; `recent` are the tokens before `position` (the newest last);
  /// `position` is the absolute position of the token to be chosen.
  Token choose(std::span<const float> logits, std::span<const Token> recent, const SamplerOptions& options,
               int position);

  /// Whether choose() is argmax() with these options, whatever the tokens before are.
  static bool is_argmax(const SamplerOptions& options);
  /// The largest logit, ties to the lower id.
  static Token argmax(std::span<const float> logits);
  /// Index of the first logit that is NaN or +inf, or -1.
  static int64_t first_not_finite(std::span<const float> logits);

 private:
  struct Candidate {
    float logit;
    Token id;
  };
  /// The k best candidates (all where k <= 0), penalised and sorted.
  void collect(std::span<const float> logits, std::span<const Token> recent, const SamplerOptions& options,
               int k);
  void keep_top_p(float p);
  void keep_min_p(float p);
  Token draw(float temperature, uint64_t seed, int position);

  std::vector<Candidate> candidates_;
  std::vector<float> weights_;
  std::vector<Token> penalised_;
};

}  // namespace weir
