// Matmul kernels by format and rows of activations: weight bytes read per second and multiply-adds per
// second, on one core. Weights are 1.5 GiB of random blocks in one buffer and every iteration moves on, so
// that no cache holds them: one row is decode (bounded by memory), many rows are prefill (bounded by
// arithmetic).
//   bench_matmul --benchmark_filter='Q4_K/.*'
#include <benchmark/benchmark.h>
#include <sys/mman.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "base/arithmetic_constants.h"
#include "base/random.h"
#include "device/cpu/kernels.h"
#include "quant/codecs.h"

namespace weir::cpu {
namespace {

constexpr uint64_t kWeightBytes = 1536ull << 20;
constexpr int64_t kIn = 2048, kOutPerCall = 768;  // an expert's gate of Qwen3-30B-A3B

/// Random bytes, in huge pages where the kernel gives them (with 4 KiB pages the page walks cost a third of
/// one core's bandwidth).
const uint8_t* weights() {
  static uint8_t* bytes = [] {
    auto* v = static_cast<uint8_t*>(std::aligned_alloc(2 << 20, kWeightBytes));
    madvise(v, kWeightBytes, MADV_HUGEPAGE);
    auto* words = reinterpret_cast<uint64_t*>(v);
    // Clear bits keep every f16, bf16 and float read from here finite and of ordinary size.
    for (uint64_t i = 0; i < kWeightBytes / 8; ++i)
      words[i] = (random_u64(1, i) & 0xbfffbfffbfffbfff) | 0x3000300030003000;
    return v;
  }();
  return bytes;
}

/// Sums the buffer by 64-bit words: what one core can read.
void read_memory(benchmark::State& state) {
  const auto* words = reinterpret_cast<const uint64_t*>(weights());
  for (auto _ : state) {
    uint64_t sum[8] = {};
    for (uint64_t i = 0; i < kWeightBytes / 8; i += 8)
      for (int j = 0; j < 8; ++j) sum[j] += words[i + j];
    for (uint64_t s : sum) benchmark::DoNotOptimize(s);
  }
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations() * kWeightBytes));
}

void matmul(benchmark::State& state, const MatmulKernels& kernels, Type type, int n) {
  const TypeInfo& info = type_info(type);
  const int64_t blocks = info.act == ActFormat::per256 ? kIn / 256 : kIn / 32;
  std::vector<float> x(static_cast<size_t>(n * kIn)), scale(static_cast<size_t>(n * blocks));
  std::vector<int8_t> q(x.size());
  std::vector<int16_t> sums(x.size() / 32);
  std::vector<float> y(static_cast<size_t>(n * kOutPerCall));
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(random_unit(2, i) - 0.5);
  MatmulTask task;
  task.row_bytes = info.bytes(kIn), task.in = kIn, task.out_end = kOutPerCall, task.n = n;
  task.y = y.data(), task.y_stride = kOutPerCall, task.x = x.data();
  if (info.act != ActFormat::none) {
    const QuantizeTask quantize{x.data(), kIn, nullptr, kIn, 0, n, q.data(), scale.data(), sums.data()};
    (info.act == ActFormat::per256 ? kernels.quantize256 : kernels.quantize32)(quantize);
    task.act = {q.data(), scale.data(), sums.data(), kIn, n, info.act};
  }
  const uint64_t call_bytes = task.row_bytes * kOutPerCall;
  const MatmulKernel kernel = kernels.matmul(type);
  const uint8_t* all = weights();
  uint64_t at = 0;
  for (auto _ : state) {
    if (at + call_bytes > kWeightBytes) at = 0;
    task.weight = all + at;
    kernel(task);
    at += call_bytes;
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations() * call_bytes));
  state.counters["MAC/s"] = benchmark::Counter(
      static_cast<double>(state.iterations() * kIn * kOutPerCall * n), benchmark::Counter::kIsRate);
}

const bool registered = [] {
  benchmark::RegisterBenchmark("read_memory", read_memory);
  const auto add = [](const MatmulKernels& kernels, Type type, int n) {
    const std::string name =
        std::string(type_info(type).name) + "/" + kernels.isa + "/n=" + std::to_string(n);
    benchmark::RegisterBenchmark(name.c_str(),
                                 [&kernels, type, n](benchmark::State& s) { matmul(s, kernels, type, n); });
  };
  quant::Codecs::each([&]<typename Codec>() {
    if (processor_has_avx2())
      for (int n : {1, 2, 4, 8, 16, 64}) add(avx2_matmul_kernels(), Codec::type, n);
    if (processor_has_vnni() && Codec::act != ActFormat::none)
      for (int n : {1, 2, 4, 8, 16, 64}) add(vnni_matmul_kernels(), Codec::type, n);
    add(scalar_matmul_kernels(), Codec::type, 1);
  });
  return true;
}();

}  // namespace
}  // namespace weir::cpu
