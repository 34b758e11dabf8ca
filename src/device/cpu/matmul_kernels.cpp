// The kernel tables by instruction set. Compiled for the base processor: safe to call anywhere.
#include "device/cpu/matmul_tables.h"

namespace weir::cpu {
namespace {

MatmulKernel avx2_matmul(Type type) {
  switch (type) {
    case Type::F32:
      return matmul_f32_avx2;
    case Type::F16:
      return matmul_f16_avx2;
    case Type::BF16:
      return matmul_bf16_avx2;
    case Type::Q8_0:
      return matmul_q8_0_avx2;
    case Type::Q5_0:
      return matmul_q5_0_avx2;
    case Type::Q4_K:
      return matmul_q4_k_avx2;
    case Type::Q6_K:
      return matmul_q6_k_avx2;
    default:
      return scalar_matmul(type);
  }
}

MatmulKernel vnni_matmul(Type type) {
  switch (type) {
    case Type::Q8_0:
      return matmul_q8_0_vnni;
    case Type::Q5_0:
      return matmul_q5_0_vnni;
    case Type::Q4_K:
      return matmul_q4_k_vnni;
    case Type::Q6_K:
      return matmul_q6_k_vnni;
    default:
      return avx2_matmul(type);
  }
}

constexpr MatmulKernels kScalar = {"scalar", scalar_matmul, quantize32_scalar, quantize256_scalar};
constexpr MatmulKernels kAvx2 = {"avx2", avx2_matmul, quantize32_avx2, quantize256_avx2};
constexpr MatmulKernels kVnni = {"avx512", vnni_matmul, quantize32_avx2, quantize256_avx2};

}  // namespace

const MatmulKernels& scalar_matmul_kernels() { return kScalar; }
const MatmulKernels& avx2_matmul_kernels() { return kAvx2; }
const MatmulKernels& vnni_matmul_kernels() { return kVnni; }

bool processor_has_avx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c") &&
         __builtin_cpu_supports("bmi2");
}

bool processor_has_vnni() {
  return processor_has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512vnni");
}

}  // namespace weir::cpu
