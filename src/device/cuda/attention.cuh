// What attention's kernels share: the positions that a row sees, where a chunk's results lie between the
// kernels, and the formula that joins chunks (docs/arithmetic.md). Knows neither arithmetic: how a chunk is
// computed is attention_portable.cu's and attention_fast.cuh's.
#pragma once

#include <cstdint>

#include "base/arithmetic.h"
#include "device/cuda/kernels.h"
#include "device/cuda/ptx.cuh"
#include "device/gpu_limits.h"

namespace weir::cuda::attention {

/// Positions whose results are formed alone and then joined in order: part of each arithmetic's bits.
inline constexpr int portable_chunk = 256;
inline constexpr int fast_chunk = 64;

/// Results of chunks, for the rows of one slice: chunk c holds positions c * chunk .. of the row's lane. Only
/// chunks in which the row sees something are ever written.
struct Partials {
  float2* ml = nullptr;  ///< [rows, heads, chunks]: the maximum and the sum
  float* o = nullptr;    ///< [rows, heads, chunks, head_dim]
  int chunks = 0;        ///< even, so that every [chunks] of ml is 16-byte aligned
  int chunk = 0;         ///< positions
};

/// How query vectors are packed: the heads that read one kv head, at most `heads` at a time (a group), times
/// adjacent rows. Vector v of a block is row v / heads, head v % heads.
struct Packing {
  int heads = 0;   ///< of a group; the last group of a kv head may have fewer
  int groups = 0;  ///< of a kv head
  int rows = 0;    ///< of a block
};

inline Packing pack(const AttendArgs& args, int most_heads, int most_rows) {
  const int ratio = args.heads / args.kv_heads;
  Packing p;
  p.groups = (ratio + most_heads - 1) / most_heads;
  p.heads = (ratio + p.groups - 1) / p.groups;
  p.rows = most_rows;
  return p;
}

/// Inclusive; empty where last < first.
struct Span {
  int first = 0, last = -1;
  __device__ bool has(int position) const { return first <= position && position <= last; }
};

__device__ __forceinline__ Span span_of(int position, int window) {
  return {window > 0 && position >= window ? position - window + 1 : 0, position};
}

/// The heads of a block: kv head and first query head, by blockIdx.x = (row tile * groups + group) * kv_heads
/// + kv head. kv heads are fastest: those of one position are neighbours in memory.
struct Place {
  int kv_head, first_head, heads, first_row, rows;
};

__device__ __forceinline__ Place place_of(const AttendArgs& args, const Packing& packing, unsigned index) {
  const int ratio = args.heads / args.kv_heads;
  Place p;
  p.kv_head = static_cast<int>(index) % args.kv_heads;
  index /= static_cast<unsigned>(args.kv_heads);
  const int in_group = static_cast<int>(index) % packing.groups * packing.heads;
  p.first_row = static_cast<int>(index) / packing.groups * packing.rows;
  p.first_head = p.kv_head * ratio + in_group;
  p.heads = min(packing.heads, ratio - in_group);
  p.rows = min(packing.rows, args.rows.count - p.first_row);
  return p;
}

/// The rows begin..end - 1 of a block that are of one lane, and so read the same keys.
struct Run {
  int begin, end, lane;
  Span seen;  ///< by any of them
};

__device__ __forceinline__ Run run_at(const AttendArgs& args, int row, int end_row) {
  Run run{row, row + 1, args.rows.lane[row], {}};
  const int first_position = args.rows.position[row];
  while (run.end < end_row && args.rows.lane[run.end] == run.lane) ++run.end;
  // Rows of one lane are in increasing position: the ends bound all.
  const int last = run.end == row + 1 ? first_position : args.rows.position[run.end - 1];
  run.seen = {span_of(first_position, args.window).first, last};
  return run;
}

/// The factors that put a chunk (m, l, o) onto what is there (M, L, O):
/// L = fma(L, a, l * b), O[d] = fma(O[d], a, o[d] * b), M = joint.
struct Join {
  float joint, a, b;
};

__device__ __forceinline__ Join join(float M, float m) {
  const float joint = fmaxf(M, m);
  return {joint, exp_f32(M - joint), exp_f32(m - joint)};
}

/// The end of a row: y[d] = (O[d] * a) * inv.
struct Closing {
  float a, inv;
};

__device__ __forceinline__ Closing close_row(float M, float L, const float* sink) {
  float a = 1;
  if (sink) {
    const float t = *sink;
    const float joint = fmaxf(M, t);
    a = exp_f32(M - joint);
    L = fmaf(L, a, exp_f32(t - joint));
  }
  return {a, 1.0f / L};
}

// --- launchers (attention.cu chooses)
// -------------------------------------------------------------------------

/// Every chunk of every row into partials. `longest` bounds the positions.
void portable_chunks(Stream& s, const AttendArgs& args, const Partials& partials);
void fast_chunks(Stream& s, const AttendArgs& args, const Partials& partials);
/// The same for rows that have yet to be rotated and stored, as `rope` says; args.q is not read. The portable
/// one takes one row, the fast one several where each is alone in its lane.
void fused_portable_chunks(Stream& s, const AttendArgs& args, const RopeStoreArgs& rope,
                           const Partials& partials);
/// `settled`: AttendMore's.
void fused_fast_chunks(Stream& s, const AttendArgs& args, const RopeStoreArgs& rope, const Partials& partials,
                       bool settled);
/// The joining of the rows' chunks into args.out and, quantised, into acts: where joins_quantised(), of all
/// rows of a call.
void join_quantised(Stream& s, const AttendArgs& args, const Partials& partials, const Acts& acts,
                    bool settled);
bool joins_quantised(const AttendArgs& args, const Partials& partials, const Acts& acts);
/// Attention to its end, each block walking all chunks of its rows: the bits of fast_chunks() and their
/// joining.
void fast_walk(Stream& s, const AttendArgs& args);
/// Whether the fast arithmetic has kernels for this shape.
bool has_fast(int head_dim);
/// Blocks that fast_walk() would launch.
int64_t fast_walk_blocks(const AttendArgs& args);

}  // namespace weir::cuda::attention
