// What the CUDA device's tests share: both devices, a bench that puts a case's data into either one's memory,
// and comparison of bits. Outputs start as NaNs, so that one which is not written is seen; weights have
// slack at both ends, as the loader leaves it, and every other input ends where its allocation does.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "../device/cpu_cases.h"
#include "device/device.h"
#if defined(WEIR_CUDA_EMULATION)
#include "emulation/emulation.h"
#endif

namespace weir {

/// Each case runs its threads and blocks in another order than the last, where there is a choice.
inline void take_next_order() {
#if defined(WEIR_CUDA_EMULATION)
  emulation::Options& o = emulation::options();
  o.order = static_cast<emulation::Order>((static_cast<int>(o.order) + 1) % 3);
  ++o.seed;
#endif
}
/// Devices made from here on are GPUs with this many multiprocessors, where that can be chosen.
inline void take_size([[maybe_unused]] int multiprocessors) {
#if defined(WEIR_CUDA_EMULATION)
  emulation::options().multiprocessors = multiprocessors;
#endif
}
/// Each device has another number of multiprocessors than the last.
inline void take_next_size() {
  static int n = 4;
  n = n == 4 ? 132 : n == 132 ? 1 : 4;
  take_size(n);
}

inline constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
inline constexpr float kInfinity = std::numeric_limits<float>::infinity();

/// One case's data in one device's memory, freed with the bench.
class Bench {
 public:
  static constexpr size_t slack = 256;  ///< around weights

  explicit Bench(Device& device) : device_(device) { take_next_order(); }

  template <typename T>
  T* put(const std::vector<T>& values) {
    const size_t bytes = values.size() * sizeof(T);
    T* data = static_cast<T*>(take(bytes));
    device_.upload(data, values.data(), bytes);
    return data;
  }
  /// As put(); null for an empty one.
  const float* put_if(const Floats& values) { return values.empty() ? nullptr : put(values); }
  float* poisoned(size_t n) { return put(Floats(n, kNaN)); }
  /// `bytes` of weights that begin `offset` past a multiple of 256.
  uint8_t* put_weights(const void* data, size_t bytes, size_t offset) {
    const std::vector<uint8_t> poison(slack + offset + bytes + slack, 0xff);
    auto* begin = static_cast<uint8_t*>(take(poison.size()));
    device_.upload(begin, poison.data(), poison.size());
    device_.upload(begin + slack + offset, data, bytes);
    return begin + slack + offset;
  }
  /// At the least alignment that a file can give the format.
  Matrix put(const RandomMatrix& matrix, bool aligned = false) {
    Matrix m = matrix.matrix();
    m.data = put_weights(m.data, m.bytes(), aligned ? 0 : least_alignment(m.type));
    return m;
  }
  template <typename T>
  std::vector<T> get(const T* data, size_t n) {
    device_.synchronize();
    std::vector<T> values(n);
    device_.download(values.data(), data, n * sizeof(T));
    return values;
  }
  static size_t least_alignment(Type type) { return type == Type::F32 ? 4 : type == Type::Q4_K ? 16 : 2; }

 private:
  void* take(size_t bytes) {
    buffers_.push_back(device_.allocate(std::max<size_t>(bytes, 1), "a test"));
    return buffers_.back().data();
  }
  Device& device_;
  std::vector<Buffer> buffers_;
};

/// The scalar CPU device, which defines every result, and a CUDA device; skipped where there is no GPU.
class CudaTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!built_with_cuda() || cuda_device_count() == 0) GTEST_SKIP() << "no GPU that this build can use";
    take_next_size();
    cuda_ = make_cuda_device({.arithmetic = Arithmetic::portable});
  }
  void TearDown() override { cuda_.reset(); }
  void reserve(const ScratchNeeds& needs) { cpu_->reserve(needs), cuda_->reserve(needs); }
  /// f(device) must give the CPU's bits.
  template <typename F>
  void expect_cpu_bits(const std::string& what, F&& f) {
    expect_same(f(*cuda_), f(*cpu_), what);
  }

  std::unique_ptr<Device> cpu_ = make_cpu_device(1, Isa::scalar), cuda_;
};

inline std::vector<Type> computable_formats() {
  return {Type::F32, Type::F16, Type::BF16, Type::Q8_0, Type::Q5_0, Type::Q4_K, Type::Q6_K};
}
inline std::string format_name(const testing::TestParamInfo<Type>& info) {
  return type_info(info.param).name;
}

/// The first rows * n values.
inline Floats first_rows(const Floats& x, int rows, int64_t n) { return {x.begin(), x.begin() + rows * n}; }

inline void append(Floats& to, const Floats& more) { to.insert(to.end(), more.begin(), more.end()); }
inline void append(Floats& to, const std::vector<int32_t>& more) {
  to.insert(to.end(), more.begin(), more.end());
}

}  // namespace weir
