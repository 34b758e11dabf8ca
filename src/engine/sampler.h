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
  /// Chooses among the first `tokens` ids: rows may be longer, where a head has rows above the tokenizer's
  /// last token.
  explicit Sampler(int tokens);
  /// What a sampler keeps, at most; beside it four bytes for each token that a penalty looks back on.
  static uint64_t host_bytes(int tokens);
  /// Whether choose() takes the largest logit with these options, ties to the lower id, whatever the tokens
  /// before are.
  static bool is_argmax(const SamplerOptions& options);

  /// Reads a row, the one that choose() chooses from: it stays where it is until then. Index of the first
  /// logit of the whole row that is NaN or +inf, or -1; where there is one, there is nothing to choose.
  int64_t read(std::span<const float> logits);
  /// From the row read last, any logit of which may have been lowered since (-inf bans a token). `recent` are
  /// the tokens before `position` (the newest last); `position` is the absolute position of the token to be
  /// chosen.
  Token choose(std::span<const Token> recent, const SamplerOptions& options, int position);

 private:
  /// A logit and its id in one number, the better the larger: compared without branches.
  using Candidate = uint64_t;
  /// The k best candidates (all where k <= 0), penalised and sorted.
  void collect(std::span<const Token> recent, const SamplerOptions& options, int k);
  void find_penalised(std::span<const Token> recent, const SamplerOptions& options);
  /// candidates_: what no penalty changes in the `count` best blocks and reaches a floor, the last one's
  /// largest logit, that nothing in other blocks reaches. Whether these are all blocks, and all they hold.
  bool collect_from(size_t count);
  void keep_top_p(float p);
  void keep_min_p(float p);
  Token draw(float temperature, uint64_t seed, int position);

  size_t tokens_;
  std::span<const float> logits_;  ///< of the row read last, those that may be chosen
  std::vector<Candidate> blocks_;  ///< bounds of its blocks' candidates: the largest logit at the first id
  std::vector<Candidate> candidates_;
  std::vector<float> weights_;
  std::vector<Token> penalised_;  ///< ascending
};

}  // namespace weir
