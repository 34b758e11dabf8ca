// The tiny models: names and shapes as in published files of these families, values at random.
#include "support/tiny_model.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>
#include <stdexcept>
#include <utility>

#include "base/random.h"

namespace weir::test {
namespace {

/// Mean 0, deviation 1: the sum of four uniforms, so that every machine makes the same values (no libm).
float gaussian(uint64_t seed, uint64_t counter) {
  double sum = -2;
  for (uint64_t i = 0; i < 4; ++i) sum += random_unit(seed, 4 * counter + i);
  return static_cast<float>(sum * 1.7320508075688772);
}

uint32_t float_bits(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

/// Round to nearest, ties to even; the values here are finite and far from the largest half.
uint16_t to_half(float value) {
  const uint32_t bits = float_bits(value), sign = (bits >> 16) & 0x8000u;
  const float magnitude = std::fabs(value);
  if (magnitude < 0x1p-14f)
    return static_cast<uint16_t>(sign | static_cast<uint32_t>(std::rint(magnitude * 0x1p24f)));
  const uint32_t kept = (bits & 0x7fffffffu) - (112u << 23);
  return static_cast<uint16_t>(sign | ((kept + 0xfffu + ((kept >> 13) & 1u)) >> 13));
}

uint16_t to_bf16(float value) {
  const uint32_t bits = float_bits(value);
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

void put(std::vector<uint8_t>& out, size_t at, uint16_t value) {
  std::memcpy(out.data() + at, &value, sizeof value);
}

std::vector<uint8_t> random_floats(Type type, int64_t elements, float std, uint64_t key) {
  const size_t n = static_cast<size_t>(elements), width = type == Type::F32 ? 4 : 2;
  std::vector<uint8_t> out(n * width);
  for (size_t i = 0; i < n; ++i) {
    const float value = std * gaussian(key, i);
    if (type == Type::F32) std::memcpy(out.data() + 4 * i, &value, sizeof value);
    if (type == Type::F16) put(out, 2 * i, to_half(value));
    if (type == Type::BF16) put(out, 2 * i, to_bf16(value));
  }
  return out;
}

/// Where a block keeps its halves, and the deviation of its values, in units of d, when all other bytes are
/// random: quants uniform over their range, 6-bit scales and minima uniform over 0..63, Q6_K's int8 scales
/// over -128..127.
struct BlockScale {
  Type type;
  size_t d_at, dmin_at;  ///< dmin_at 0: none
  float deviation;
};
constexpr BlockScale block_scales[] = {
    {Type::Q8_0, 0, 0, 73.9f},
    {Type::Q5_0, 0, 0, 9.23f},
    {Type::Q4_K, 0, 2, 256.0f},  // with dmin = 7.5 d the mean is 0
    {Type::Q6_K, 208, 0, 1367.0f},
};

/// Null for types whose bytes mean nothing to us.
const BlockScale* block_scale(Type type) {
  const auto* found = std::find_if(std::begin(block_scales), std::end(block_scales),
                                   [&](const BlockScale& scale) { return scale.type == type; });
  return found == std::end(block_scales) ? nullptr : found;
}

/// Adds tensors with a stream of random numbers each.
class Builder {
 public:
  explicit Builder(const TinyModelOptions& options) : o_(options) {}
  gguf::Writer build();

 private:
  void metadata();
  void vocabulary();
  void layer(int index);
  void attention(const std::string& prefix);
  void experts(const std::string& prefix, size_t index);
  void weight(const std::string& name, Type type, const std::vector<int64_t>& dims, float scale = 1.0f);
  void norm(const std::string& name, int64_t n);
  void vector(const std::string& name, const std::vector<float>& values);
  void bias(const std::string& name, int64_t n);
  bool dense() const { return o_.architecture == "qwen3"; }

  const TinyModelOptions& o_;
  gguf::Writer writer_;
  uint64_t stream_ = 0, bias_stream_ = 1 << 20;
};

void Builder::weight(const std::string& name, Type type, const std::vector<int64_t>& dims, float scale) {
  int64_t elements = 1;
  for (int64_t d : dims) elements *= d;
  const float std = scale / std::sqrt(static_cast<float>(dims[0]));
  writer_.add_tensor(name, type, dims, random_blocks(type, elements, std, o_.seed, stream_++));
}

/// About one, but no two alike: a norm that is left out or swapped shows.
void Builder::norm(const std::string& name, int64_t n) {
  std::vector<uint8_t> data(static_cast<size_t>(n) * 4);
  const uint64_t key = random_u64(o_.seed, stream_++);
  for (int64_t i = 0; i < n; ++i) {
    const float value = 1.0f + 0.1f * gaussian(key, static_cast<uint64_t>(i));
    std::memcpy(data.data() + 4 * i, &value, sizeof value);
  }
  writer_.add_tensor(name, Type::F32, {n}, std::move(data));
}

void Builder::vector(const std::string& name, const std::vector<float>& values) {
  std::vector<uint8_t> data(values.size() * sizeof(float));
  std::memcpy(data.data(), values.data(), data.size());
  writer_.add_tensor(name, Type::F32, {static_cast<int64_t>(values.size())}, std::move(data));
}

void Builder::bias(const std::string& name, int64_t n) {
  const uint64_t key = random_u64(o_.seed, bias_stream_++);
  std::vector<float> values(static_cast<size_t>(n));
  for (size_t i = 0; i < values.size(); ++i) values[i] = gaussian(key, i);
  vector(name, values);
}

/// The printable stand-ins of the 256 bytes in byte-level vocabularies: printable Latin-1 stands for itself,
/// the others count up from U+0100.
std::vector<std::string> byte_pieces() {
  std::vector<std::string> pieces;
  uint32_t next = 256;
  for (uint32_t b = 0; b < 256; ++b) {
    const bool itself = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
    const uint32_t c = itself ? b : next++;
    if (c < 128) {
      pieces.push_back(std::string(1, static_cast<char>(c)));
    } else {
      pieces.push_back({static_cast<char>(0xc0 | (c >> 6)), static_cast<char>(0x80 | (c & 63))});
    }
  }
  return pieces;
}

const std::vector<std::pair<std::string, std::string>>& merges() {
  static const std::vector<std::pair<std::string, std::string>> pairs{
      {"\u0120", "t"}, {"h", "e"}, {"i", "n"}, {"e", "r"}, {"\u0120t", "he"}};
  return pairs;
}

const std::vector<std::string>& specials() {
  static const std::vector<std::string> names{"<|endoftext|>", "<|im_start|>", "<|im_end|>"};
  return names;
}

void Builder::vocabulary() {
  std::vector<std::string> tokens = byte_pieces(), merge_lines;
  for (const auto& [left, right] : merges()) {
    tokens.push_back(left + right);
    merge_lines.push_back(left + " " + right);
  }
  std::vector<int32_t> types(tokens.size(), 1);
  for (const std::string& name : specials()) {
    tokens.push_back(name);
    types.push_back(3);
  }
  const uint32_t size = static_cast<uint32_t>(tokens.size());
  writer_.set("tokenizer.ggml.model", o_.tokenizer_model);
  writer_.set("tokenizer.ggml.pre", o_.pretokenizer);
  writer_.set("tokenizer.ggml.tokens", tokens);
  writer_.set("tokenizer.ggml.token_type", types);
  writer_.set("tokenizer.ggml.merges", merge_lines);
  writer_.set("tokenizer.ggml.eos_token_id", size - 1);
  writer_.set("tokenizer.ggml.padding_token_id", size - 3);
  writer_.set("tokenizer.ggml.add_bos_token", false);
}

void Builder::metadata() {
  const std::string arch = o_.architecture + ".";
  const auto set = [&](const char* key, int value) { writer_.set(arch + key, static_cast<uint32_t>(value)); };
  writer_.set("general.architecture", o_.architecture);
  writer_.set("general.name", "tiny random " + o_.architecture);
  set("block_count", o_.layers);
  set("context_length", o_.context);
  set("embedding_length", o_.hidden);
  set("feed_forward_length", dense() ? o_.dense_ff : o_.expert_ff * o_.top_k);
  set("attention.head_count", o_.heads);
  set("attention.head_count_kv", o_.kv_heads);
  set("attention.key_length", o_.head_dim);
  set("attention.value_length", o_.head_dim);
  writer_.set(arch + "attention.layer_norm_rms_epsilon", 1e-6f);
  writer_.set(arch + "rope.freq_base", 1e6f);
  if (o_.n_rot > 0) set("rope.dimension_count", o_.n_rot);
  if (!o_.rope_scaling.empty()) writer_.set(arch + "rope.scaling.type", o_.rope_scaling);
  if (o_.rope_original_context > 0) set("rope.scaling.original_context_length", o_.rope_original_context);
  for (const auto& [key, value] : o_.rope_keys) writer_.set(arch + "rope." + key, value);
  if (!dense()) {
    set("expert_count", o_.experts);
    set("expert_used_count", o_.top_k);
    set("expert_feed_forward_length", o_.expert_ff);
  }
}

void Builder::attention(const std::string& prefix) {
  const int64_t hidden = o_.hidden, q = int64_t{o_.heads} * o_.head_dim,
                kv = int64_t{o_.kv_heads} * o_.head_dim;
  norm(prefix + "attn_norm.weight", hidden);
  weight(prefix + "attn_q.weight", o_.attention, {hidden, q});
  weight(prefix + "attn_k.weight", o_.attention, {hidden, kv});
  weight(prefix + "attn_v.weight", o_.attention, {hidden, kv});
  weight(prefix + "attn_output.weight", o_.attention, {q, hidden});
  if (o_.biases) {
    bias(prefix + "attn_q.bias", q);
    bias(prefix + "attn_k.bias", kv);
    bias(prefix + "attn_v.bias", kv);
  }
  norm(prefix + "attn_q_norm.weight", o_.head_dim);
  norm(prefix + "attn_k_norm.weight", o_.head_dim);
}

void Builder::experts(const std::string& prefix, size_t index) {
  const auto of_layer = [&](const std::vector<Type>& types) { return types[index % types.size()]; };
  const int64_t hidden = o_.hidden, ff = o_.expert_ff, count = o_.experts;
  weight(prefix + "ffn_gate_inp.weight", Type::F32, {hidden, count}, o_.router_scale);
  if (o_.fused_gate_up) {
    weight(prefix + "ffn_gate_up_exps.weight", of_layer(o_.gate_types), {hidden, 2 * ff, count});
  } else {
    weight(prefix + "ffn_gate_exps.weight", of_layer(o_.gate_types), {hidden, ff, count});
    weight(prefix + "ffn_up_exps.weight", of_layer(o_.up_types), {hidden, ff, count});
  }
  weight(prefix + "ffn_down_exps.weight", of_layer(o_.down_types), {ff, hidden, count});
}

void Builder::layer(int index) {
  const std::string prefix = "blk." + std::to_string(index) + ".";
  attention(prefix);
  norm(prefix + "ffn_norm.weight", o_.hidden);
  if (!dense()) return experts(prefix, static_cast<size_t>(index));
  weight(prefix + "ffn_gate.weight", o_.dense, {o_.hidden, o_.dense_ff});
  weight(prefix + "ffn_up.weight", o_.dense, {o_.hidden, o_.dense_ff});
  weight(prefix + "ffn_down.weight", o_.dense, {o_.dense_ff, o_.hidden});
}

gguf::Writer Builder::build() {
  metadata();
  vocabulary();
  const int rows = tiny_vocabulary_size() + o_.spare_rows;
  weight("token_embd.weight", o_.embedding, {o_.hidden, rows});
  norm("output_norm.weight", o_.hidden);
  if (!o_.tied_head) weight("output.weight", o_.output, {o_.hidden, rows});
  if (o_.rope_factors) {
    std::vector<float> factors(static_cast<size_t>((o_.n_rot > 0 ? o_.n_rot : o_.head_dim) / 2));
    for (size_t i = 0; i < factors.size(); ++i) factors[i] = 1.0f + 0.375f * static_cast<float>(i);
    vector("rope_freqs.weight", factors);
  }
  for (int i = 0; i < o_.layers; ++i) layer(i);
  return std::move(writer_);
}

}  // namespace

std::vector<uint8_t> random_blocks(Type type, int64_t elements, float std, uint64_t seed, uint64_t stream) {
  const TypeInfo& info = type_info(type);
  if (elements % info.block_elements != 0)
    throw std::invalid_argument("random_blocks: part of a block of " +
                                type_name(static_cast<uint32_t>(type)));
  const uint64_t key = random_u64(seed, stream);
  if (type == Type::F32 || type == Type::F16 || type == Type::BF16)
    return random_floats(type, elements, std, key);

  std::vector<uint8_t> out(info.bytes(static_cast<uint64_t>(elements)));
  for (size_t i = 0; i < out.size(); i += 8) {
    const uint64_t bytes = random_u64(key, i / 8);
    std::memcpy(out.data() + i, &bytes, std::min<size_t>(8, out.size() - i));
  }
  const BlockScale* scale = block_scale(type);
  if (!scale) return out;
  const float d = std / scale->deviation;
  for (size_t block = 0; block < out.size(); block += static_cast<size_t>(info.block_bytes)) {
    put(out, block + scale->d_at, to_half(d));
    if (scale->dmin_at != 0) put(out, block + scale->dmin_at, to_half(7.5f * d));
  }
  return out;
}

TinyModelOptions tiny_dense_options() {
  TinyModelOptions options;
  options.architecture = "qwen3";
  return options;
}

TinyModelOptions tiny_kquant_options() {
  TinyModelOptions options;
  options.hidden = 256;
  options.expert_ff = 256;
  options.head_dim = 64;
  options.embedding = options.attention = Type::Q4_K;
  options.output = Type::Q6_K;
  options.gate_types = options.up_types = {Type::Q4_K};
  options.down_types = {Type::Q6_K, Type::Q4_K};
  return options;
}

int tiny_vocabulary_size() { return static_cast<int>(256 + merges().size() + specials().size()); }

gguf::Writer tiny_model(const TinyModelOptions& options) { return Builder(options).build(); }

std::string write_tiny_model(const std::string& path, const TinyModelOptions& options) {
  tiny_model(options).write(path);
  return path;
}

}  // namespace weir::test
