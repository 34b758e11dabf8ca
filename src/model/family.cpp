#include "model/family.h"

#include <fmt/format.h>

#include <charconv>
#include <optional>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "model/head_block.h"
#include "model/known_keys.h"

namespace weir {

namespace {

struct Row {
  const char* architecture;
  std::unique_ptr<Family> (*make)(const gguf::Model& model, ArchitectureKeys& keys);
};

// Adding a family is one file under families/ and one row here.
constexpr Row families[] = {
    {"qwen3moe", make_qwen3moe},
    {"qwen3", make_qwen3},
};

std::string shape(const gguf::Tensor& t) {
  std::string text = "{";
  for (int i = 0; i < t.n_dims; ++i)
    text += fmt::format("{}{}", i ? ", " : "", t.dims[static_cast<size_t>(i)]);
  return text + "}";
}

void check_computable(const gguf::Model& model, const gguf::Tensor& t) {
  if (!t.info->computable)
    throw input_error("{}: tensor {} is {}, which weir cannot compute with: expected one of {}", model.path(),
                      t.name, t.info->name, computable_types());
}

/// N of "blk.N.": nothing where the name has no such beginning.
std::optional<int64_t> layer_of(std::string_view name) {
  constexpr std::string_view prefix = "blk.";
  if (name.substr(0, prefix.size()) != prefix) return std::nullopt;
  name.remove_prefix(prefix.size());
  int64_t layer = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), layer);
  if (error != std::errc() || end == name.data() + name.size() || *end != '.') return std::nullopt;
  return layer;
}

}  // namespace

std::string Family::supported() {
  std::string text;
  for (const auto& row : families) text += fmt::format("{}{}", text.empty() ? "" : ", ", row.architecture);
  return text;
}

bool Family::supports(std::string_view architecture) {
  for (const auto& row : families)
    if (architecture == row.architecture) return true;
  return false;
}

/// The family of the file, with what speaks against it, without the file's name. Throws where none can be
/// made.
std::unique_ptr<Family> Family::make(const gguf::Model& model, std::vector<std::string>& objections) {
  const std::string type = model.string("general.type").value_or("model");
  if (type != "model") throw input_error("{}: general.type is {}: expected model", model.path(), quote(type));
  ArchitectureKeys keys(model);
  for (const auto& row : families) {
    if (keys.architecture() != row.architecture) continue;
    auto family = row.make(model, keys);
    UnreadKeys unread = judge_unread(keys, family->config());
    family->warnings_ = std::move(unread.unknown);
    objections = std::move(unread.refused);
    for (auto& unused : family->unused_tensors(model)) objections.push_back(std::move(unused));
    return family;
  }
  throw input_error("{}: general.architecture {} is not supported: expected one of {}", model.path(),
                    quote(keys.architecture()), supported());
}

std::unique_ptr<Family> Family::create(const gguf::Model& model) {
  std::vector<std::string> objections;
  auto family = make(model, objections);
  if (!objections.empty())
    throw input_error(
        "{}: {}{}", model.path(), objections.front(),
        objections.size() == 1 ? "" : fmt::format(" (and {} more: see weir info)", objections.size() - 1));
  return family;
}

Family::Verdict Family::examine(const gguf::Model& model) {
  Verdict verdict;
  try {
    verdict.warnings = make(model, verdict.objections)->warnings();
  } catch (const Error& error) {
    verdict.objections = {error.what()};
  }
  return verdict;
}

void Family::require_rows(const gguf::Model& model, int tokens) const {
  if (tokens > config_.vocab)
    throw input_error("{}: the tokenizer has {} tokens but token_embd.weight has {} rows", model.path(),
                      tokens, config_.vocab);
}

/// Tensors of no named part, in the file's order. Silence about one would be a different model's output.
std::vector<std::string> Family::unused_tensors(const gguf::Model& model) const {
  std::set<const gguf::Tensor*> used = used_;
  used.insert(resident_.begin(), resident_.end());
  for (const auto& layer : experts_)
    for (const auto& named : layer) used.insert(named.tensor);
  std::vector<std::string> lines;
  for (const auto& tensor : model.tensors()) {
    if (used.count(&tensor)) continue;
    const std::string name = printable(tensor.name);
    if (const auto layer = layer_of(tensor.name); layer && *layer >= config_.layers)
      lines.push_back(
          fmt::format("tensor {} is of layer {}, but {}.block_count is {}: expected layers 0 to {}", name,
                      *layer, config_.architecture, config_.layers, config_.layers - 1));
    else
      lines.push_back(fmt::format("tensor {} is not used by {}", name, config_.architecture));
  }
  return lines;
}

void Family::need_vector(const gguf::Model& model, const std::string& name, int64_t n) {
  const gguf::Tensor& t = model.tensor(name);
  if (t.elements() != n || t.dims[0] != n)
    throw input_error("{}: tensor {} has shape {}: expected {{{}}}", model.path(), name, shape(t), n);
  if (t.type != Type::F32)
    throw input_error("{}: tensor {} is {}: expected F32", model.path(), name, t.info->name);
  resident_.push_back(&t);
}

void Family::need_matrix(const gguf::Model& model, const std::string& name, int64_t in, int64_t out) {
  const gguf::Tensor& t = model.tensor(name);
  if (t.dims[0] != in || t.dims[1] != out || t.elements() != in * out)
    throw input_error("{}: tensor {} has shape {}: expected {{{}, {}}}", model.path(), name, shape(t), in,
                      out);
  check_computable(model, t);
  resident_.push_back(&t);
}

void Family::need_ends(const gguf::Model& model) {
  for (const auto& name : HeadBlock::tensors(model)) need_matrix(model, name, config_.hidden, config_.vocab);
  need_vector(model, "output_norm.weight", config_.hidden);
  if (model.find(rope_factors_tensor)) need_vector(model, rope_factors_tensor, config_.n_rot / 2);
}

void Family::need_attention(const gguf::Model& model, int layer) {
  const auto& c = config_;
  const std::string p = fmt::format("blk.{}.", layer);
  const int64_t q = static_cast<int64_t>(c.heads) * c.head_dim,
                kv = static_cast<int64_t>(c.kv_heads) * c.head_dim;
  for (const auto& [name, n] :
       {std::pair{"attn_q.bias", q}, std::pair{"attn_k.bias", kv}, std::pair{"attn_v.bias", kv}})
    if (model.find(p + name)) need_vector(model, p + name, n);
  need_vector(model, p + "attn_norm.weight", c.hidden);
  need_matrix(model, p + "attn_q.weight", c.hidden, q);
  need_matrix(model, p + "attn_k.weight", c.hidden, kv);
  need_matrix(model, p + "attn_v.weight", c.hidden, kv);
  need_matrix(model, p + "attn_output.weight", q, c.hidden);
  need_vector(model, p + "attn_q_norm.weight", c.head_dim);
  need_vector(model, p + "attn_k_norm.weight", c.head_dim);
  need_vector(model, p + "ffn_norm.weight", c.hidden);
}

void Family::need_experts(const gguf::Model& model, int layer) {
  const std::string p = fmt::format("blk.{}.", layer);
  const auto& c = config_;
  std::vector<ExpertStore::Named> named;
  const auto need = [&](ExpertPartKind kind, const std::string& suffix, int64_t in, int64_t out) {
    const gguf::Tensor& t = model.tensor(p + suffix);
    if (t.dims[0] != in || t.dims[1] != out || t.dims[2] != c.experts || t.dims[3] != 1)
      throw input_error("{}: tensor {} has shape {}: expected {{{}, {}, {}}}", model.path(), t.name, shape(t),
                        in, out, c.experts);
    check_computable(model, t);
    named.push_back({kind, &t});
  };
  if (model.find(p + "ffn_gate_up_exps.weight")) {
    need(ExpertPartKind::gate_up, "ffn_gate_up_exps.weight", c.hidden, 2 * c.expert_ff);
  } else {
    need(ExpertPartKind::gate, "ffn_gate_exps.weight", c.hidden, c.expert_ff);
    need(ExpertPartKind::up, "ffn_up_exps.weight", c.hidden, c.expert_ff);
  }
  need(ExpertPartKind::down, "ffn_down_exps.weight", c.expert_ff, c.hidden);
  experts_[static_cast<size_t>(layer)] = std::move(named);
}

}  // namespace weir
