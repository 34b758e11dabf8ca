// What a caller asks the engine for and gets back. Plain data; sinks are called from the engine's one thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "text/tokenizer.h"

namespace weir {

/// Applied in this order: repetition penalty, top-k, top-p, min-p, temperature.
struct SamplerOptions {
  bool greedy = false;          ///< argmax, ties to the lower id
  float temperature = 0.8f;     ///< 0: greedy
  int top_k = 40;               ///< 0: off
  float top_p = 0.95f;          ///< 1: off
  float min_p = 0.05f;          ///< 0: off
  float repeat_penalty = 1.0f;  ///< 1: off; over the last repeat_last tokens, prompt included
  int repeat_last = 64;
  uint64_t seed = 0;  ///< a draw is a function of (seed, absolute position) only
};

struct Request {
  std::vector<Token> prompt;  ///< at least one token
  int max_tokens = -1;        ///< -1: until the context is full; 0: evaluate the prompt only
  bool ignore_eos = false;
  SamplerOptions sampler;
  /// Instead of sampling: the tokens to take, in order (benchmarks and teacher forcing). Must hold
  /// max_tokens.
  std::vector<Token> forced;
  /// Each new token as it is decided.
  std::function<void(Token)> on_token;
  /// float32 logits of evaluated positions: of every one from logits_from on where on_logits is set.
  std::function<void(int position, std::span<const float> logits)> on_logits;
  int logits_from = 0;
  /// Rows of the prompt evaluated so far, for progress.
  std::function<void(int done, int total)> on_prefill;
  bool hash_logits = false;                   ///< logits_hash over the positions that were sampled
  const std::atomic<bool>* cancel = nullptr;  ///< checked once a round
};

enum class Finish : uint8_t { end_of_text, length, context, cancelled, failed };
const char* finish_name(Finish finish);

/// llama.cpp's keys: prompt_n, prompt_ms, predicted_n, predicted_ms and what follows from them.
struct Timings {
  int prompt_n = 0, predicted_n = 0;
  double prompt_ms = 0;     ///< from submit to the first token
  double predicted_ms = 0;  ///< from the first token to the last, or to the end of text
  int steps = 0;            ///< decode rounds in that time: each gave a token or the end of text
};

struct Result {
  int id = -1;
  std::vector<Token> tokens;
  Finish finish = Finish::length;
  std::string error;                              ///< where finish is failed: one line
  Error::Kind error_kind = Error::Kind::failure;  ///< input: the model is at fault
  uint64_t tokens_hash = 0;                       ///< FNV-1a over the int32 ids
  uint64_t logits_hash = 0;  ///< FNV-1a over the float32 logits of the sampled positions, in order
  Timings timings;
};

/// Throws the error of a request that failed, after `what` and a colon where that is not empty.
void throw_if_failed(const Result& result, const std::string& what = {});

}  // namespace weir
