// The matmul and quantisation kernels by name, for the tables in matmul_kernels.cpp. A format without a
// kernel of its own in a set is served by the scalar one, which computes the same bits.
#pragma once

#include "device/cpu/kernels.h"

namespace weir::cpu {

/// Every format of quant/codecs.h; null for others.
MatmulKernel scalar_matmul(Type type);
bool quantize32_scalar(const QuantizeTask& task);
bool quantize256_scalar(const QuantizeTask& task);

void matmul_f32_avx2(const MatmulTask& task);
void matmul_f16_avx2(const MatmulTask& task);
void matmul_bf16_avx2(const MatmulTask& task);
void matmul_q8_0_avx2(const MatmulTask& task);
void matmul_q5_0_avx2(const MatmulTask& task);
void matmul_q4_k_avx2(const MatmulTask& task);
void matmul_q6_k_avx2(const MatmulTask& task);
void matmul_q8_0_vnni(const MatmulTask& task);
void matmul_q5_0_vnni(const MatmulTask& task);
void matmul_q4_k_vnni(const MatmulTask& task);
void matmul_q6_k_vnni(const MatmulTask& task);
bool quantize32_avx2(const QuantizeTask& task);
bool quantize256_avx2(const QuantizeTask& task);

}  // namespace weir::cpu
