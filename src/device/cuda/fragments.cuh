// Weight blocks as operands of the integer tensor cores: a warp holds 16 weight rows (A) times 8 activation
// rows (B). Sums of integers are exact in any order, so within a step the k values may be permuted as long as
// A and B agree. Lane (g = lane / 4, t = lane % 4) supplies
//   steps of 32 values:  A: weight rows g and g + 8, values 8t..8t+7 of the step; B: activation row g, values
//                        8t..8t+3 (b0) and 8t+4..8t+7 (b1)
//   steps of 16 values:  A: weight rows g and g + 8, values 4t..4t+3;             B: activation row g,
//   4t..4t+3
// and receives weight rows g (c[0], c[1]) and g + 8 (c[2], c[3]) of activation rows 2t and 2t + 1.
//
// Fragments<Codec> is a lane's share of one super-block of 256 values of K in weight rows g and g + 8 (row
// index 0 and 1 below). One file per format (fragments_q4_k.cuh, ...), included by the format's own .cu
// files.
//   static constexpr int step_k;             32 or 16
//   static constexpr bool integer_scale;     true: total += scale(step) * dot, minimum += ..., and one float
//   step a
//                                            super-block (K-quants); false: every step of 32 is a float block
//                                            of its own (the 32-value formats), whose last super-block may be
//                                            shorter
//   static constexpr int block_bytes;        of a super-block: 144 for Q4_K, 8 * 34 for Q8_0
//   void load(const uint8_t* row0, const uint8_t* row1, int t, int values);   from shared or global memory:
//   pointers to
//                                            the super-block of the two rows, aligned to the format's own
//                                            block (2 bytes; 16 for Q4_K); values: 256, or fewer at the end
//                                            of K (a multiple of 32): what is past them must not be read, and
//                                            gives zeros
//   void a(int step, uint32_t (&a)[4]) const;       step is a compile-time constant after unrolling (k16:
//   a[0], a[1]) int scale(int step, int row) const;             integer_scale int minimum(int step, int row)
//   const;           integer_scale with has_minimum, for steps of 32 float d(int row) const, dmin(int row)
//   const;    integer_scale float d(int step, int row) const;               otherwise
#pragma once

#include <cstdint>

#include "device/cuda/ptx.cuh"

namespace weir::cuda {

template <typename Codec>
struct Fragments;

}  // namespace weir::cuda
