// Tensor-core instructions: the last lane of the warp to arrive computes for all 32.
#include <array>
#include <cstring>
#include <vector>

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

float half_of(uint32_t word, int i) {
  static const std::vector<float> values = [] {
    std::vector<float> v(1 << 16);
    for (size_t h = 0; h < v.size(); ++h) v[h] = f16_to_f32(static_cast<uint16_t>(h));
    return v;
  }();
  return values[static_cast<uint16_t>(word >> (16 * i))];
}

template <typename T>
T& at(const LaneArguments& lanes, int lane) {
  return *static_cast<T*>(lanes[static_cast<size_t>(lane)]);
}

/// c += A * B, given as C[row][column], to the lanes that hold c: row % 8 * 4 + column / 2.
template <typename T, typename V, typename F>
void each_c(const LaneArguments& lanes, V (&sums)[16][8], F&& f) {
  for (int row = 0; row < 16; ++row)
    for (int column = 0; column < 8; ++column)
      f(at<T>(lanes, 4 * (row % 8) + column / 2).c[2 * (row / 8) + column % 2], sums[row][column]);
}

/// A[row][k] of m16 x kK: register row / 8 + 2 * (k / 16), lane 4 * (row % 8) + k % 16 / 4. B[column][k]:
/// register k / 16, lane 4 * column + k % 16 / 4.
template <int kK>
void integer_mma(const LaneArguments& lanes) {
  int16_t a[16][kK], b[8][kK];
  for (int lane = 0; lane < 32; ++lane) {
    const auto& own = at<IntegerMma>(lanes, lane);
    const int g = lane / 4, k = lane % 4 * 4;
    for (int half = 0; half < kK / 16; ++half)
      for (int i = 0; i < 4; ++i) {
        a[g][16 * half + k + i] = static_cast<int8_t>(own.a[2 * half] >> (8 * i));
        a[g + 8][16 * half + k + i] = static_cast<int8_t>(own.a[2 * half + 1] >> (8 * i));
        b[g][16 * half + k + i] = static_cast<int8_t>(own.b[half] >> (8 * i));
      }
  }
  int32_t sums[16][8];
  for (int row = 0; row < 16; ++row)
    for (int column = 0; column < 8; ++column) {
      int32_t sum = 0;  // at most 32 * 128 * 128
      for (int k = 0; k < kK; ++k) sum += a[row][k] * b[column][k];
      sums[row][column] = sum;
    }
  each_c<IntegerMma>(lanes, sums, [](int32_t& c, int32_t sum) {
    c = static_cast<int32_t>(static_cast<uint32_t>(c) + static_cast<uint32_t>(sum));
  });
}

void half_mma(const LaneArguments& lanes) {
  float a[16][16], b[16][8];  // A[row][k], B[k][column]
  for (int lane = 0; lane < 32; ++lane) {
    const auto& own = at<HalfMma>(lanes, lane);
    const int g = lane / 4, k = lane % 4 * 2;
    for (int half = 0; half < 2; ++half)
      for (int i = 0; i < 2; ++i) {
        a[g][8 * half + k + i] = half_of(own.a[2 * half], i);
        a[g + 8][8 * half + k + i] = half_of(own.a[2 * half + 1], i);
        b[8 * half + k + i][g] = half_of(own.b[half], i);
      }
  }
  float sums[16][8];
  each_c<HalfMma>(lanes, sums, [](float& c, float& sum) { sum = c; });
  for (int row = 0; row < 16; ++row)
    for (int k = 0; k < 16; ++k)
      for (int column = 0; column < 8; ++column) sums[row][column] += a[row][k] * b[k][column];
  each_c<HalfMma>(lanes, sums, [](float& c, float sum) { c = sum; });
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
