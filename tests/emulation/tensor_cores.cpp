// Tensor-core instructions: the last lane of the warp to arrive computes for all 32.
#include <array>
#include <cstring>

#include "base/half.h"
#include "emulation/ptx.h"

namespace weir::cuda {
namespace {

using emulation::LaneArguments;

struct IntegerMma {
  int32_t* c;
  uint32_t a[4], b[2];
};
struct HalfMma {
  float* c;
  uint32_t a[4], b[2];
};

int8_t byte_of(uint32_t word, int i) { return static_cast<int8_t>(word >> (8 * i)); }
float half_of(uint32_t word, int i) { return f16_to_f32(static_cast<uint16_t>(word >> (16 * i))); }

/// A[row][k] of m16 x kK: register (row / 8) + 2 * (k / 16), lane 4 * (row % 8) + k % 16 / 4.
template <int kK>
void integer_mma(const LaneArguments& lanes) {
  const auto at = [&](int lane) -> IntegerMma& {
    return *static_cast<IntegerMma*>(lanes[static_cast<size_t>(lane)]);
  };
  for (int row = 0; row < 16; ++row)
    for (int column = 0; column < 8; ++column) {
      uint32_t sum = 0;
      for (int k = 0; k < kK; ++k) {
        const int t = k % 16 / 4;
        const int a = byte_of(at(4 * (row % 8) + t).a[row / 8 + 2 * (k / 16)], k % 4);
        const int b = byte_of(at(4 * column + t).b[k / 16], k % 4);
        sum += static_cast<uint32_t>(a * b);
      }
      int32_t& c = at(4 * (row % 8) + column / 2).c[2 * (row / 8) + column % 2];
      c = static_cast<int32_t>(static_cast<uint32_t>(c) + sum);
    }
}

void half_mma(const LaneArguments& lanes) {
  const auto at = [&](int lane) -> HalfMma& {
    return *static_cast<HalfMma*>(lanes[static_cast<size_t>(lane)]);
  };
  for (int row = 0; row < 16; ++row)
    for (int column = 0; column < 8; ++column) {
      float& c = at(4 * (row % 8) + column / 2).c[2 * (row / 8) + column % 2];
      for (int k = 0; k < 16; ++k) {
        const int t = k % 8 / 2;
        const float a = half_of(at(4 * (row % 8) + t).a[row / 8 + 2 * (k / 8)], k % 2);
        const float b = half_of(at(4 * column + t).b[k / 8], k % 2);
        c = c + a * b;
      }
    }
}

struct MatrixLoad {
  uint32_t* r;
  const void* row;
};

template <bool kTransposed>
void load_matrices(const LaneArguments& lanes) {
  uint16_t m[4][8][8];
  for (size_t lane = 0; lane < 32; ++lane)
    memcpy(m[lane / 8][lane % 8], static_cast<const MatrixLoad*>(lanes[lane])->row, 16);
  for (size_t lane = 0; lane < 32; ++lane) {
    const size_t g = lane / 4, t = lane % 4;
    for (size_t i = 0; i < 4; ++i) {
      const uint32_t low = kTransposed ? m[i][2 * t][g] : m[i][g][2 * t];
      const uint32_t high = kTransposed ? m[i][2 * t + 1][g] : m[i][g][2 * t + 1];
      static_cast<MatrixLoad*>(lanes[lane])->r[i] = low | high << 16;
    }
  }
}

void check_row(const void* row) {
  if (reinterpret_cast<uintptr_t>(row) % 16) emulation::fail("ldmatrix of a row that is not 16-byte aligned");
}

}  // namespace

void mma_k32(int32_t (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  IntegerMma own{c, {a[0], a[1], a[2], a[3]}, {b0, b1}};
  emulation::whole_warp_operation("mma_k32", integer_mma<32>, &own);
}

void mma_k16(int32_t (&c)[4], uint32_t a0, uint32_t a1, uint32_t b0) {
  IntegerMma own{c, {a0, a1, 0, 0}, {b0, 0}};
  emulation::whole_warp_operation("mma_k16", integer_mma<16>, &own);
}

void mma_f16(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  HalfMma own{c, {a[0], a[1], a[2], a[3]}, {b0, b1}};
  emulation::whole_warp_operation("mma_f16", half_mma, &own);
}

void ldmatrix_x4(uint32_t (&r)[4], const void* row) {
  check_row(row);
  MatrixLoad own{r, row};
  emulation::whole_warp_operation("ldmatrix_x4", load_matrices<false>, &own);
}

void ldmatrix_x4_trans(uint32_t (&r)[4], const void* row) {
  check_row(row);
  MatrixLoad own{r, row};
  emulation::whole_warp_operation("ldmatrix_x4_trans", load_matrices<true>, &own);
}

}  // namespace weir::cuda
