// The semantic operations a model family is written in. Shapes are in the comments, row-major, last index
// contiguous; activations are float32 and live in this device's memory, as do weights, ids, positions and KV.
// No operation here says how it runs: the CPU runs each to completion, a GPU enqueues. Every operation is
// row-invariant: row i of an n-row call is bitwise the result of the one-row call (docs/arithmetic.md), so
// batching can never change a token. Families mark where the account stands with begin_role(); operations
// declare the bytes they move to the ledger.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "ledger/ledger.h"
#include "quant/types.h"

namespace weir {

class Device;

/// Memory of a device, freed with it. Zero-filled when allocated, 64-byte aligned (4096 where bytes >= 4096).
class Buffer {
 public:
  Buffer() = default;
  Buffer(Device* device, void* data, size_t bytes) : device_(device), data_(data), bytes_(bytes) {}
  Buffer(Buffer&& other) noexcept { swap(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    swap(other);
    return *this;
  }
  ~Buffer();
  void* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  template <typename T>
  T* as() const {
    return static_cast<T*>(data_);
  }
  explicit operator bool() const { return data_ != nullptr; }

 private:
  void swap(Buffer& other) {
    std::swap(device_, other.device_);
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
  }
  Device* device_ = nullptr;
  void* data_ = nullptr;
  size_t bytes_ = 0;
};

/// A linear weight {in, out} in GGUF's own layout: row o is `in` consecutive elements of `type`; y[o] = sum
/// W[o,i] x[i]. `data` is in device memory and may be unaligned beyond the block's own needs (experts keep
/// their file offset's remainder): kernels use unaligned loads.
struct Matrix {
  const void* data = nullptr;
  Type type = Type::F32;
  int64_t in = 0, out = 0;
  uint64_t bytes() const { return type_info(type).bytes(static_cast<uint64_t>(in * out)); }
};

/// The rows of a batch, in device memory. Row r is token `token[r]` at absolute position `position[r]` of
/// lane `lane[r]`. Rows of one lane are in increasing position.
struct Rows {
  int count = 0;
  const int32_t* token = nullptr;     ///< [count]
  const int32_t* position = nullptr;  ///< [count]
  const int32_t* lane = nullptr;      ///< [count]
  // What the host knows of them, for a device whose memory it cannot read.
  int longest = 0;    ///< no position is at or above this: bounds grids; a replay keeps the recorded one
  bool lone = false;  ///< each row is the only one of its lane: none reads a key that another makes
  uint64_t kv_positions = 0;  ///< positions whose keys and values are read: the last row's of each lane, + 1
};

/// One layer's keys and values, f16: k[lane][position][kv head][head_dim], v likewise.
struct KvLayer {
  uint16_t* k = nullptr;
  uint16_t* v = nullptr;
  int64_t lane_stride = 0;  ///< elements from one lane to the next
  int64_t row_stride = 0;   ///< elements from one position to the next: kv_heads * head_dim
};

/// A lane's rows of a batch, which are consecutive: how many, and the last one's position.
struct LaneSpan {
  int rows = 0, last = 0;
};
/// Positions whose keys and values such a batch reads at least: in `window` (0: all) before each row.
inline uint64_t positions_seen(std::span<const LaneSpan> lanes, int window) {
  uint64_t sum = 0;
  for (const LaneSpan& lane : lanes) {
    const int all = lane.last + 1;
    sum += static_cast<uint64_t>(window > 0 ? std::min(all, window + lane.rows - 1) : all);
  }
  return sum;
}

struct EmbedArgs {
  Matrix table;  ///< {hidden, vocab}
  Rows rows;
  float* out = nullptr;  ///< [rows, hidden]
};

struct NormArgs {
  const float* x = nullptr;       ///< [rows, n]
  const float* weight = nullptr;  ///< [n], or null for none
  float* out = nullptr;           ///< [rows, n]; may be x
  int rows = 0;
  int64_t n = 0;
  float eps = 0;  ///< y = (x * (1 / sqrt(mean(x^2) + eps))) * weight
};

struct MatmulTarget {
  Matrix weight;         ///< {in, out}
  float* out = nullptr;  ///< [rows, out]; must not be x
  bool add = false;      ///< out += y instead of out = y
  /// [out], or null: added to the finished dot, y = W x + bias. With `add` too: one such target a call, whose
  /// input has no norm.
  const float* bias = nullptr;
};

/// Several weights over the same input (q, k and v; gate and up): the input is normed and quantised once.
struct MatmulArgs {
  const float* x = nullptr;  ///< [rows, in]
  int rows = 0;
  std::span<const MatmulTarget> targets;
  const float* norm = nullptr;  ///< [in]: the RMS norm (see NormArgs) that x goes through first, or null
  float eps = 0;                ///< of that norm
};

enum class RopeStyle : uint8_t {
  neox,    ///< pairs (i, i + n_rot/2)
  normal,  ///< pairs (2i, 2i + 1)
};

/// cos and sin by position, float32 from double on the host: [positions, n_rot / 2].
struct RopeTable {
  const float* cos = nullptr;
  const float* sin = nullptr;
  int n_rot = 0;
  RopeStyle style = RopeStyle::neox;
};

/// Per head: optional RMS norm of q and k over head_dim, rotation of n_rot dimensions, then k and v as f16
/// (ties to even) to the cache. q is rotated in place; an attend() of it that follows makes it scratch.
struct RopeStoreArgs {
  float* q = nullptr;             ///< [rows, heads, head_dim]
  float* k = nullptr;             ///< [rows, kv_heads, head_dim]; scratch afterwards
  const float* v = nullptr;       ///< [rows, kv_heads, head_dim]
  const float* q_norm = nullptr;  ///< [head_dim] or null
  const float* k_norm = nullptr;  ///< [head_dim] or null
  float eps = 0;
  int heads = 0, kv_heads = 0, head_dim = 0;
  RopeTable rope;
  Rows rows;
  KvLayer kv;
};

/// Softmax attention of each row over its lane's positions 0..position[r] (the cache already holds the rows
/// of this batch). Query head h reads kv head h / (heads / kv_heads).
struct AttendArgs {
  const float* q = nullptr;  ///< [rows, heads, head_dim]
  float* out = nullptr;      ///< [rows, heads, head_dim]
  int heads = 0, kv_heads = 0, head_dim = 0;
  float scale = 0;               ///< on the scores
  int window = 0;                ///< keys with 0 <= q - k < window are seen; 0: all
  const float* sinks = nullptr;  ///< [heads] extra logit in the denominator, or null
  Rows rows;
  KvLayer kv;
};

enum class RouterKind : uint8_t {
  softmax_selected,  ///< softmax over the selected logits (qwen3moe, mixtral, gpt-oss): equals renormalised
                     ///< softmax
  softmax_all,       ///< softmax over all, not renormalised (olmoe)
};

/// Float router. Selects the k largest logits (ties to the lower id) and writes them in increasing expert id.
struct RouteArgs {
  const float* x = nullptr;  ///< [rows, hidden]
  const float* norm =
      nullptr;              ///< [hidden]: x is normed first (see NormArgs), into `normed`; null: x as it is
  float eps = 0;            ///< of that norm
  float* normed = nullptr;  ///< [rows, hidden], where there is a norm: the experts' input
  Matrix router;            ///< {hidden, experts}, F32, F16 or BF16
  const float* bias = nullptr;  ///< [experts] or null
  int rows = 0, top_k = 0;
  RouterKind kind = RouterKind::softmax_selected;
  int32_t* ids = nullptr;    ///< [rows, top_k], increasing in each row
  float* weights = nullptr;  ///< [rows, top_k]
};

enum class Activation : uint8_t { swiglu };  ///< silu(gate) * up

/// One expert and the (row, slot) pairs routed to it: pair p means row p / top_k, output slot p.
struct ExpertWork {
  Matrix gate, up, down;           ///< {hidden, ff}, {hidden, ff}, {ff, hidden}
  std::span<const int32_t> pairs;  ///< host memory, increasing
};

/// parts[pair, :] = down(act(gate(x_row)) * up(x_row)) for every pair of every expert in the group.
struct ExpertsArgs {
  std::span<const ExpertWork> work;  ///< host memory
  const float* x = nullptr;          ///< [rows, hidden]
  int top_k = 0;
  Activation activation = Activation::swiglu;
  float* parts = nullptr;  ///< [rows * top_k, hidden]
};

/// h[row] += sum over j (increasing) of weights[row, j] * parts[row * top_k + j]; the sum is formed first, by
/// fma from 0.
struct CombineArgs {
  const float* parts = nullptr;    ///< [rows * top_k, hidden]
  const float* weights = nullptr;  ///< [rows, top_k]
  float* h = nullptr;              ///< [rows, hidden]
  int rows = 0, top_k = 0;
  int64_t hidden = 0;
};

/// One layer's routed experts in device memory, for devices that read ids themselves. Expert e lies in slot
/// slot_of[e]: its gate is `gate` moved on by slot * gate_stride bytes, and so on.
struct ExpertBank {
  Matrix gate, up, down;  ///< of slot 0: {hidden, ff}, {hidden, ff}, {ff, hidden}
  uint64_t gate_stride = 0, up_stride = 0, down_stride = 0;
  const int32_t* slot_of = nullptr;  ///< [experts], device memory; null: slot e holds expert e
  int experts = 0;
};

/// h[row] += sum over the row's chosen experts (increasing id) of weight * down(act(gate(x)) * up(x)): the
/// arithmetic of experts() and combine(), without a visit to the host.
struct RoutedArgs {
  ExpertBank bank;
  const float* x = nullptr;  ///< [rows, hidden]
  float* h = nullptr;        ///< [rows, hidden]
  int rows = 0, top_k = 0;
  const int32_t* ids = nullptr;    ///< [rows, top_k], increasing in each row
  const float* weights = nullptr;  ///< [rows, top_k]
  Activation activation = Activation::swiglu;
};

/// What choose() found in one row of logits.
struct Choice {
  int32_t token = -1;             ///< the largest logit's, ties to the lower id
  int32_t first_not_finite = -1;  ///< the first that is NaN or +inf, or -1
};

/// choice[r] from logits[r, :]; the `banned` ids count as -inf. Ids from `choosable` on, which a head can
/// have above the tokenizer's last, are never chosen, but a logit of theirs that is not finite is reported.
struct ChooseArgs {
  const float* logits = nullptr;  ///< [rows, n]
  int rows = 0;
  int64_t n = 0;
  const int32_t* banned = nullptr;  ///< [banned_count], device memory
  int banned_count = 0;
  Choice* choice = nullptr;  ///< [rows], device memory
  int64_t choosable = 0;     ///< 1 to n; 0: all n
};

struct GatedArgs {
  const float* gate = nullptr;  ///< [rows, n]
  const float* up = nullptr;    ///< [rows, n]
  float* out = nullptr;         ///< [rows, n]; may be gate
  int rows = 0;
  int64_t n = 0;
  Activation activation = Activation::swiglu;
};

/// What the largest call will need, so that scratch is allocated once and counted in the plan.
struct ScratchNeeds {
  int rows = 0;           ///< rows of the widest batch
  int64_t max_in = 0;     ///< widest matmul input
  int top_k = 0;          ///< 0: no experts
  int64_t expert_ff = 0;  ///< width of one expert
  int64_t hidden = 0;
  int experts = 0;
  int heads = 0, head_dim = 0;
  int longest = 0;  ///< positions of the longest context that attends
  /// The larger of each.
  ScratchNeeds covering(const ScratchNeeds& other) const;
};
inline ScratchNeeds ScratchNeeds::covering(const ScratchNeeds& other) const {
  return {std::max(rows, other.rows),      std::max(max_in, other.max_in),
          std::max(top_k, other.top_k),    std::max(expert_ff, other.expert_ff),
          std::max(hidden, other.hidden),  std::max(experts, other.experts),
          std::max(heads, other.heads),    std::max(head_dim, other.head_dim),
          std::max(longest, other.longest)};
}

/// What a model asks of a device that not every device has: for refusal(), before anything is loaded.
struct ModelShape {
  int heads = 0, kv_heads = 0, head_dim = 0;
  int experts = 0, top_k = 0;  ///< 0: no routed experts
  struct ExpertFormats {
    int layer;
    Type gate, up, down;
  };
  std::vector<ExpertFormats> expert_formats;  ///< of the layers that have experts
};

/// Which arithmetic attention is done in (docs/arithmetic.md). portable: the same bits on every device. fast:
/// the device's own, with the same invariances on that device. All else is the same in both.
enum class Arithmetic : uint8_t { portable, fast };

/// What a recording is found again by: two rounds with equal keys enqueue the same operations on the same
/// buffers, and differ in the contents of device memory alone.
struct RecordKey {
  int rows = 0, outputs = 0;
  int longest = 0;       ///< Rows::longest
  uint32_t flavour = 0;  ///< whatever else tells rounds apart
  bool operator==(const RecordKey&) const = default;
};

/// Bytes of the device's own memory.
struct DeviceMemory {
  uint64_t total = 0, free = 0;
  uint64_t context = 0;  ///< taken by the device itself (its context and modules)
};

class Device {
 public:
  virtual ~Device() = default;
  virtual const std::string& name() const = 0;  ///< "cpu"
  virtual std::string description() const = 0;  ///< "cpu: 2 threads, avx2"

  // --- memory
  // ----------------------------------------------------------------------------------------------------
  /// Zero-filled. Throws Error (failure) with `what` and the bytes where it cannot.
  virtual Buffer allocate(size_t bytes, const char* what) = 0;
  virtual void free(void* data, size_t bytes) noexcept = 0;
  virtual void upload(void* device_destination, const void* host_source, size_t bytes) = 0;
  virtual void download(void* host_destination, const void* device_source, size_t bytes) = 0;
  /// Why this device cannot compute such a model, in words that follow "FILE: "; empty where it can: then no
  /// operation of it meets a limit. Pure.
  virtual std::string refusal(const ModelShape& shape) const { return {}; }
  /// Bytes of scratch that reserve() would take for these needs: pure, for the plan.
  virtual uint64_t scratch_bytes(const ScratchNeeds& needs) const = 0;
  virtual void reserve(const ScratchNeeds& needs) = 0;
  /// All enqueued work is complete (a GPU waits here; the CPU returns at once). A fault of the device is
  /// thrown here as Error (failure).
  virtual void synchronize() = 0;
  /// After an error in the midst of a round: forgets what was enqueued or recorded since the last wait, so
  /// that another round can begin. A device that is lost says so again at its next call.
  virtual void abandon() noexcept {}
  /// Whether pointers from allocate() can be read by the host.
  virtual bool host_visible() const { return true; }
  /// Host memory that upload() and download() reach without a copy of their own, and that a replay reads and
  /// writes again. Freed with the Buffer.
  virtual Buffer allocate_host(size_t bytes, const char* what) { return allocate(bytes, what); }
  /// Nothing for a device that lives in the host's memory.
  virtual std::optional<DeviceMemory> memory() const { return std::nullopt; }
  /// Bytes that the device will take besides allocations (graphs, workspace): for the plan.
  virtual uint64_t overhead_bytes() const { return 0; }

  // --- recordings
  // ------------------------------------------------------------------------------------------------
  /// Operations between begin_record() and end_record() are enqueued as always, and kept under `key` where
  /// the device can. replay() enqueues what was kept, uploads and downloads of allocate_host() memory
  /// included, and returns true; false where nothing is kept. `kv_positions`: Rows::kv_positions of this
  /// round.
  virtual bool replay(const RecordKey& key, uint64_t kv_positions) { return false; }
  virtual void begin_record(const RecordKey& key) {}
  virtual void end_record() {}
  /// Drops every recording: the next round of each kind is recorded anew. Two recordings of one round are not
  /// equally fast to the last per cent, so what compares recordings compares several of each.
  virtual void forget_recordings() {}

  // --- the account
  // -----------------------------------------------------------------------------------------------
  void set_ledger(Ledger* ledger) { ledger_ = ledger, ledger_changed(); }
  Ledger* ledger() const { return ledger_; }
  /// What follows, or is replayed, is for these rows: a device that cannot read positions declares by them
  /// the bytes that attention in a window moves.
  virtual void begin_batch(std::span<const LaneSpan> lanes) {}
  /// What follows belongs to `role`: once per role and layer.
  virtual void begin_role(Role role) = 0;
  /// Files the thread team's busy and barrier times of the round with the ledger.
  virtual void file_imbalance() = 0;

  // --- operations
  // ------------------------------------------------------------------------------------------------
  virtual void embed(const EmbedArgs& args) = 0;
  virtual void rms_norm(const NormArgs& args) = 0;
  virtual void matmul(const MatmulArgs& args) = 0;
  virtual void rope_and_store(const RopeStoreArgs& args) = 0;
  virtual void attend(const AttendArgs& args) = 0;
  virtual void route(const RouteArgs& args) = 0;
  virtual void experts(const ExpertsArgs& args) = 0;
  virtual void combine(const CombineArgs& args) = 0;
  /// Only where routes_itself(). Distinct experts of the call are counted: see expert_visits().
  virtual void routed_experts(const RoutedArgs& args) {
    WEIR_CHECK(false, "{} has no routed_experts", name());
  }
  virtual bool routes_itself() const { return false; }
  /// Only where routes_itself(): distinct experts of every call of routed_experts() so far, replayed ones
  /// included, summed. Waits for the device. It counts for itself and files each round's with the ledger, as
  /// the host sees no ids.
  virtual uint64_t expert_visits() { return 0; }
  virtual void choose(const ChooseArgs& args) = 0;
  virtual void gated(const GatedArgs& args) = 0;
  virtual void add(float* h, const float* y, int64_t n) = 0;  ///< h += y, elementwise
  /// out[i, :] = x[index[i], :] for i < count; index in device memory.
  virtual void gather_rows(const float* x, const int32_t* index, int count, int64_t n, float* out) = 0;

 protected:
  virtual void ledger_changed() {}
  void declare_bytes(uint64_t n) {
    if (ledger_) ledger_->bytes(n);
  }
  Ledger* ledger_ = nullptr;
};

inline Buffer::~Buffer() {
  if (data_) device_->free(data_, bytes_);
}

enum class Isa : uint8_t { automatic, scalar, avx2, avx512 };

/// The CPU device. `threads` >= 1. Isa::automatic takes the widest that the processor has. avx2 needs AVX2,
/// FMA and F16C, avx512 also AVX512-VNNI (for the block formats' matmuls); both throw Error where it lacks
/// them.
std::unique_ptr<Device> make_cpu_device(int threads, Isa isa = Isa::automatic);

struct CudaOptions {
  int index = 0;  ///< of the GPU, as the driver counts
  Arithmetic arithmetic = Arithmetic::fast;
  bool graphs = true;  ///< false: recordings are not kept; the same bits
  /// Tests: the n-th allocation (from 1) fails as if memory were short; 0: none.
  int fail_allocation = 0;
  /// Tests: the n-th launch (from 1) fails as a faulty kernel's would; 0: none.
  uint64_t fail_launch = 0;
};

/// The CUDA device. Throws Error (input) where there is no such GPU, or this build has no CUDA.
std::unique_ptr<Device> make_cuda_device(const CudaOptions& options);
/// Whether this build has the CUDA device.
bool built_with_cuda();
/// GPUs the driver offers; 0 without CUDA.
int cuda_device_count();
/// The CUDA device's refusal(), known without a GPU and in every build.
std::string cuda_refusal(const ModelShape& shape);

}  // namespace weir
