#include "model/config.h"

#include <cmath>

#include "base/error.h"
#include "model/architecture_keys.h"

namespace weir {

namespace {

constexpr int64_t widest = 1 << 24;       // of a feed-forward
constexpr int64_t most_tokens = 1 << 28;  // of a vocabulary

int narrow_integer(ArchitectureKeys& keys, const char* name, int64_t low, int64_t high) {
  return static_cast<int>(keys.require_integer(name, low, high));
}

void read_heads(ArchitectureKeys& keys, ModelConfig& c) {
  c.heads = narrow_integer(keys, "attention.head_count", 1, 1 << 16);
  c.kv_heads = static_cast<int>(keys.integer("attention.head_count_kv", 1, c.heads).value_or(c.heads));
  if (c.heads % c.kv_heads != 0)
    throw input_error("{}: {} is {}: expected a divisor of attention.head_count {}", keys.path(),
                      keys.full("attention.head_count_kv"), c.kv_heads, c.heads);
  const auto head_dim = keys.integer("attention.key_length", 2, 4096);
  if (!head_dim && (c.hidden % c.heads != 0 || c.hidden / c.heads > 4096))
    throw input_error(
        "{}: {} {} is not a multiple of attention.head_count {} (by 4096 at most), and there is no "
        "attention.key_length",
        keys.path(), keys.full("embedding_length"), c.hidden, c.heads);
  c.head_dim = static_cast<int>(head_dim.value_or(c.hidden / c.heads));
  if (c.head_dim < 2 || c.head_dim % 2 != 0)
    throw input_error("{}: {} is {}: expected an even number from 2 to 4096", keys.path(),
                      keys.full("attention.key_length"), c.head_dim);
  const int64_t value_length = keys.integer("attention.value_length", 1, widest).value_or(c.head_dim);
  if (value_length != c.head_dim)
    throw input_error("{}: {} is {}: expected attention.key_length, {}", keys.path(),
                      keys.full("attention.value_length"), value_length, c.head_dim);
}

void read_rope(ArchitectureKeys& keys, ModelConfig& c) {
  c.rope_base = keys.real("rope.freq_base").value_or(10'000.0);
  if (!(c.rope_base > 0) || !std::isfinite(c.rope_base))
    throw input_error("{}: {} is {}: expected a positive number", keys.path(), keys.full("rope.freq_base"),
                      c.rope_base);
  c.n_rot = static_cast<int>(keys.integer("rope.dimension_count", 2, c.head_dim).value_or(c.head_dim));
  if (c.n_rot % 2 != 0)
    throw input_error("{}: {} is {}: expected an even number from 2 to {}", keys.path(),
                      keys.full("rope.dimension_count"), c.n_rot, c.head_dim);
  c.rope_scaling = read_rope_scaling(keys, c.context, c.rope_base);
}

}  // namespace

ModelConfig read_common_config(ArchitectureKeys& keys) {
  ModelConfig c;
  c.architecture = keys.architecture();
  c.layers = narrow_integer(keys, "block_count", 1, most_layers);
  c.hidden = keys.require_integer("embedding_length", 1, 1 << 20);
  read_heads(keys, c);
  c.context = narrow_integer(keys, "context_length", 1, 1 << 30);
  c.eps = static_cast<float>(keys.require_real("attention.layer_norm_rms_epsilon"));
  if (!(c.eps >= 0) || c.eps > 1)
    throw input_error("{}: {} is {}: expected 0 to 1", keys.path(),
                      keys.full("attention.layer_norm_rms_epsilon"), c.eps);
  read_rope(keys, c);
  const int64_t rows = keys.model().tensor("token_embd.weight").dims[1];
  if (rows > most_tokens)
    throw input_error("{}: tensor token_embd.weight has {} rows: expected 1 to {}", keys.path(), rows,
                      most_tokens);
  c.vocab = static_cast<int>(rows);
  c.ff = keys.integer("feed_forward_length", 0, widest).value_or(0);
  return c;
}

void read_expert_config(ArchitectureKeys& keys, ModelConfig& c) {
  c.experts = narrow_integer(keys, "expert_count", 1, 65'535);
  c.top_k = narrow_integer(keys, "expert_used_count", 1, c.experts);
  const auto own = keys.integer("expert_feed_forward_length", 0, widest);
  c.expert_ff = own.value_or(0) > 0 ? *own : c.ff / c.top_k;
  if (c.expert_ff < 1)
    throw input_error(
        "{}: {} is missing or 0, and {} {} / expert_used_count {} gives no width: expected 1 to {}",
        keys.path(), keys.full("expert_feed_forward_length"), keys.full("feed_forward_length"), c.ff, c.top_k,
        widest);
}

}  // namespace weir
