// A slow, obvious reference in double precision, independent of the engine's kernels: every weight decoded to
// double, plain loops, no batching, no cache policy. Only the file reader and the block codecs are shared.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "gguf/reader.h"

namespace weir::reference {

struct Evaluation {
  std::vector<std::vector<double>> logits;  ///< [positions][vocab]
  std::vector<double>
      router_margin;  ///< per position: smallest over layers of (last chosen - first not chosen) logit
};

/// qwen3moe and qwen3, teacher-forced over `tokens` from position 0.
class Model {
 public:
  explicit Model(const std::string& path);
  Evaluation evaluate(const std::vector<int32_t>& tokens);

 private:
  using Vector = std::vector<double>;
  struct Tensor {
    Vector data;
    int64_t in = 0, out = 0;
  };
  const Tensor& tensor(const std::string& name);
  Vector matvec(const std::string& name, const Vector& x, int64_t first_row, int64_t rows);
  Vector matvec(const std::string& name, const Vector& x);
  /// A projection of x, with its bias where the file has one.
  Vector project(const std::string& prefix, const std::string& name, const Vector& x);
  void read_rope();
  void rotate(Vector& heads, int position) const;
  Vector rms(const Vector& x, const std::string& weight) const;
  void attention(int layer, int position, Vector& h);
  double feed_forward(int layer, Vector& h);
  Vector swiglu(const std::string& prefix, const std::string& suffix, const Vector& x, int expert,
                int64_t ff);

  gguf::Model file_;
  std::string arch_;
  int layers_, heads_, kv_heads_, head_dim_, n_rot_;
  int64_t hidden_, experts_ = 0, top_k_ = 0, ff_ = 0;
  double eps_;
  Vector frequency_;  // [n_rot / 2], radians a position
  double rope_magnitude_ = 1;
  std::map<std::string, Tensor> cache_;
  std::vector<std::vector<Vector>> k_, v_;  // [layer][position]
};

}  // namespace weir::reference
