// What the tests of the CPU device share: random weights of any format, every device that must agree, and
// comparison of bits.
#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "base/half.h"
#include "base/random.h"
#include "device/cpu/kernels.h"
#include "device/device.h"

namespace weir {

using Floats = std::vector<float>;

/// Values in (-1, 1).
inline Floats random_floats(size_t n, uint64_t seed) {
  Floats x(n);
  for (size_t i = 0; i < n; ++i) x[i] = static_cast<float>(2 * random_unit(seed, i) - 1);
  return x;
}

/// Random bits in a format's own layout with factors that make weights of ordinary size. The data begins at
/// an odd address, as an expert's may in its slot.
class RandomMatrix {
 public:
  RandomMatrix(Type type, int64_t in, int64_t out, uint64_t seed) : type_(type), in_(in), out_(out) {
    const TypeInfo& info = type_info(type);
    const auto block = static_cast<size_t>(info.block_bytes);
    storage_.resize(1 + info.bytes(static_cast<uint64_t>(in * out)));
    for (size_t i = 1; i < storage_.size(); ++i) storage_[i] = static_cast<uint8_t>(random_u64(seed, i));
    for (size_t at = 1, n = 0; at < storage_.size(); at += block, ++n) {
      const auto v = static_cast<float>(2 * random_unit(seed + 1, n) - 1);
      if (type == Type::F32) memcpy(&storage_[at], &v, 4);
      if (type == Type::F16) put(at, f32_to_f16(v));
      if (type == Type::BF16) put(at, f32_to_bf16(v));
      if (type == Type::Q8_0) put(at, f32_to_f16(v / 128));
      if (type == Type::Q5_0) put(at, f32_to_f16(v / 16));
      if (type == Type::Q4_K) put(at, f32_to_f16(v / 512)), put(at + 2, f32_to_f16(v / 256));
      if (type == Type::Q6_K) put(at + 208, f32_to_f16(v / 2048));
    }
  }
  Matrix matrix() const { return {storage_.data() + 1, type_, in_, out_}; }
  /// [out, in]
  Floats decoded() const {
    Floats values(static_cast<size_t>(in_ * out_));
    type_info(type_).decode(storage_.data() + 1, values.data(), in_ * out_);
    return values;
  }

 private:
  void put(size_t at, uint16_t v) { memcpy(&storage_[at], &v, 2); }
  Type type_;
  int64_t in_, out_;
  std::vector<uint8_t> storage_;
};

struct DeviceSetup {
  Isa isa;
  int threads;
  std::string name() const {
    return (isa == Isa::avx512 ? "avx512 x "
            : isa == Isa::avx2 ? "avx2 x "
                               : "scalar x ") +
           std::to_string(threads);
  }
};
/// Scalar with one thread first: the others are held to it.
inline std::vector<DeviceSetup> device_setups() {
  std::vector<DeviceSetup> setups;
  for (Isa isa : {Isa::scalar, Isa::avx2, Isa::avx512})
    for (int threads : {1, 2, 3})
      if (isa == Isa::scalar || (isa == Isa::avx2 ? cpu::processor_has_avx2() : cpu::processor_has_vnni()))
        setups.push_back({isa, threads});
  return setups;
}

/// Equal bits, or both NaN.
inline bool same_bits(float a, float b) {
  return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b) || (std::isnan(a) && std::isnan(b));
}

inline void expect_same(const Floats& got, const Floats& expected, const std::string& what) {
  ASSERT_EQ(got.size(), expected.size()) << what;
  size_t differ = 0, first = 0;
  for (size_t i = got.size(); i-- > 0;)
    if (!same_bits(got[i], expected[i])) ++differ, first = i;
  EXPECT_EQ(differ, 0u) << what << ": first at " << first << ": " << got[first] << " is not "
                        << expected[first];
}

/// Runs f(device) on every device and returns the first one's result, which all must equal.
template <typename F>
Floats on_all_devices(const ScratchNeeds& needs, F&& f) {
  Floats first;
  for (const DeviceSetup& setup : device_setups()) {
    const auto device = make_cpu_device(setup.threads, setup.isa);
    device->reserve(needs);
    const Floats got = f(*device);
    if (first.empty()) first = got;
    expect_same(got, first, setup.name());
  }
  return first;
}

/// rows(device, first, count) gives those rows' results: every split of `total` rows into calls of 1..9 rows
/// must give the same bits as one call.
template <typename F>
void expect_row_invariant(const ScratchNeeds& needs, int total, F&& rows) {
  for (const DeviceSetup& setup : device_setups()) {
    if (setup.threads == 3) continue;
    const auto device = make_cpu_device(setup.threads, setup.isa);
    device->reserve(needs);
    const Floats whole = rows(*device, 0, total);
    for (int n = 1; n <= 9; ++n) {
      Floats pieces;
      for (int r = 0; r < total; r += n) {
        const Floats piece = rows(*device, r, std::min(n, total - r));
        pieces.insert(pieces.end(), piece.begin(), piece.end());
      }
      expect_same(pieces, whole, setup.name() + ", " + std::to_string(n) + " rows a call");
    }
  }
}

}  // namespace weir
