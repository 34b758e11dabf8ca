// Every kernel's launcher. Pointers are device memory; nothing here allocates or waits. A launcher marked
// (stamps) can be the first of a role: it takes Stream::stamp along. Results are
// those of docs/arithmetic.md, bit for bit, except attend() in the fast arithmetic. One marked (settles) lets
// nothing after it start before everything before it is complete: kernels after it may read that ahead of
// their own waits.
#pragma once

#include <cstdint>

#include "device/cuda/launch.h"
#include "device/device.h"

namespace weir::cuda {

/// Rows of activations in int8 (quant/codec.h: ActRows), in device memory: q [rows, in]; scale
/// [rows, in / 256 or in / 32]; sums [rows, in / 32] (per256 only). Rows are contiguous at these widths.
struct Acts {
  int8_t* q = nullptr;
  float* scale = nullptr;
  int16_t* sums = nullptr;
  int64_t in = 0;
  ActFormat format = ActFormat::none;
};

// --- rows.cu
// -------------------------------------------------------------------------------------------------

void embed(Stream& s, const EmbedArgs& args);    // (stamps, settles)
void rms_norm(Stream& s, const NormArgs& args);  // (stamps)
/// out[r] = quantised x[r], RMS-normed first where norm is not null. (stamps)
void quantise(Stream& s, const float* x, const float* norm, float eps, int rows, int64_t in, const Acts& out);
void gated(Stream& s, const GatedArgs& args);
void add(Stream& s, float* h, const float* y, int64_t n);
void gather_rows(Stream& s, const float* x, const int32_t* index, int count, int64_t n,
                 float* out);  // (stamps)
void combine(Stream& s, const CombineArgs& args);
/// `partial` holds choose_partial_bytes(rows), all zero between launches.
void choose(Stream& s, const ChooseArgs& args, void* partial);
size_t choose_partial_bytes(int rows);
/// Copies between device memory and host memory that the device can reach (mapped), by a kernel: no copy
/// engine between the kernels of a recording. bytes % 4 == 0, both 4-byte aligned. The source may be either.
void copy_mapped(Stream& s, void* destination, const void* source, size_t bytes);  // (stamps)
/// The end of a round: copies `bytes` of results from `source` to `destination` (mapped host memory), the
/// `stamp_count` stamps (the last of which it takes itself) to `stamps_out`, then writes `ticket` + 1 to both
/// *ticket and *flag (mapped), in that order for the host. stamps null: no stamps.
struct Finish {
  uint32_t* ticket = nullptr;         ///< device memory: counts rounds
  volatile uint32_t* flag = nullptr;  ///< mapped host memory
  uint64_t* stamps = nullptr;         ///< device memory
  uint64_t* stamps_out = nullptr;     ///< mapped host memory
  int stamp_count = 0;
};
void finish(Stream& s, const Finish& args);
/// Spins for `ns` on one thread: delay injection.
void spin(Stream& s, uint64_t ns);
/// The smallest step of the device's clock, in ns, into *out (device memory).
void measure_tick(Stream& s, uint64_t* out);

// --- small_matmul*.cu: at most small_rows rows, weights read once
// ------------------------------------------------

inline constexpr int small_rows = 16;

struct SmallTarget {
  const void* weight = nullptr;  ///< [out, in] in `type`
  float* out = nullptr;          ///< [rows, out]
  int64_t out_rows = 0;
  bool add = false;
};

/// y = W x for up to three weights of one block format. One row: x is normed (where norm is not null) and
/// quantised inside, each block for itself (stamps). More rows: acts holds them quantised, x is not read.
struct SmallMatmul {
  Type type = Type::F32;  ///< a format with int8 activations
  int64_t in = 0;
  int rows = 0;
  SmallTarget target[3];
  int targets = 0;
  const float* x = nullptr;
  const float* norm = nullptr;
  float eps = 0;
  Acts acts;
};
void small_matmul(Stream& s, const SmallMatmul& args);
/// Whether a block's shared memory holds what that takes. One very wide row's does not.
bool small_matmul_fits(const Stream& s, const SmallMatmul& args);

/// The (row, slot) pairs of a batch by expert, in device memory; made by route() for up to small_rows rows
/// and by group_pairs() for more.
struct ExpertGroups {
  int32_t* active = nullptr;   ///< [1]: experts with at least one pair
  int32_t* expert = nullptr;   ///< [active], increasing
  int32_t* begin = nullptr;    ///< [active + 1], into pairs
  int32_t* pairs = nullptr;    ///< [rows * top_k]: by expert, then increasing; pair p is row p / top_k
  uint64_t* visits = nullptr;  ///< [1]: += active
};

/// Whether the one-row kernels take these weights' activations from acts; one_row.cpp.
bool one_row_takes_acts(Type type, int64_t in);
/// One row x, quantised inside: act[pair, :] = silu(gate(x)) * up(x), float [top_k, ff], by the expert
/// ids[pair]. gate and up have one type. (stamps, settles)
void small_gate_up(Stream& s, const ExpertBank& bank, const int32_t* ids, const float* x, int top_k,
                   float* act);
/// One row: h += sum over the top_k pairs, in order, of weights[pair] * down(act[pair]), act quantised
/// inside. ids_are_final: the launch before is one_row_gate_up or small_gate_up, which start when all before
/// them is complete.
void small_down_sum(Stream& s, const ExpertBank& bank, const int32_t* ids, const float* weights, int top_k,
                    bool ids_are_final, const float* act, float* h);
/// Whether a block's shared memory holds what these take: the row; the inner rows of all pairs.
bool small_gate_up_fits(const Stream& s, const ExpertBank& bank, int top_k);
bool small_down_fits(const ExpertBank& bank, int top_k);

// --- one_row*.cu: one row and Q4_K weights, the latency path
// ------------------------------------------------------------------------------

/// Whether the one-row kernels take such a weight: its alignment too, or (takes_acts) its format and width
/// alone. Else the small ones do.
bool one_row_fits(const Matrix& weight);
bool one_row_takes_acts(Type type, int64_t in);
/// As small_matmul at one row (stamps); x null: acts holds the row, quantised (per256, with sums).
void one_row_matmul(Stream& s, const SmallMatmul& args);
/// One row's routed experts, as small_gate_up; x null: acts holds the row, quantised (per256, with sums).
/// (stamps, settles)
bool one_row_gate_up_fits(const ExpertBank& bank);
void one_row_gate_up(Stream& s, const ExpertBank& bank, const int32_t* ids, int top_k, const float* x,
                     const Acts& acts, float* act);
/// h and ids_are_final as small_down_sum has them.
bool one_row_down_fits(const ExpertBank& bank, int top_k);
void one_row_down_sum(Stream& s, const ExpertBank& bank, const int32_t* ids, const float* weights, int top_k,
                      bool ids_are_final, const float* act, float* h);

// --- few_rows_*.cu: 2 to small_rows rows and Q4_K experts
// ---------------------------------------------------------

/// Whether the two below take these experts.
bool few_rows_fit(const ExpertBank& bank, int top_k);
/// act[pair, :] = silu(gate(x)) * up(x) by the expert ids[pair] for row pair / top_k of acts (per256, with
/// sums); *visits += the experts that at least one row chose, unless visits is null. (stamps, settles)
void few_rows_gate_up(Stream& s, const ExpertBank& bank, const int32_t* ids, int rows, int top_k,
                      const Acts& acts, uint64_t* visits, float* act);
/// h[row, :] += sum over the row's pairs, in order, of weights[pair] * down(act[pair]). The launch before is
/// few_rows_gate_up.
void few_rows_down_sum(Stream& s, const ExpertBank& bank, const int32_t* ids, const float* weights, int rows,
                       int top_k, const float* act, float* h);

// --- large_matmul*.cu: any number of rows, integer tensor-core tiles
// ---------------------------------------------

/// out[r, :] (+)= W acts[r] for one weight.
struct LargeMatmul {
  Type type = Type::F32;
  const void* weight = nullptr;
  int64_t in = 0, out_rows = 0;
  Acts acts;
  int rows = 0;
  float* out = nullptr;
  bool add = false;
};
void large_matmul(Stream& s, const LargeMatmul& args);
/// Groups ids [rows, top_k] by expert.
void group_pairs(Stream& s, const int32_t* ids, int rows, int top_k, int experts, const ExpertGroups& out);
/// act[pair, :] = silu(gate(x_row)) * up(x_row), float [rows * top_k, ff], and parts[pair, :] =
/// down(acts[pair]), float [rows * top_k, hidden], for any number of rows. Pairs by `groups`.
void large_gate_up(Stream& s, const ExpertBank& bank, const ExpertGroups& groups, const Acts& acts, int rows,
                   int top_k, float* act);
void large_down(Stream& s, const ExpertBank& bank, const ExpertGroups& groups, const Acts& acts, int rows,
                int top_k, float* parts);

// --- bias.cu
// -------------------------------------------------------------------------------------------------------

struct BiasTarget {
  float* y = nullptr;           ///< [rows, out]: finished dots
  const float* bias = nullptr;  ///< [out]; constant since loading
  float* sum = nullptr;         ///< [rows, out], or null
  int64_t out = 0;
};
/// y[r] = y[r] + bias, or where there is a sum: sum[r] += y[r] + bias and y as it was. Up to three at once.
struct AddBias {
  BiasTarget target[3];
  int targets = 0;
  int rows = 0;
};
void add_bias(Stream& s, const AddBias& args);

// --- float_matmul.cu: F32, F16 and BF16 weights, float dots
// --------------------------------------------------------

/// out[r, :] (+)= W x[r], x normed by the caller. (stamps)
void float_matmul(Stream& s, const Matrix& weight, const float* x, int rows, float* out, bool add);
/// Experts in float formats, any number of rows: act and parts as above. (gate_up stamps)
void float_gate_up(Stream& s, const ExpertBank& bank, const ExpertGroups& groups, const float* x, int rows,
                   int top_k, float* act);
void float_down(Stream& s, const ExpertBank& bank, const ExpertGroups& groups, const float* act, int rows,
                int top_k, float* parts);

// --- router.cu
// -------------------------------------------------------------------------------------------------------

/// Norm, logits (`logits` [rows, experts] is scratch), selection into args.ids and args.weights. With at most
/// small_rows rows also `groups`, unless takes_route_one() (route_one.h) and more than one row; one launch,
/// one block of which selects (`tickets`: route_ticket_words a row, all zero between launches). With more
/// rows up to three launches, and groups is untouched; three too for a hidden width over 8,192. acts, unless
/// its format is none: what was multiplied, quantised; one row of whole segments of 512 values in per256 is
/// part of the same launch, all else is one more. (stamps)
inline constexpr int most_one_experts = 256;  ///< of one row's own kernel
inline constexpr int route_ticket_words = 1 + most_one_experts;
void route(Stream& s, const RouteArgs& args, float* logits, uint32_t* tickets, const ExpertGroups& groups,
           const Acts& acts);

// --- attention*.cu
// -----------------------------------------------------------------------------------------------------

void rope_and_store(Stream& s, const RopeStoreArgs& args);
/// What attend() can do beside attention.
struct AttendMore {
  /// The rows have yet to be rotated and stored: rope_and_store(rope) is part of the call. For batches that
  /// attend_rotates() names, of the same heads, cache and rows as attend's, and q as its q; q is not always
  /// written then.
  const RopeStoreArgs* rope = nullptr;
  const Acts* acts = nullptr;  ///< args.out is wanted quantised too, as quantise() would
  /// The rows' positions and lanes and the cache are complete when this call's first launch starts: with a
  /// rope to apply, what is in the cache then streams ahead of the wait for the rows' own.
  bool settled = false;
};
/// Chunks of positions into `partials` (attend_partial_bytes), then their combination into args.out.
/// args.rows.longest bounds every position; reading stops at each row's own. Returns whether more.acts is
/// written: only some shapes' is.
bool attend(Stream& s, const AttendArgs& args, Arithmetic arithmetic, void* partials, size_t partial_bytes,
            const AttendMore& more = {});
/// Whether attend() can rotate and store such rows on its way: one row, and in the fast arithmetic a few that
/// are alone in their lanes.
bool attend_rotates(const Rows& rows, int head_dim, Arithmetic arithmetic);
/// What attend() wants for a batch of `rows` rows and `longest` positions; it works through wide batches in
/// slices, so that this stays bounded.
size_t attend_partial_bytes(int rows, int heads, int head_dim, int longest);

}  // namespace weir::cuda
