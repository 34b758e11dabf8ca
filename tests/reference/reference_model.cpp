#include "reference/reference_model.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <numeric>

#include "quant/types.h"

namespace weir::reference {

Model::Model(const std::string& path) : file_(gguf::Model::open(path)) {
  arch_ = file_.require_string("general.architecture");
  const auto integer = [&](const char* key) { return file_.require_integer(arch_ + "." + key); };
  layers_ = static_cast<int>(integer("block_count"));
  hidden_ = integer("embedding_length");
  heads_ = static_cast<int>(integer("attention.head_count"));
  kv_heads_ = static_cast<int>(integer("attention.head_count_kv"));
  head_dim_ = static_cast<int>(integer("attention.key_length"));
  n_rot_ = static_cast<int>(file_.integer(arch_ + ".rope.dimension_count").value_or(head_dim_));
  eps_ = file_.require_real(arch_ + ".attention.layer_norm_rms_epsilon");
  ff_ = integer("feed_forward_length");
  if (arch_ == "qwen3moe") {
    experts_ = integer("expert_count");
    top_k_ = integer("expert_used_count");
    ff_ = integer("expert_feed_forward_length");
  }
  read_rope();
}

/// Position interpolation (linear) and YaRN (Peng et al. 2023, section 3), in the form and with the keys of
/// llama.cpp: an interpolated and an own angle, blended by where the pair lies on a ramp.
void Model::read_rope() {
  const std::string p = arch_ + ".rope.";
  const auto real = [&](const char* key, double otherwise) {
    return file_.real(p + key).value_or(otherwise);
  };
  const std::string type = file_.string(p + "scaling.type").value_or("linear");
  const double base = file_.require_real(p + "freq_base"), n = n_rot_;
  double factor = real("scaling.factor", real("scale_linear", 1));
  if (type == "none" || factor == 0) factor = 1;
  double extrapolated = real("scaling.yarn_ext_factor", -1);
  if (extrapolated < 0) extrapolated = type == "yarn" ? 1 : 0;
  const double trained =
      real("scaling.original_context_length", file_.require_real(arch_ + ".context_length"));
  const auto bound = [&](double rotations) {
    return n * std::log(trained / (rotations * 2 * std::acos(-1.0))) / (2 * std::log(base));
  };
  const double low = std::max(0.0, std::floor(bound(real("scaling.yarn_beta_fast", 32)))),
               high = std::min(n - 1, std::ceil(bound(real("scaling.yarn_beta_slow", 1))));
  for (int i = 0; i < n_rot_ / 2; ++i) {
    double own = std::pow(base, -2.0 * i / n);
    if (file_.find("rope_freqs.weight")) own /= tensor("rope_freqs.weight").data[static_cast<size_t>(i)];
    const double ramp = 1 - std::min(1.0, std::max(0.0, (i - low) / std::max(0.001, high - low)));
    const double mix = ramp * extrapolated;
    frequency_.push_back(own / factor * (1 - mix) + own * mix);
  }
  rope_magnitude_ = real("scaling.attn_factor", 1) * real("scaling.yarn_attn_factor", 1);
  if (extrapolated == 0 || factor <= 1) return;
  const double multiple = real("scaling.yarn_log_multiplier", 0);
  rope_magnitude_ *= (1 + 0.1 * std::log(factor)) / (1 + 0.1 * multiple * std::log(factor));
}

void Model::rotate(Vector& heads, int position) const {
  const size_t half = frequency_.size();
  for (size_t at = 0; at < heads.size(); at += static_cast<size_t>(head_dim_)) {
    for (size_t i = 0; i < half; ++i) {
      double &a = heads[at + i], &b = heads[at + i + half];
      const double angle = position * frequency_[i], a0 = a;
      const double c = std::cos(angle) * rope_magnitude_, s = std::sin(angle) * rope_magnitude_;
      a = a * c - b * s;
      b = a0 * s + b * c;
    }
  }
}

const Model::Tensor& Model::tensor(const std::string& name) {
  if (const auto found = cache_.find(name); found != cache_.end()) return found->second;
  const gguf::Tensor& t = file_.tensor(name);
  std::vector<char> raw(t.bytes);
  std::ifstream in(file_.files()[t.file].path, std::ios::binary);
  in.seekg(static_cast<std::streamoff>(t.offset));
  in.read(raw.data(), static_cast<std::streamsize>(raw.size()));
  std::vector<float> values(static_cast<size_t>(t.elements()));
  t.info->decode(raw.data(), values.data(), t.elements());
  Tensor out;
  out.data.assign(values.begin(), values.end());
  out.in = t.dims[0];
  out.out = t.rows();
  return cache_.emplace(name, std::move(out)).first->second;
}

Model::Vector Model::matvec(const std::string& name, const Vector& x, int64_t first_row, int64_t rows) {
  const Tensor& w = tensor(name);
  Vector y(static_cast<size_t>(rows), 0.0);
  for (int64_t o = 0; o < rows; ++o) {
    const double* row = w.data.data() + (first_row + o) * w.in;
    double sum = 0;
    for (int64_t i = 0; i < w.in; ++i) sum += row[i] * x[static_cast<size_t>(i)];
    y[static_cast<size_t>(o)] = sum;
  }
  return y;
}

Model::Vector Model::matvec(const std::string& name, const Vector& x) {
  return matvec(name, x, 0, tensor(name).out);
}

Model::Vector Model::rms(const Vector& x, const std::string& weight) const {
  const Tensor& w = const_cast<Model*>(this)->tensor(weight);
  const auto n = static_cast<size_t>(w.in);
  Vector y(x.size());
  for (size_t at = 0; at < x.size(); at += n) {  // per head where x holds several
    double sum = 0;
    for (size_t i = 0; i < n; ++i) sum += x[at + i] * x[at + i];
    const double scale = 1.0 / std::sqrt(sum / static_cast<double>(n) + eps_);
    for (size_t i = 0; i < n; ++i) y[at + i] = x[at + i] * scale * w.data[i];
  }
  return y;
}

Model::Vector Model::project(const std::string& prefix, const std::string& name, const Vector& x) {
  Vector y = matvec(prefix + name + ".weight", x);
  if (!file_.find(prefix + name + ".bias")) return y;
  const Tensor& bias = tensor(prefix + name + ".bias");
  for (size_t i = 0; i < y.size(); ++i) y[i] += bias.data[i];
  return y;
}

void Model::attention(int layer, int position, Vector& h) {
  const std::string p = "blk." + std::to_string(layer) + ".";
  const Vector x = rms(h, p + "attn_norm.weight");
  Vector q = rms(project(p, "attn_q", x), p + "attn_q_norm.weight");
  Vector k = rms(project(p, "attn_k", x), p + "attn_k_norm.weight");
  rotate(q, position);
  rotate(k, position);
  k_[static_cast<size_t>(layer)].push_back(k);
  v_[static_cast<size_t>(layer)].push_back(project(p, "attn_v", x));

  Vector mixed(q.size(), 0.0);
  const auto d = static_cast<size_t>(head_dim_);
  for (int head = 0; head < heads_; ++head) {
    const size_t kv = static_cast<size_t>(head / (heads_ / kv_heads_)) * d,
                 at = static_cast<size_t>(head) * d;
    Vector score(static_cast<size_t>(position) + 1);
    for (size_t j = 0; j < score.size(); ++j) {
      double sum = 0;
      for (size_t i = 0; i < d; ++i) sum += q[at + i] * k_[static_cast<size_t>(layer)][j][kv + i];
      score[j] = sum / std::sqrt(static_cast<double>(head_dim_));
    }
    const double largest = *std::max_element(score.begin(), score.end());
    double total = 0;
    for (double& s : score) total += (s = std::exp(s - largest));
    for (size_t j = 0; j < score.size(); ++j)
      for (size_t i = 0; i < d; ++i)
        mixed[at + i] += score[j] / total * v_[static_cast<size_t>(layer)][j][kv + i];
  }
  const Vector out = matvec(p + "attn_output.weight", mixed);
  for (size_t i = 0; i < h.size(); ++i) h[i] += out[i];
}

Model::Vector Model::swiglu(const std::string& prefix, const std::string& suffix, const Vector& x, int expert,
                            int64_t ff) {
  const std::string both = prefix + "ffn_gate_up" + suffix;  // gate's rows first
  const bool fused = file_.find(both) != nullptr;
  Vector gate =
      fused ? matvec(both, x, 2 * expert * ff, ff) : matvec(prefix + "ffn_gate" + suffix, x, expert * ff, ff);
  const Vector up = fused ? matvec(both, x, (2 * expert + 1) * ff, ff)
                          : matvec(prefix + "ffn_up" + suffix, x, expert * ff, ff);
  for (size_t i = 0; i < gate.size(); ++i) gate[i] = gate[i] / (1.0 + std::exp(-gate[i])) * up[i];
  return matvec(prefix + "ffn_down" + suffix, gate, expert * hidden_, hidden_);
}

double Model::feed_forward(int layer, Vector& h) {
  const std::string p = "blk." + std::to_string(layer) + ".";
  const Vector x = rms(h, p + "ffn_norm.weight");
  if (experts_ == 0) {
    const Vector out = swiglu(p, ".weight", x, 0, ff_);
    for (size_t i = 0; i < h.size(); ++i) h[i] += out[i];
    return INFINITY;
  }
  const Vector logits = matvec(p + "ffn_gate_inp.weight", x);
  std::vector<int> order(static_cast<size_t>(experts_));
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    return logits[static_cast<size_t>(a)] > logits[static_cast<size_t>(b)];
  });
  const auto k = static_cast<size_t>(top_k_);
  const double largest = logits[static_cast<size_t>(order[0])];
  double total = 0;
  for (size_t i = 0; i < k; ++i) total += std::exp(logits[static_cast<size_t>(order[i])] - largest);
  for (size_t i = 0; i < k; ++i) {
    const double weight = std::exp(logits[static_cast<size_t>(order[i])] - largest) / total;
    const Vector out = swiglu(p, "_exps.weight", x, order[i], ff_);
    for (size_t j = 0; j < h.size(); ++j) h[j] += weight * out[j];
  }
  if (top_k_ == experts_) return INFINITY;
  return logits[static_cast<size_t>(order[k - 1])] - logits[static_cast<size_t>(order[k])];
}

Evaluation Model::evaluate(const std::vector<int32_t>& tokens) {
  k_.assign(static_cast<size_t>(layers_), {});
  v_.assign(static_cast<size_t>(layers_), {});
  Evaluation out;
  const Tensor embedding = tensor("token_embd.weight");
  const std::string head = file_.find("output.weight") ? "output.weight" : "token_embd.weight";
  for (size_t position = 0; position < tokens.size(); ++position) {
    const auto* row = embedding.data.data() + tokens[position] * hidden_;
    Vector h(row, row + hidden_);
    double margin = INFINITY;
    for (int layer = 0; layer < layers_; ++layer) {
      attention(layer, static_cast<int>(position), h);
      margin = std::min(margin, feed_forward(layer, h));
    }
    out.router_margin.push_back(margin);
    out.logits.push_back(matvec(head, rms(h, "output_norm.weight")));
  }
  return out;
}

}  // namespace weir::reference
