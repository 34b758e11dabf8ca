// The block formats' matmul kernels, AVX2.
#include "device/cpu/lanes_avx2.h"
#include "device/cpu/lanes_q4_k.h"
#include "device/cpu/lanes_q5_0.h"
#include "device/cpu/lanes_q6_k.h"
#include "device/cpu/lanes_q8_0.h"
#include "device/cpu/matmul_tables.h"

namespace weir::cpu {

void matmul_q8_0_avx2(const MatmulTask& task) { lane_matmul<Avx2Lanes, Q8_0Lanes>(task); }
void matmul_q5_0_avx2(const MatmulTask& task) { lane_matmul<Avx2Lanes, Q5_0Lanes>(task); }
void matmul_q4_k_avx2(const MatmulTask& task) { lane_matmul<Avx2Lanes, Q4_KLanes>(task); }
void matmul_q6_k_avx2(const MatmulTask& task) { lane_matmul<Avx2Lanes, Q6_KLanes>(task); }

}  // namespace weir::cpu
