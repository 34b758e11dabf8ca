#include "model/known_keys.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <optional>
#include <string_view>
#include <variant>

#include "gguf/describe.h"

namespace weir {

namespace {

/// The values of a key that leave the computation of a family that does not know the key as it is.
enum class Neutral {
  any,            // mere description, or the detail of another key that is judged by itself
  zero,           // also false, and an array of nothing else
  zero_or_one,    // a factor or a count of groups: 0 is "not set"
  unset_or_zero,  // -1 is "not set"
  yes,            // true
  softmax,        // expert_gating_func 1; 0 is "not set"
  silu,           // the name of an activation
  hidden,         // embedding_length
  head_scale,     // 1 / sqrt(head_dim); 0 is "not set"
};

struct KnownKey {
  std::string_view name;
  Neutral neutral;
};

// After the keys of llama.cpp (src/llama-arch.cpp) and its converters. Sorted by name.
constexpr KnownKey known_keys[] = {
    {"activation_sparsity_scale", Neutral::zero},
    {"altup.active_idx", Neutral::any},
    {"altup.num_inputs", Neutral::zero_or_one},
    {"attention.causal", Neutral::yes},
    {"attention.clamp_kqv", Neutral::zero},
    {"attention.compress_ratios", Neutral::zero},
    {"attention.compress_rope_freq_base", Neutral::zero},
    {"attention.decay_lora_rank", Neutral::zero},
    {"attention.gate_lora_rank", Neutral::zero},
    {"attention.group_norm_epsilon", Neutral::any},
    {"attention.group_norm_groups", Neutral::zero},
    {"attention.iclr_lora_rank", Neutral::zero},
    {"attention.indexer.head_count", Neutral::zero},
    {"attention.indexer.key_length", Neutral::zero},
    {"attention.indexer.top_k", Neutral::zero},
    {"attention.key_length_mla", Neutral::zero},
    {"attention.key_length_swa", Neutral::any},  // of the layers with a sliding window
    {"attention.kv_lora_rank", Neutral::zero},
    {"attention.layer_norm_epsilon", Neutral::any},  // of models whose norm is not RMS: their tensors tell
    {"attention.max_alibi_bias", Neutral::zero},
    {"attention.output_group_count", Neutral::zero},
    {"attention.output_lora_rank", Neutral::zero},
    {"attention.output_scale", Neutral::zero_or_one},
    {"attention.q_lora_rank", Neutral::zero},
    {"attention.recurrent_layers", Neutral::zero},
    {"attention.relative_buckets_count", Neutral::zero},
    {"attention.scale", Neutral::head_scale},
    {"attention.shared_kv_layers", Neutral::zero},
    {"attention.sliding_window", Neutral::zero},
    {"attention.sliding_window_pattern", Neutral::any},  // which layers have the window above
    {"attention.temperature_length", Neutral::zero},
    {"attention.temperature_scale", Neutral::zero},
    {"attention.value_length_mla", Neutral::zero},
    {"attention.value_length_swa", Neutral::any},
    {"attention.value_residual_mix_lora_rank", Neutral::zero},
    {"attention.value_scale", Neutral::zero_or_one},
    {"attn_logit_softcapping", Neutral::zero},
    {"attn_res_block_size", Neutral::zero},
    {"block_size", Neutral::zero},
    {"classifier.output_labels", Neutral::zero},
    {"convnext.block_count", Neutral::zero},
    {"convnext.embedding_length", Neutral::zero},
    {"decoder_block_count", Neutral::zero},
    {"decoder_start_token_id", Neutral::unset_or_zero},
    {"deepstack_mapping", Neutral::unset_or_zero},
    {"dense_2_feat_in", Neutral::zero},
    {"dense_2_feat_out", Neutral::zero},
    {"dense_3_feat_in", Neutral::zero},
    {"dense_3_feat_out", Neutral::zero},
    {"embedding_length_out", Neutral::hidden},
    {"embedding_length_per_layer_input", Neutral::zero},
    {"embedding_scale", Neutral::zero_or_one},
    {"expert_chunk_feed_forward_length", Neutral::zero},
    {"expert_count", Neutral::zero},
    {"expert_feed_forward_length", Neutral::zero},
    {"expert_gating_func", Neutral::softmax},
    {"expert_group_count", Neutral::zero_or_one},
    {"expert_group_scale", Neutral::zero_or_one},
    {"expert_group_used_count", Neutral::zero_or_one},
    {"expert_shared_count", Neutral::zero},
    {"expert_shared_feed_forward_length", Neutral::zero},
    {"expert_used_count", Neutral::zero},
    {"expert_weights_norm", Neutral::yes},
    {"expert_weights_scale", Neutral::zero_or_one},
    {"experts_per_group", Neutral::zero_or_one},
    {"features_length", Neutral::zero},
    {"final_logit_softcapping", Neutral::zero},
    {"full_attention_interval", Neutral::zero_or_one},
    {"hash_layer_count", Neutral::zero},
    {"hidden_activation", Neutral::silu},
    {"hyper_connection.count", Neutral::zero},
    {"hyper_connection.epsilon", Neutral::any},
    {"hyper_connection.sinkhorn_iterations", Neutral::zero},
    {"interleave_moe_layer_step", Neutral::zero_or_one},
    {"kda.head_dim", Neutral::zero},
    {"leading_dense_block_count", Neutral::zero},
    {"logit_scale", Neutral::zero_or_one},
    {"moe_every_n_layers", Neutral::zero_or_one},
    {"moe_latent_size", Neutral::zero},
    {"n_deepstack_layers", Neutral::zero},
    {"nextn_predict_layers", Neutral::zero},
    {"norm_before_residual", Neutral::zero},
    {"norm_top_k_prob", Neutral::yes},
    {"pooling_type", Neutral::unset_or_zero},
    {"posnet.block_count", Neutral::zero},
    {"posnet.embedding_length", Neutral::zero},
    {"rescale_every_n_layers", Neutral::zero},
    {"residual_scale", Neutral::zero_or_one},
    {"rope.dimension_count_swa", Neutral::any},
    {"rope.dimension_sections", Neutral::zero},
    {"rope.freq_base_swa", Neutral::any},
    {"rope.scale_linear", Neutral::zero_or_one},
    {"rope.scaling.alpha", Neutral::zero_or_one},
    {"rope.scaling.attn_factor", Neutral::zero_or_one},
    {"rope.scaling.factor", Neutral::zero_or_one},
    {"rope.scaling.finetuned", Neutral::any},
    {"rope.scaling.original_context_length", Neutral::any},  // of a scaling whose type is judged by itself
    {"rope.scaling.yarn_attn_factor", Neutral::zero_or_one},
    {"rope.scaling.yarn_beta_fast", Neutral::any},
    {"rope.scaling.yarn_beta_slow", Neutral::any},
    {"rope.scaling.yarn_ext_factor", Neutral::unset_or_zero},
    {"rope.scaling.yarn_log_multiplier", Neutral::zero},
    {"router_logit_softcapping", Neutral::zero},
    {"shortconv.l_cache", Neutral::zero},
    {"ssm.conv_kernel", Neutral::zero},
    {"ssm.dt_b_c_rms", Neutral::zero},
    {"ssm.group_count", Neutral::zero},
    {"ssm.inner_size", Neutral::zero},
    {"ssm.state_size", Neutral::zero},
    {"ssm.time_step_rank", Neutral::zero},
    {"swiglu_clamp_exp", Neutral::zero},
    {"swiglu_clamp_shexp", Neutral::zero},
    {"swin_norm", Neutral::zero},
    {"target_hidden_size", Neutral::zero},
    {"target_layers", Neutral::zero},
    {"tensor_data_layout", Neutral::any},
    {"time_decay_extra_dim", Neutral::zero},
    {"time_mix_extra_dim", Neutral::zero},
    {"token_shift_count", Neutral::zero},
    {"use_parallel_residual", Neutral::zero},
    {"vocab_size", Neutral::any},  // the rows of token_embd count
    {"wkv.head_size", Neutral::zero},
};

constexpr bool sorted() {
  for (size_t i = 1; i < std::size(known_keys); ++i)
    if (!(known_keys[i - 1].name < known_keys[i].name)) return false;
  return true;
}
static_assert(sorted());

const KnownKey* find_known(std::string_view name) {
  const auto* found =
      std::lower_bound(std::begin(known_keys), std::end(known_keys), name,
                       [](const KnownKey& row, std::string_view key) { return row.name < key; });
  return found != std::end(known_keys) && found->name == name ? found : nullptr;
}

bool accepts_number(Neutral neutral, double x, const ModelConfig& c) {
  switch (neutral) {
    case Neutral::any:
      return true;
    case Neutral::zero:
      return x == 0;
    case Neutral::zero_or_one:
    case Neutral::softmax:
      return x == 0 || x == 1;
    case Neutral::unset_or_zero:
      return x == 0 || x == -1;
    case Neutral::yes:
      return x == 1;
    case Neutral::silu:
      return false;
    case Neutral::hidden:
      return x == 0 || x == static_cast<double>(c.hidden);
    case Neutral::head_scale:
      return x == 0 || std::abs(x * std::sqrt(c.head_dim) - 1) < 1e-6;
  }
  return false;
}

bool accepts_text(Neutral neutral, std::string_view text) {
  return neutral == Neutral::any || text.empty() ||
         (neutral == Neutral::silu && (text == "silu" || text == "swiglu"));
}

bool accepts(Neutral neutral, const gguf::Value& value, const ModelConfig& c) {
  return std::visit(
      [&](const auto& data) {
        using T = std::decay_t<decltype(data)>;
        if constexpr (std::is_same_v<T, std::string>) {
          return accepts_text(neutral, data);
        } else if constexpr (std::is_same_v<T, gguf::Array>) {
          const auto number = [&](auto x) { return accepts_number(neutral, static_cast<double>(x), c); };
          const auto all = [](const auto& elements, auto accepted) {
            return std::all_of(elements.begin(), elements.end(), accepted);
          };
          return all(data.integers(), number) && all(data.reals(), number) &&
                 all(data.strings(), [&](std::string_view text) { return accepts_text(neutral, text); });
        } else {
          return accepts_number(neutral, static_cast<double>(data), c);
        }
      },
      value.data);
}

std::string expected(Neutral neutral, const gguf::Value& value, const ModelConfig& c) {
  switch (neutral) {
    case Neutral::any:
      return "anything";
    case Neutral::zero:
      return std::holds_alternative<bool>(value.data) ? "false" : "0";
    case Neutral::zero_or_one:
      return "1, or 0 for none";
    case Neutral::unset_or_zero:
      return "0";
    case Neutral::yes:
      return "true";
    case Neutral::softmax:
      return "1, softmax";
    case Neutral::silu:
      return "silu";
    case Neutral::hidden:
      return fmt::format("embedding_length, {}", c.hidden);
    case Neutral::head_scale:
      return fmt::format("1 / sqrt({}), {:.6g}", c.head_dim, 1 / std::sqrt(c.head_dim));
  }
  return "?";
}

}  // namespace

UnreadKeys judge_unread(const ArchitectureKeys& keys, const ModelConfig& config) {
  UnreadKeys unread;
  const std::string prefix = keys.full("");
  const auto& metadata = keys.model().metadata();
  for (auto entry = metadata.lower_bound(prefix); entry != metadata.end(); ++entry) {
    const auto& [key, value] = *entry;
    if (key.compare(0, prefix.size(), prefix) != 0) break;
    const std::string_view name = std::string_view(key).substr(prefix.size());
    if (keys.was_read(name)) continue;
    const KnownKey* known = find_known(name);
    if (!known)
      unread.unknown.push_back(fmt::format("{} is unknown and has no effect", key));
    else if (!accepts(known->neutral, value, config))
      unread.refused.push_back(fmt::format("{} is {}, which is not supported: expected {}", key,
                                           gguf::describe(value), expected(known->neutral, value, config)));
  }
  return unread;
}

}  // namespace weir
