#include "model/config.h"

#include <cmath>

#include "base/error.h"

namespace weir {

namespace {

int64_t positive(const gguf::Model& model, const std::string& key, int64_t limit) {
  const int64_t value = model.require_integer(key);
  if (value < 1 || value > limit)
    throw input_error("{}: {} is {}: expected 1 to {}", model.path(), key, value, limit);
  return value;
}

}  // namespace

ModelConfig read_common_config(const gguf::Model& model) {
  ModelConfig c;
  c.architecture = model.require_string("general.architecture");
  const std::string p = c.architecture + ".";
  c.layers = static_cast<int>(positive(model, p + "block_count", 10'000));
  c.hidden = positive(model, p + "embedding_length", 1 << 20);
  c.heads = static_cast<int>(positive(model, p + "attention.head_count", 1 << 16));
  c.kv_heads = static_cast<int>(model.integer(p + "attention.head_count_kv").value_or(c.heads));
  if (c.kv_heads < 1 || c.heads % c.kv_heads != 0)
    throw input_error("{}: {}attention.head_count_kv is {}: expected a divisor of attention.head_count {}",
                      model.path(), p, c.kv_heads, c.heads);
  if (!model.has(p + "attention.key_length") && c.hidden % c.heads != 0)
    throw input_error(
        "{}: {}embedding_length {} is not a multiple of attention.head_count {}, and there is no "
        "attention.key_length",
        model.path(), p, c.hidden, c.heads);
  c.head_dim = static_cast<int>(model.integer(p + "attention.key_length").value_or(c.hidden / c.heads));
  if (c.head_dim < 2 || c.head_dim > 4096 || c.head_dim % 2 != 0)
    throw input_error("{}: {}attention.key_length is {}: expected an even number from 2 to 4096",
                      model.path(), p, c.head_dim);
  const int64_t value_length = model.integer(p + "attention.value_length").value_or(c.head_dim);
  if (value_length != c.head_dim)
    throw input_error("{}: {}attention.value_length is {}: expected attention.key_length, {}", model.path(),
                      p, value_length, c.head_dim);
  c.context = static_cast<int>(positive(model, p + "context_length", 1 << 30));
  c.eps = static_cast<float>(model.require_real(p + "attention.layer_norm_rms_epsilon"));
  if (!(c.eps >= 0) || c.eps > 1)
    throw input_error("{}: {}attention.layer_norm_rms_epsilon is {}: expected 0 to 1", model.path(), p,
                      c.eps);
  c.rope_base = model.real(p + "rope.freq_base").value_or(10'000.0);
  if (!(c.rope_base > 0) || !std::isfinite(c.rope_base))
    throw input_error("{}: {}rope.freq_base is {}: expected a positive number", model.path(), p, c.rope_base);
  c.n_rot = static_cast<int>(model.integer(p + "rope.dimension_count").value_or(c.head_dim));
  if (c.n_rot < 2 || c.n_rot > c.head_dim || c.n_rot % 2 != 0)
    throw input_error("{}: {}rope.dimension_count is {}: expected an even number from 2 to {}", model.path(),
                      p, c.n_rot, c.head_dim);
  const std::string scaling = model.string(p + "rope.scaling.type").value_or("none");
  if (scaling != "none")
    throw input_error("{}: {}rope.scaling.type is \"{}\": only \"none\" is supported", model.path(), p,
                      scaling);
  const gguf::Tensor& embedding = model.tensor("token_embd.weight");
  c.vocab = static_cast<int>(embedding.dims[1]);
  c.ff = model.integer(p + "feed_forward_length").value_or(0);
  return c;
}

void read_expert_config(const gguf::Model& model, ModelConfig& c) {
  const std::string p = c.architecture + ".";
  c.experts = static_cast<int>(positive(model, p + "expert_count", 65'535));
  c.top_k = static_cast<int>(positive(model, p + "expert_used_count", c.experts));
  c.expert_ff = positive(model, p + "expert_feed_forward_length", 1 << 24);
}

}  // namespace weir
