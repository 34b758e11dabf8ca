// The kernels for one to sixteen rows, bit for bit against the scalar arithmetic: every block format, widths
// that fill segments and that do not, weights at any even address, outputs that do not fill a tile.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <vector>

#include "base/arithmetic.h"
#include "device/cpu/matmul_tables.h"
#include "device/cpu_cases.h"
#include "device/cuda/kernels.h"

namespace weir::cuda {
namespace {

/// Device memory with the slack that weight buffers have, `offset` bytes into its allocation.
class DeviceArray {
 public:
  DeviceArray(const void* data, size_t bytes, size_t offset = 0) : bytes_(bytes), offset_(256 + offset) {
    check(cudaMalloc(&data_, bytes + offset_ + 256), "cudaMalloc", "a test");
    if (data) check(cudaMemcpy(at(), data, bytes, cudaMemcpyHostToDevice), "cudaMemcpy", "a test");
  }
  template <typename T>
  explicit DeviceArray(const std::vector<T>& v) : DeviceArray(v.data(), v.size() * sizeof(T)) {}
  DeviceArray(const DeviceArray&) = delete;
  ~DeviceArray() { cudaFree(data_); }
  void* at() const { return static_cast<char*>(data_) + offset_; }
  template <typename T>
  T* as() const {
    return static_cast<T*>(at());
  }
  Floats floats() const {
    Floats v(bytes_ / 4);
    check(cudaMemcpy(v.data(), at(), bytes_, cudaMemcpyDeviceToHost), "cudaMemcpy", "a test");
    return v;
  }

 private:
  void* data_ = nullptr;
  size_t bytes_, offset_;
};

/// Rows quantised by the scalar kernel, on the host and on the device.
struct HostActs {
  HostActs(const Floats& x, int rows, int64_t in, ActFormat format)
      : q(x.size()), scale(x.size() / 32), sums(x.size() / 32) {
    acts = {q.data(), scale.data(), format == ActFormat::per256 ? sums.data() : nullptr, in, rows, format};
    cpu::QuantizeTask task;
    task.x = x.data(), task.x_stride = in, task.in = in, task.row_end = rows;
    task.q = q.data(), task.scale = scale.data(), task.sums = sums.data();
    (format == ActFormat::per256 ? cpu::quantize256_scalar : cpu::quantize32_scalar)(task);
  }
  std::vector<int8_t> q;
  Floats scale;
  std::vector<int16_t> sums;
  quant::ActRows acts;
};
struct DeviceActs {
  explicit DeviceActs(const HostActs& h)
      : q(h.q),
        scale(h.scale),
        sums(h.sums),
        acts{q.as<int8_t>(), scale.as<float>(), sums.as<int16_t>(), h.acts.in, h.acts.format} {}
  DeviceArray q, scale, sums;
  Acts acts;
};

Floats products(const Matrix& w, const HostActs& x) {
  Floats y(static_cast<size_t>(w.out * x.acts.rows));
  cpu::MatmulTask task;
  task.weight = static_cast<const uint8_t*>(w.data),
  task.row_bytes = type_info(w.type).bytes(static_cast<uint64_t>(w.in));
  task.in = w.in, task.out_end = w.out, task.n = x.acts.rows, task.act = x.acts;
  task.y = y.data(), task.y_stride = w.out;
  cpu::scalar_matmul(w.type)(task);
  return y;
}

Floats normed(const Floats& x, const Floats& weight, float eps) {
  Floats y(x.size());
  cpu::scalar_float_kernels().rms_norm(x.data(), weight.data(), y.data(), static_cast<int64_t>(x.size()),
                                       eps);
  return y;
}

void expect_bits(const Floats& got, const Floats& want, const std::string& what) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    if (std::isnan(got[i]) && std::isnan(want[i])) continue;
    ASSERT_EQ(std::bit_cast<uint32_t>(got[i]), std::bit_cast<uint32_t>(want[i]))
        << what << ": " << i << " is " << got[i] << " instead of " << want[i];
  }
}

constexpr Type formats[] = {Type::Q4_K, Type::Q6_K, Type::Q8_0, Type::Q5_0};

Stream test_stream(int multiprocessors = 4) {
  Stream s;
  s.multiprocessors = multiprocessors;
  return s;
}

struct MatmulCase {
  int64_t in;
  std::vector<int64_t> outs;
  int rows;
  bool norm, add;
  size_t offset = 0;
  int multiprocessors = 4;
};

void check_matmul(Type type, const MatmulCase& c) {
  const std::string what =
      fmt::format("{} in {} rows {} norm {} add {} offset {} first out {}", type_info(type).name, c.in,
                  c.rows, c.norm, c.add, c.offset, c.outs[0]);
  const auto n = static_cast<size_t>(c.in);
  Floats x = random_floats(n * static_cast<size_t>(c.rows), 7), weight = random_floats(n, 8);
  if (!c.norm) std::fill(x.begin() + 32, x.begin() + 64, 0.0f);
  const Floats input = c.norm ? normed(x, weight, 1e-5f) : x;
  const ActFormat format = type_info(type).act;
  const HostActs host(input, c.rows, c.in, format);
  const DeviceActs device(host);
  const DeviceArray dx(x), dnorm(weight);
  SmallMatmul args;
  args.type = type, args.in = c.in, args.rows = c.rows, args.targets = static_cast<int>(c.outs.size());
  if (c.rows == 1) args.x = dx.as<float>();
  if (c.norm) args.norm = dnorm.as<float>(), args.eps = 1e-5f;
  if (c.rows > 1) args.acts = device.acts;
  std::vector<std::unique_ptr<DeviceArray>> weights, outs;
  std::vector<Floats> want;
  for (size_t k = 0; k < c.outs.size(); ++k) {
    const RandomMatrix w(type, c.in, c.outs[k], 11 + k);
    const Matrix m = w.matrix();
    weights.push_back(std::make_unique<DeviceArray>(m.data, m.bytes(), c.offset));
    Floats y = products(m, host), before = random_floats(y.size(), 13 + k);
    outs.push_back(std::make_unique<DeviceArray>(before));
    const bool add = c.add && k == 0;
    if (add)
      for (size_t i = 0; i < y.size(); ++i) y[i] = before[i] + y[i];
    want.push_back(y);
    args.target[k] = {weights[k]->at(), outs[k]->as<float>(), c.outs[k], add};
  }
  Stream s = test_stream(c.multiprocessors);
  small_matmul(s, args);
  check(cudaDeviceSynchronize(), "cudaDeviceSynchronize", "a test");
  for (size_t k = 0; k < c.outs.size(); ++k)
    expect_bits(outs[k]->floats(), want[k], what + fmt::format(" target {}", k));
}

TEST(SmallMatmul, OneRowHasTheBitsOfTheScalarArithmetic) {
  for (Type type : formats) {
    for (const MatmulCase& c :
         {MatmulCase{256, {16}, 1, false, false}, MatmulCase{768, {40, 24, 16}, 1, true, false},
          MatmulCase{2048, {80, 16, 16}, 1, true, false}, MatmulCase{4096, {37}, 1, false, true},
          MatmulCase{2304, {21}, 1, true, true}, MatmulCase{6400, {16}, 1, false, true},
          MatmulCase{2048, {16 * 23 + 5}, 1, true, false, 0, 2},
          MatmulCase{4608, {16 * 11 + 5}, 1, true, true, 0, 1},
          MatmulCase{1024, {48, 19}, 1, false, true, 6}}) {
      check_matmul(type, c);
      if (HasFatalFailure()) return;
    }
  }
}

TEST(SmallMatmul, MoreRowsHaveTheBitsOfTheScalarArithmetic) {
  for (Type type : formats) {
    for (int rows : {2, 5, 8, 9, 16}) {
      check_matmul(type, {768, {40, 24, 16}, rows, false, false, 4});
      if (HasFatalFailure()) return;
    }
    for (const MatmulCase& c :
         {MatmulCase{2048, {80, 16, 16}, 3, false, true}, MatmulCase{4096, {37}, 16, false, true},
          MatmulCase{6400, {16}, 11, false, true}, MatmulCase{2048, {16 * 23 + 5}, 16, false, true, 0, 2},
          MatmulCase{4608, {16 * 9 + 5}, 4, false, false, 2, 1}}) {
      check_matmul(type, c);
      if (HasFatalFailure()) return;
    }
  }
}

TEST(SmallMatmul, LengthsOfPartBlocksOfTheThirtyTwoValueFormats) {
  for (Type type : {Type::Q8_0, Type::Q5_0})
    for (int64_t in : {32, 96, 288, 2080, 2912})
      for (int rows : {1, 2, 10}) {
        check_matmul(type, {in, {37}, rows, rows == 1, false, 2});
        if (HasFatalFailure()) return;
      }
}

TEST(SmallMatmul, ValuesThatAreNotFiniteAndScalesThatAreSubnormal) {
  for (Type type : formats) {
    const RandomMatrix w(type, 1024, 16, 3);
    Floats x = random_floats(1024, 5);
    x[300] = NAN;
    for (size_t i = 512; i < 768; ++i) x[i] *= 0x1p-141f;
    for (size_t i = 768; i < 800; ++i) x[i] = static_cast<float>(static_cast<int>(i) - 784) * 0.5f;
    for (size_t i = 800; i < 1024; ++i) x[i] = 63.5f - static_cast<float>(i % 128);
    x[1023] = 127;
    for (bool finite : {false, true}) {
      if (finite) x[300] = 1;
      const HostActs host(x, 1, 1024, type_info(type).act);
      const DeviceArray dx(x), dw(w.matrix().data, w.matrix().bytes()), out(nullptr, 64);
      SmallMatmul args;
      args.type = type, args.in = 1024, args.rows = 1, args.targets = 1, args.x = dx.as<float>();
      args.target[0] = {dw.at(), out.as<float>(), 16, false};
      Stream s = test_stream();
      small_matmul(s, args);
      expect_bits(out.floats(), products(w.matrix(), host), type_info(type).name);
    }
  }
}

struct ExpertCase {
  Type inner, outer;
  int64_t hidden, ff;
  int experts, top_k;
  bool slots = false;
};

/// One row: everything on the host first, expert by expert; then the kernels.
void check_experts(const ExpertCase& c) {
  const std::string what = fmt::format("{} {} hidden {} ff {} experts {} top {}", type_info(c.inner).name,
                                       type_info(c.outer).name, c.hidden, c.ff, c.experts, c.top_k);
  const RandomMatrix gate(c.inner, c.hidden, c.ff * c.experts, 21),
      up(c.inner, c.hidden, c.ff * c.experts, 22), down(c.outer, c.ff, c.hidden * c.experts, 23);
  const auto pairs = static_cast<size_t>(c.top_k), ff = static_cast<size_t>(c.ff),
             hidden = static_cast<size_t>(c.hidden);
  const Floats x = random_floats(hidden, 24), weights = random_floats(pairs, 25);
  std::vector<int32_t> ids, slot_of(static_cast<size_t>(c.experts));
  for (int e = 0; e < c.experts; ++e) slot_of[static_cast<size_t>(e)] = c.slots ? (e + 3) % c.experts : e;
  for (uint64_t j = 0; ids.size() < pairs; ++j) {  // in no order
    const auto e = static_cast<int32_t>(random_u64(26, j) % static_cast<uint64_t>(c.experts));
    if (std::find(ids.begin(), ids.end(), e) == ids.end()) ids.push_back(e);
  }
  // The scalar arithmetic.
  const auto slice = [&](const RandomMatrix& m, int64_t out, int32_t slot) {
    Matrix s = m.matrix();
    s.out = out, s.data = static_cast<const uint8_t*>(s.data) + static_cast<uint64_t>(slot) * s.bytes();
    return s;
  };
  Floats act(pairs * ff), parts(pairs * hidden), h = random_floats(hidden, 27);
  const Floats h0 = h;
  for (size_t p = 0; p < pairs; ++p) {
    const int32_t slot = slot_of[static_cast<size_t>(ids[p])];
    const HostActs in(x, 1, c.hidden, type_info(c.inner).act);
    const Floats g = products(slice(gate, c.ff, slot), in), u = products(slice(up, c.ff, slot), in);
    Floats a(ff);
    for (size_t i = 0; i < ff; ++i) a[i] = act[p * ff + i] = silu_f32(g[i]) * u[i];
    const Floats part = products(slice(down, c.hidden, slot), HostActs(a, 1, c.ff, type_info(c.outer).act));
    std::copy(part.begin(), part.end(), parts.begin() + static_cast<long>(p * hidden));
  }
  for (size_t i = 0; i < hidden; ++i) {
    float sum = 0;
    for (size_t j = 0; j < static_cast<size_t>(c.top_k); ++j)
      sum = std::fma(weights[j], parts[j * hidden + i], sum);
    h[i] += sum;
  }
  // The kernels.
  const DeviceArray dgate(gate.matrix().data, gate.matrix().bytes(), 2),
      dup(up.matrix().data, up.matrix().bytes()), ddown(down.matrix().data, down.matrix().bytes(), 16), dx(x),
      dweights(weights), dids(ids), dslots(slot_of), dact(nullptr, act.size() * 4), dh(h0);
  ExpertBank bank;
  bank.gate = {dgate.at(), c.inner, c.hidden, c.ff}, bank.up = {dup.at(), c.inner, c.hidden, c.ff};
  bank.down = {ddown.at(), c.outer, c.ff, c.hidden};
  bank.gate_stride = bank.up_stride = bank.gate.bytes(), bank.down_stride = bank.down.bytes();
  bank.experts = c.experts, bank.slot_of = c.slots ? dslots.as<int32_t>() : nullptr;
  Stream s = test_stream();
  small_gate_up(s, bank, dids.as<int32_t>(), dx.as<float>(), c.top_k, dact.as<float>());
  expect_bits(dact.floats(), act, what + " act");
  small_down_sum(s, bank, dids.as<int32_t>(), dweights.as<float>(), c.top_k, true, dact.as<float>(),
                 dh.as<float>());
  expect_bits(dh.floats(), h, what + " h");
}

TEST(SmallExperts, HaveTheBitsOfTheScalarArithmetic) {
  for (Type inner : formats)
    for (Type outer : formats)
      for (bool slots : {false, true}) {
        check_experts({inner, outer, 512, 256, 6, 2, slots});
        if (HasFatalFailure()) return;
      }
}

TEST(SmallExpertsSlow, ShapesThatFillNoTileAndPartsOfK) {
  for (Type type : {Type::Q4_K, Type::Q6_K})
    for (const ExpertCase& c :
         {ExpertCase{type, type, 2048, 768, 10, 8, true}, ExpertCase{type, type, 256, 4608, 3, 2},
          ExpertCase{type, type, 4608, 256, 3, 2}}) {
      check_experts(c);
      if (HasFatalFailure()) return;
    }
  check_experts({Type::Q8_0, Type::Q5_0, 288, 544, 5, 3});
}

}  // namespace
}  // namespace weir::cuda
