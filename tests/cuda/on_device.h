// Device memory for tests of launchers by themselves.
#pragma once

#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "device/cuda/launch.h"

namespace weir::cuda {

/// An array in device memory.
template <typename T>
class OnDevice {
 public:
  /// Zeros.
  explicit OnDevice(size_t count) : count_(count) {
    check(cudaMalloc(&data_, count_ * sizeof(T)), "cudaMalloc", "a test");
    check(cudaMemset(data_, 0, count_ * sizeof(T)), "cudaMemset", "a test");
  }
  explicit OnDevice(const std::vector<T>& host) : OnDevice(host.size()) {
    check(cudaMemcpy(data_, host.data(), count_ * sizeof(T), cudaMemcpyHostToDevice), "cudaMemcpy", "a test");
  }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;
  ~OnDevice() { cudaFree(data_); }
  T* data() const { return static_cast<T*>(data_); }
  std::vector<T> host() const {
    std::vector<T> v(count_);
    check(cudaDeviceSynchronize(), "cudaDeviceSynchronize", "a test");
    check(cudaMemcpy(v.data(), data_, count_ * sizeof(T), cudaMemcpyDeviceToHost), "cudaMemcpy", "a test");
    return v;
  }

 private:
  void* data_ = nullptr;
  size_t count_;
};

inline void expect_same_bits(const std::vector<float>& a, const std::vector<float>& b, size_t a_from = 0) {
  for (size_t i = 0; i < b.size(); ++i) {
    uint32_t x, y;
    memcpy(&x, &a[a_from + i], 4), memcpy(&y, &b[i], 4);
    ASSERT_EQ(x, y) << "element " << i << ": " << a[a_from + i] << " and " << b[i];
  }
}

}  // namespace weir::cuda
