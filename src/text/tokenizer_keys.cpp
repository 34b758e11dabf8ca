#include "text/tokenizer_keys.h"

#include <algorithm>
#include <iterator>
#include <string_view>
#include <type_traits>

#include "base/error.h"
#include "gguf/describe.h"
#include "gguf/reader.h"

namespace weir {
namespace {

constexpr std::string_view prefix = "tokenizer.ggml.";

// Read by text/vocabulary.cpp, or without a part in byte-level BPE: ids of tokens that nothing here asks for,
// scores (merges have ranks), names and counts.
constexpr std::string_view harmless[] = {
    "add_bos_token",
    "add_eos_token",
    "added_tokens",
    "bos_token_id",
    "cls_token_id",
    "eom_token_id",
    "eos_token_id",
    "eos_token_ids",
    "eot_token_id",
    "fim_mid_token_id",
    "fim_pad_token_id",
    "fim_pre_token_id",
    "fim_rep_token_id",
    "fim_sep_token_id",
    "fim_suf_token_id",
    "mask_token_id",
    "merges",
    "middle_token_id",
    "model",
    "padding_token_id",
    "pre",
    "prefix_token_id",
    "scores",
    "sep_token_id",
    "separator_token_id",
    "seperator_token_id",
    "suffix_token_id",
    "token_type",
    "token_type_count",
    "tokens",
    "unk_token_id",
    "unknown_token_id",
};

// Change what a text becomes, or which tokens may be chosen, unless they are false, 0 or empty.
constexpr std::string_view changing[] = {
    "add_sep_token",
    "add_space_prefix",
    "escape_whitespaces",
    "normalizer.lowercase",
    "normalizer.strip_accents",
    "precompiled_charsmap",
    "remove_extra_whitespaces",
    "suppress_tokens",
    "treat_whitespace_as_suffix",
};

template <size_t N>
bool holds(const std::string_view (&list)[N], std::string_view name) {
  return std::find(std::begin(list), std::end(list), name) != std::end(list);
}

bool is_off(const gguf::Value& value) {
  return std::visit(
      [](const auto& data) {
        using T = std::decay_t<decltype(data)>;
        if constexpr (std::is_same_v<T, std::string>)
          return data.empty();
        else if constexpr (std::is_same_v<T, gguf::Array>)
          return data.size() == 0;
        else
          return data == T{};
      },
      value.data);
}

template <typename F>
void for_each_key(const gguf::Model& model, F&& see) {
  const auto& metadata = model.metadata();
  for (auto entry = metadata.lower_bound(prefix); entry != metadata.end(); ++entry) {
    if (entry->first.compare(0, prefix.size(), prefix) != 0) return;
    see(entry->first, std::string_view(entry->first).substr(prefix.size()), entry->second);
  }
}

}  // namespace

void refuse_tokenizer_keys(const gguf::Model& model) {
  for_each_key(model, [&](const std::string& key, std::string_view name, const gguf::Value& value) {
    if (holds(changing, name) && !is_off(value))
      throw input_error("{}: {} is {}, which is not supported: expected false, 0 or empty", model.path(), key,
                        gguf::describe(value));
  });
}

std::vector<std::string> unknown_tokenizer_keys(const gguf::Model& model) {
  std::vector<std::string> lines;
  for_each_key(model, [&](const std::string& key, std::string_view name, const gguf::Value&) {
    if (!holds(harmless, name) && !holds(changing, name))
      lines.push_back(fmt::format("{} is unknown and has no effect", key));
  });
  return lines;
}

}  // namespace weir
