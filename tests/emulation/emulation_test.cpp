// The emulator itself: what kernels compute, and that each misuse it claims to report is reported.
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/random.h"
#include "device/cuda/launch.h"
#include "device/cuda/ptx.cuh"
#include "device/cuda/stamp.cuh"
#include "emulation/emulation.h"

namespace weir::emulation::test {
namespace {

using namespace weir::cuda;

template <typename T>
class Array {
 public:
  explicit Array(const std::vector<T>& values) : Array(values.size()) {
    cudaMemcpy(data_, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice);
  }
  explicit Array(size_t n) : n_(n) { check(cudaMalloc(&data_, n * sizeof(T)), "cudaMalloc", "a test"); }
  ~Array() { cudaFree(data_); }
  T* data() const { return data_; }
  std::vector<T> values() const {
    std::vector<T> v(n_);
    cudaMemcpy(v.data(), data_, n_ * sizeof(T), cudaMemcpyDeviceToHost);
    return v;
  }

 private:
  size_t n_;
  T* data_ = nullptr;
};

template <typename F>
std::string failure_of(F&& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.what();
  }
  return "no failure";
}

__global__ void norm(const float* x, float* y, int n) {
  __shared__ float parts[4];
  allow_next();
  wait_for_previous();
  float sum = 0;
  for (int i = static_cast<int>(threadIdx.x); i < n; i += 128) sum = std::fma(x[i], x[i], sum);
  for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = sum;
  __syncthreads();
  const float total = (parts[0] + parts[1]) + (parts[2] + parts[3]);
  for (int i = static_cast<int>(threadIdx.x); i < n; i += 128) y[i] = x[i] / std::sqrt(total);
}

TEST(Emulation, ANormOverABlockHasTheBitsOfItsOrder) {
  std::vector<float> x(1000);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(random_unit(1, i));
  const Array<float> in(x);
  for (Order order : {Order::forward, Order::backward, Order::shuffled}) {
    options().order = order;
    const Array<float> out(x.size());
    Stream s;
    launch(s, "norm", norm, 1, 128, 0, in.data(), out.data(), 1000);
    float warps[4];
    for (size_t w = 0; w < 4; ++w) {
      float lanes[32] = {};
      for (size_t l = 0; l < 32; ++l)
        for (size_t i = w * 32 + l; i < x.size(); i += 128) lanes[l] = std::fma(x[i], x[i], lanes[l]);
      for (size_t step = 16; step > 0; step /= 2)
        for (size_t l = 0; l < step; ++l) lanes[l] += lanes[l + step];
      warps[w] = lanes[0];
    }
    const float root = std::sqrt((warps[0] + warps[1]) + (warps[2] + warps[3]));
    const std::vector<float> y = out.values();
    for (size_t i = 0; i < x.size(); ++i) ASSERT_EQ(y[i], x[i] / root) << i;
  }
  options().order = Order::forward;
}

/// One warp: c[16][8] = a[16][32] * b[8][32], fragments read as ptx.cuh says.
__global__ void multiply(const int8_t* a, const int8_t* b, int32_t* c) {
  wait_for_previous();
  const int g = static_cast<int>(threadIdx.x) / 4, t = static_cast<int>(threadIdx.x) % 4;
  const auto word = [](const int8_t* at) {
    uint32_t w;
    memcpy(&w, at, 4);
    return w;
  };
  const uint32_t fragment[4] = {word(a + g * 32 + 4 * t), word(a + (g + 8) * 32 + 4 * t),
                                word(a + g * 32 + 16 + 4 * t), word(a + (g + 8) * 32 + 16 + 4 * t)};
  int32_t d[4] = {0, 0, 0, 0};
  mma_k32(d, fragment, word(b + g * 32 + 4 * t), word(b + g * 32 + 16 + 4 * t));
  c[g * 8 + 2 * t] = d[0], c[g * 8 + 2 * t + 1] = d[1];
  c[(g + 8) * 8 + 2 * t] = d[2], c[(g + 8) * 8 + 2 * t + 1] = d[3];
}

TEST(Emulation, AnIntegerTensorCoreMultipliesExactly) {
  std::vector<int8_t> a(16 * 32), b(8 * 32);
  for (size_t i = 0; i < a.size(); ++i) a[i] = static_cast<int8_t>(random_u64(2, i));
  for (size_t i = 0; i < b.size(); ++i) b[i] = static_cast<int8_t>(random_u64(3, i));
  const Array<int8_t> da(a), db(b);
  const Array<int32_t> dc(16 * 8);
  Stream s;
  launch(s, "multiply", multiply, 1, 32, 0, da.data(), db.data(), dc.data());
  const std::vector<int32_t> c = dc.values();
  for (size_t row = 0; row < 16; ++row)
    for (size_t column = 0; column < 8; ++column) {
      int32_t sum = 0;
      for (size_t k = 0; k < 32; ++k) sum += a[row * 32 + k] * b[column * 32 + k];
      ASSERT_EQ(c[row * 8 + column], sum) << row << ", " << column;
    }
}

/// A ring of two stages filled by bulk copies: out[i] = in[i] + 1.
__global__ void stream_through(const float* in, float* out, int tiles) {
  WEIR_DYNAMIC_SHARED(memory);
  __shared__ uint64_t full[2];
  auto* stage = reinterpret_cast<float*>(memory);
  const auto fetch = [&](int tile) {
    arrive_expecting(&full[tile % 2], 256);
    bulk_copy(stage + tile % 2 * 64, in + tile * 64, 256, &full[tile % 2]);
  };
  if (threadIdx.x == 0) {
    barrier_init(&full[0], 1), barrier_init(&full[1], 1);
    for (int tile = 0; tile < 2 && tile < tiles; ++tile) fetch(tile);
  }
  __syncthreads();
  wait_for_previous();
  for (int tile = 0; tile < tiles; ++tile) {
    barrier_wait(&full[tile % 2], tile / 2 % 2);
    out[tile * 64 + threadIdx.x] = stage[tile % 2 * 64 + threadIdx.x] + 1;
    __syncthreads();
    if (threadIdx.x == 0 && tile + 2 < tiles) fence_async(), fetch(tile + 2);
  }
}

TEST(Emulation, BulkCopiesArriveWhenTheirPhaseIsWaitedFor) {
  std::vector<float> x(64 * 5);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i);
  const Array<float> in(x), out(x.size());
  Stream s;
  launch(s, "stream_through", stream_through, 1, 64, 512, in.data(), out.data(), 5);
  for (size_t i = 0; i < x.size(); ++i) ASSERT_EQ(out.values()[i], x[i] + 1);
}

/// The misuses, one a case.
__global__ void misuse(int which, float* x, const float* constant) {
  __shared__ float shared[4];
  float* volatile where = x;
  if (which == 0) where[1] = 1;
  wait_for_previous();
  if (which == 1 && threadIdx.x < 40) __syncthreads();
  if (which == 1 && threadIdx.x >= 40) __syncwarp();
  if (which == 2) where[64] = 1;
  if (which == 3) where[0] = reinterpret_cast<const volatile float4*>(constant + 1)->x;
  if (which == 4) where[0] = constant[-70];
  if (which == 5 && threadIdx.x == 0) where[0] = __shfl_sync(1u << 7, 1.0f, 0);
  if (which == 12) shared[threadIdx.x % 4] = 0;
  if (which == 6) where[0] = shared[threadIdx.x % 4];
  if (which == 7) {
    WEIR_DYNAMIC_SHARED(memory);
    memory[128] = 0;
  }
  if (which == 8 && threadIdx.x == 0) {
    __shared__ uint64_t barrier;
    barrier_init(&barrier, 1);
    barrier_wait(&barrier, 0);
  }
  if (which == 9) {
    int32_t c[4] = {};
    if (threadIdx.x < 31) mma_k16(c, 0, 0, 0);
    where[0] = static_cast<float>(c[0]);
  }
  if (which == 10) {
    __shared__ __align__(16) uint8_t to[32];
    cp_async16(to + 8, x);
  }
  if (which == 11) where[0] = *where;
}
std::string misused(int which) {
  const Array<float> x(64);
  const Array<float> constant(std::vector<float>(64, 1.0f));
  std::string text;
  // Twice: memory is guarded in some launches only, and only once a kernel has written it.
  for (int i = 0; i < 8 && (text.empty() || text == "no failure"); ++i) {
    Stream s;
    launch(s, "a use", misuse, 1, 64, 128, 11, x.data(), constant.data());
    text = failure_of([&] { launch(s, "a misuse", misuse, 1, 64, 128, which, x.data(), constant.data()); });
  }
  return text;
}

TEST(Emulation, MisuseIsReportedAsAFailureOfTheLaunch) {
  options().order = Order::forward;  // who is named first depends on it
  EXPECT_NE(misused(0).find("writes byte 4 of an allocation of 256 bytes, before wait_for_previous()"),
            std::string::npos)
      << misused(0);
  EXPECT_NE(misused(1).find("deadlock in block (0, 0, 0): 40 at __syncthreads (first: 0), 24 at __syncwarp"),
            std::string::npos)
      << misused(1);
  EXPECT_NE(misused(2).find("writes 0 bytes past the end of an allocation of 256 bytes"), std::string::npos)
      << misused(2);
  EXPECT_NE(misused(3).find("misaligned"), std::string::npos) << misused(3);
  EXPECT_NE(misused(5).find("leaves out the caller"), std::string::npos) << misused(5);
  EXPECT_NE(misused(7).find("which is no device memory"), std::string::npos) << misused(7);
  EXPECT_NE(misused(8).find("deadlock in block (0, 0, 0): 1 at barrier_wait"), std::string::npos)
      << misused(8);
  EXPECT_NE(misused(9).find("31 at mma_k16 (first: 0), 33 at its end"), std::string::npos) << misused(9);
  EXPECT_NE(misused(10).find("cp_async16's destination is not 16-byte aligned"), std::string::npos)
      << misused(10);
  EXPECT_NE(misused(1).find("misuse"), std::string::npos) << "the kernel's name";
}

TEST(Emulation, SharedAndNewDeviceMemoryAreNaNs) {
  const Array<float> x(64);
  for (float v : x.values()) ASSERT_TRUE(std::isnan(v));
  Stream s;
  for (int i = 0; i < 2; ++i) {
    launch(s, "a use", misuse, 1, 64, 128, 6, x.data(), x.data());
    EXPECT_TRUE(std::isnan(x.values()[0]));
  }
}

TEST(Emulation, ALaunchThatHardwareWouldRefuseIsRefused) {
  const Array<float> x(64);
  Stream s;
  const auto text = [&](dim3 grid, dim3 block, size_t shared) {
    return failure_of([&] { launch(s, "a use", misuse, grid, block, shared, 11, x.data(), x.data()); });
  };
  EXPECT_NE(text(1, 1025, 0).find("a block of (1025, 1, 1)"), std::string::npos);
  EXPECT_NE(text(dim3(1, 65536), 32, 0).find("a grid of (1, 65536, 1)"), std::string::npos);
  EXPECT_NE(text(1, 32, 233000).find("233000 bytes of dynamic shared memory where 232448 are allowed"),
            std::string::npos);
  EXPECT_EQ(text(1, 32, 200000), "no failure");
}

/// Recordings and other streams of the process keep launches larger than the next one.
TEST(Emulation, ALaterLaunchLeavesAnEarlierOneItsSharedMemory) {
  const Array<float> x(64);
  Stream one, other;
  const auto use = [&](Stream& s, size_t bytes) {
    launch(s, "a use", misuse, 1, 32, bytes, 11, x.data(), x.data());
  };
  use(one, 200000), use(other, 100000), use(one, 100000), use(one, 200000);
}

TEST(Emulation, BlocksOfAWaveAreSpreadEvenly) {
  Stream s;
  s.multiprocessors = 132, s.shared_bytes = 228 << 10;
  const auto blocks_that_fit = [&](size_t bytes) { return s.shared_bytes / (bytes + 1024); };
  for (const int64_t blocks : {1, 132, 133, 256, 264, 265, 600}) {
    const size_t share = static_cast<size_t>(blocks + 131) / 132;
    EXPECT_EQ(blocks_that_fit(evenly_spread(s, 1000, blocks)), share) << blocks;
  }
  EXPECT_EQ(evenly_spread(s, 100000, 600), 100000u);  // fewer fit by themselves
  EXPECT_EQ(evenly_spread(s, 1000, 132 * 1000), 1000u);
}

__global__ void count(int* at) {
  wait_for_previous();
  if (threadIdx.x == 0) atomicAdd(at, 1);
}

TEST(Emulation, AGraphRunsWhatItsStreamRecorded) {
  const Array<int> at(std::vector<int>{0});
  Stream s;
  cudaStreamCreate(&s.handle);
  cudaStreamBeginCapture(s.handle, cudaStreamCaptureModeThreadLocal);
  for (int i = 0; i < 3; ++i) launch(s, "count", count, 2, 32, 0, at.data());
  EXPECT_NE(cudaStreamSynchronize(s.handle), cudaSuccess);
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  ASSERT_EQ(cudaStreamEndCapture(s.handle, &graph), cudaSuccess);
  cudaGraphInstantiate(&exec, graph, 0);
  cudaGraphDestroy(graph);
  EXPECT_EQ(at.values()[0], 0);
  cudaGraphLaunch(exec, s.handle), cudaGraphLaunch(exec, s.handle);
  EXPECT_EQ(at.values()[0], 12);
  cudaGraphExecDestroy(exec);
  cudaStreamDestroy(s.handle);
}

}  // namespace
}  // namespace weir::emulation::test
