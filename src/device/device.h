// The semantic operations a model family is written in. Shapes are in the comments, row-major, last index
// contiguous; activations are float32 and live in this device's memory, as do weights, ids, positions and KV.
// No operation here says how it runs: the CPU runs each to completion, a GPU enqueues. Every operation is
// row-invariant: row i of an n-row call is bitwise the result of the one-row call (docs/arithmetic.md), so
// batching can never change a token. Families mark where the account stands with begin_role(); operations
// declare the bytes they move to the ledger.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

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
};

/// One layer's keys and values, f16: k[lane][position][kv head][head_dim], v likewise.
struct KvLayer {
  uint16_t* k = nullptr;
  uint16_t* v = nullptr;
  int64_t lane_stride = 0;  ///< elements from one lane to the next
  int64_t row_stride = 0;   ///< elements from one position to the next: kv_heads * head_dim
};

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
  float* out = nullptr;  ///< [rows, out]
};

/// Several weights over the same input (q, k and v; gate and up): the input is quantised once per activation
/// format.
struct MatmulArgs {
  const float* x = nullptr;  ///< [rows, in]
  int rows = 0;
  std::span<const MatmulTarget> targets;
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

/// Per head: optional RMS norm of q and k over head_dim, rotation of the first n_rot dimensions, then k and v
/// (rounded to f16, ties to even) to the cache at (lane, position). q is rotated in place.
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
  const float* x = nullptr;     ///< [rows, hidden]
  Matrix router;                ///< {hidden, experts}, F32, F16 or BF16
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
  /// Bytes of scratch that reserve() would take for these needs: pure, for the plan.
  virtual uint64_t scratch_bytes(const ScratchNeeds& needs) const = 0;
  virtual void reserve(const ScratchNeeds& needs) = 0;
  /// All enqueued work is complete (a GPU waits here; the CPU returns at once).
  virtual void synchronize() = 0;

  // --- the account
  // -----------------------------------------------------------------------------------------------
  void set_ledger(Ledger* ledger) { ledger_ = ledger, ledger_changed(); }
  Ledger* ledger() const { return ledger_; }
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

}  // namespace weir
