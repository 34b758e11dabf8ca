// The block formats' matmul kernels, AVX-512 with VNNI.
#include "device/cpu/lanes_q4_k.h"
#include "device/cpu/lanes_q5_0.h"
#include "device/cpu/lanes_q6_k.h"
#include "device/cpu/lanes_q8_0.h"
#include "device/cpu/lanes_vnni.h"
#include "device/cpu/matmul_tables.h"

namespace weir::cpu {

void matmul_q8_0_vnni(const MatmulTask& task) { lane_matmul<VnniLanes, Q8_0Lanes>(task); }
void matmul_q5_0_vnni(const MatmulTask& task) { lane_matmul<VnniLanes, Q5_0Lanes>(task); }
void matmul_q4_k_vnni(const MatmulTask& task) { lane_matmul<VnniLanes, Q4_KLanes>(task); }
void matmul_q6_k_vnni(const MatmulTask& task) { lane_matmul<VnniLanes, Q6_KLanes>(task); }

}  // namespace weir::cpu
