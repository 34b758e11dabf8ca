// Reads a Vocabulary from a GGUF model's metadata. See vocabulary.h.
#include "text/vocabulary.h"

#include <array>

#include "base/error.h"
#include "base/log.h"
#include "gguf/keys.h"
#include "gguf/reader.h"
#include "text/tokenizer_keys.h"

namespace weir {
namespace {

constexpr const char* model_key = "tokenizer.ggml.model";
constexpr const char* pre_key = "tokenizer.ggml.pre";
constexpr const char* tokens_key = "tokenizer.ggml.tokens";
constexpr const char* types_key = "tokenizer.ggml.token_type";
constexpr const char* merges_key = "tokenizer.ggml.merges";
constexpr const char* several_ends_key = "tokenizer.ggml.eos_token_ids";

// Ids that end a generation besides eos: end of turn and of message, and those that close a
// fill-in-the-middle.
constexpr std::array end_keys = {"tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id",
                                 "tokenizer.ggml.fim_pad_token_id", "tokenizer.ggml.fim_rep_token_id",
                                 "tokenizer.ggml.fim_sep_token_id"};

/// Files are published with 2^32 - 1 for "none": -1 with a warning for what is outside the vocabulary.
Token checked_id(const gguf::Model& model, const char* key, int64_t id, size_t tokens) {
  if (id >= 0 && static_cast<uint64_t>(id) < tokens) return static_cast<Token>(id);
  warn("{}: {} is {}, outside the {} tokens of the vocabulary: there is no such token", model.path(), key, id,
       tokens);
  return -1;
}

/// -1 where the key is absent.
Token optional_id(const gguf::Model& model, const char* key, size_t tokens) {
  // -1 in an unsigned word is more than an integer holds; it means as little as any other id out of range.
  if (const auto entry = model.metadata().find(key); entry != model.metadata().end())
    if (const auto* word = std::get_if<uint64_t>(&entry->second.data); word && *word > INT64_MAX)
      return checked_id(model, key, -1, tokens);
  const std::optional<int64_t> id = model.integer(key);
  return id ? checked_id(model, key, *id, tokens) : -1;
}

std::vector<std::string> strings(const gguf::Model& model, const char* key) {
  const gguf::Array* array = model.array(key);
  if (array == nullptr)
    throw input_error("{}: {} is missing: an array of strings is needed", model.path(), key);
  if (!array->has_strings()) {
    throw input_error("{}: {} is an array of {}: strings are needed", model.path(), key,
                      gguf::value_type_name(array->element));
  }
  const auto values = array->strings();
  return {values.begin(), values.end()};
}

std::vector<TokenType> types(const gguf::Model& model, size_t tokens) {
  const gguf::Array* array = model.array(types_key);
  if (array == nullptr) return std::vector<TokenType>(tokens, TokenType::normal);
  if (array->integers().size() != tokens) {
    throw input_error("{}: {} has {} integers, {} has {} tokens: they must be as many", model.path(),
                      types_key, array->integers().size(), tokens_key, tokens);
  }
  std::vector<TokenType> result(tokens);
  for (size_t i = 0; i < tokens; ++i) {
    const int64_t type = array->integer(i);
    if (type < 0 || type > 6) {
      throw input_error("{}: {}[{}] is {}: a type from 0 to 6 is needed", model.path(), types_key, i, type);
    }
    result[i] = type == 0 ? TokenType::normal : static_cast<TokenType>(type);  // 0: undefined
  }
  return result;
}

}  // namespace

Vocabulary load_vocabulary(const gguf::Model& model) {
  const std::string kind = model.require_string(model_key);
  if (kind != "gpt2") {
    throw input_error("{}: {} is '{}', which is not supported (supported: gpt2, which is byte-level BPE)",
                      model.path(), model_key, kind);
  }
  refuse_tokenizer_keys(model);
  Vocabulary vocabulary;
  vocabulary.source = model.path();
  vocabulary.pre = model.require_string(pre_key);
  vocabulary.tokens = strings(model, tokens_key);
  const size_t tokens = vocabulary.tokens.size();
  vocabulary.types = types(model, tokens);
  vocabulary.merges = strings(model, merges_key);
  vocabulary.bos = optional_id(model, "tokenizer.ggml.bos_token_id", tokens);
  vocabulary.eos = optional_id(model, "tokenizer.ggml.eos_token_id", tokens);
  vocabulary.unknown = optional_id(model, "tokenizer.ggml.unknown_token_id", tokens);
  for (const char* key : end_keys) {
    if (const Token id = optional_id(model, key, tokens); id >= 0) vocabulary.ends.push_back(id);
  }
  if (const gguf::Array* several = model.array(several_ends_key)) {
    if (several->integers().size() != several->size())
      throw input_error("{}: {} is an array of {}: integers are needed", model.path(), several_ends_key,
                        gguf::value_type_name(several->element));
    for (const int64_t id : several->integers()) {
      if (const Token end = checked_id(model, several_ends_key, id, tokens); end >= 0)
        vocabulary.ends.push_back(end);
    }
  }
  vocabulary.add_bos = model.boolean("tokenizer.ggml.add_bos_token");
  vocabulary.add_eos = model.boolean("tokenizer.ggml.add_eos_token").value_or(false);
  return vocabulary;
}

std::unique_ptr<Tokenizer> Tokenizer::load(const gguf::Model& model) {
  return make_tokenizer(load_vocabulary(model));
}

}  // namespace weir
