// Tiny random models in GGUF, for every test that needs a whole one: a sparse qwen3moe and a dense qwen3,
// small enough to run in milliseconds, with mixed block formats, norms that are not one and a byte-level
// vocabulary. Same options, same bytes, on any machine: the values come from base/random.h and IEEE
// operations only.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "gguf/writer.h"
#include "quant/types.h"

namespace weir::test {

/// Row lengths must be multiples of the block: 32 for Q8_0 and Q5_0, 256 for Q4_K and Q6_K (hidden for gate
/// and up, expert_ff for down, heads * head_dim for the attention output).
struct TinyModelOptions {
  std::string architecture =
      "qwen3moe";  ///< qwen3 makes a dense model; any other name is written as it is, with experts
  int layers = 2;
  int hidden = 64;
  int heads = 4, kv_heads = 2, head_dim = 16;
  int experts = 8, top_k = 2, expert_ff = 32;
  int dense_ff = 96;  ///< qwen3
  int context = 512;  ///< the model's own limit
  Type embedding = Type::Q8_0, attention = Type::Q8_0, output = Type::Q8_0, dense = Type::Q8_0;
  // Layer i has types[i % size]: layers whose experts differ in bytes.
  std::vector<Type> gate_types{Type::Q8_0, Type::F16};
  std::vector<Type> up_types{Type::Q8_0, Type::F16};
  std::vector<Type> down_types{Type::Q5_0, Type::Q8_0};
  bool fused_gate_up = false;  ///< ffn_gate_up_exps (of gate_types) instead of two tensors
  bool tied_head = false;      ///< no output.weight
  // What follows changes no other tensor.
  bool biases = false;            ///< of q, k and v
  int n_rot = 0;                  ///< rope.dimension_count; 0: no key, which means head_dim
  bool rope_factors = false;      ///< rope_freqs.weight
  std::string rope_scaling;       ///< rope.scaling.type; empty: no key
  int rope_original_context = 0;  ///< rope.scaling.original_context_length; 0: no key
  std::vector<std::pair<std::string, float>> rope_keys;  ///< more under rope.: {"scaling.factor", 4}
  float router_scale = 4.0f;  ///< of the router's rows: larger makes routing more decided, further from ties
  int spare_rows = 0;         ///< rows of the embedding and the head above the tokenizer's last token
  std::string tokenizer_model = "gpt2";
  std::string pretokenizer = "qwen2";
  uint64_t seed = 1;
};

/// The dense options: architecture qwen3, the same vocabulary.
TinyModelOptions tiny_dense_options();
/// hidden 256 and expert_ff 256, so that experts are Q4_K and Q6_K as in published files.
TinyModelOptions tiny_kquant_options();

/// Ids 0..255 are the bytes, then some merged pairs, then <|endoftext|>, <|im_start|>, <|im_end|>.
int tiny_vocabulary_size();

gguf::Writer tiny_model(const TinyModelOptions& options = {});
/// Writes it to `path` and returns `path`.
std::string write_tiny_model(const std::string& path, const TinyModelOptions& options = {});

/// `elements` values of F32, F16, BF16, Q8_0, Q5_0, Q4_K or Q6_K with mean 0 (nearly) and standard deviation
/// `std`, as GGUF stores them; of any other type, just as many random bytes. `stream` tells tensors of one
/// seed apart. Throws std::invalid_argument for part of a block.
std::vector<uint8_t> random_blocks(Type type, int64_t elements, float std, uint64_t seed, uint64_t stream);

}  // namespace weir::test
