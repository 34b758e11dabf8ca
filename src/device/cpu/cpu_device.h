// The CPU device: weights and activations in the process's memory, every operation run to completion on a
// thread team before it returns. Owns the team, the scratch of all operations and the split of the work;
// the arithmetic is in the kernels of one instruction set, taken when the device is made. Knows no family
// and no file. One file per group of operations: cpu_device.cpp (memory, rows), cpu_matmul.cpp (matmul,
// route), cpu_attention.cpp, cpu_experts.cpp.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/thread_team.h"
#include "device/cpu/kernels.h"
#include "device/device.h"

namespace weir::cpu {

/// A candidate of the router.
struct Selected {
  float logit;
  int32_t id;
};

/// Where each operation's scratch lies in the one buffer of the device, in bytes from its begin; 64-byte
/// aligned. `rows` wide batches of at most `in` wide inputs.
struct ScratchLayout {
  ScratchNeeds needs;
  int64_t in = 0;               ///< width of the quantised rows: the widest input, whole blocks
  int64_t pairs = 0;            ///< (row, slot) pairs that experts() computes at a time
  size_t q32 = 0, scale32 = 0;  ///< [rows, in], [rows, in / 32]
  size_t q256 = 0, scale256 = 0, sums256 = 0;  ///< [rows, in], [rows, in / 256], [rows, in / 32]
  size_t logits = 0;                           ///< [rows, experts]
  size_t normed = 0, added = 0;                ///< [rows, in], [rows, hidden]: matmul's norm and sums
  size_t attend = 0, attend_stride = 0;        ///< [members] x attend_stride
  size_t chosen = 0, chosen_stride = 0;        ///< [members] x chosen_stride: a row's [top_k] Selected
  size_t gate = 0, up = 0;                     ///< [pairs, ff]
  size_t q_ff = 0, scale_ff = 0, sums_ff = 0;  ///< [pairs, ff], [pairs, ff / 32], [pairs, ff / 32]
  size_t pair_row = 0;                         ///< [pairs] int32: a pair's row
  size_t row_list = 0, row_seen = 0;           ///< [rows] int32, [rows] bytes
  size_t bytes = 0;
};
/// Pure. experts() holds at most `expert_slice_pairs` pairs at a time, however many rows a prefill batch has.
ScratchLayout plan_scratch(const ScratchNeeds& needs, int threads);
inline constexpr int64_t expert_slice_pairs = 1024;

class CpuDevice final : public Device {
 public:
  CpuDevice(int threads, const MatmulKernels& matmul, const FloatKernels& floats);

  const std::string& name() const override { return name_; }
  std::string description() const override;
  Buffer allocate(size_t bytes, const char* what) override;
  void free(void* data, size_t bytes) noexcept override;
  void upload(void* device_destination, const void* host_source, size_t bytes) override;
  void download(void* host_destination, const void* device_source, size_t bytes) override;
  uint64_t scratch_bytes(const ScratchNeeds& needs) const override;
  /// Grows to hold all needs given so far, each taken at its largest. Nothing allocates afterwards.
  void reserve(const ScratchNeeds& needs) override;
  void synchronize() override {}
  void begin_role(Role role) override { enter_role(ledger_, role); }
  void file_imbalance() override;

  void embed(const EmbedArgs& args) override;
  void rms_norm(const NormArgs& args) override;
  void matmul(const MatmulArgs& args) override;
  void rope_and_store(const RopeStoreArgs& args) override;
  void attend(const AttendArgs& args) override;
  void route(const RouteArgs& args) override;
  void experts(const ExpertsArgs& args) override;
  void combine(const CombineArgs& args) override;
  void choose(const ChooseArgs& args) override;
  void gated(const GatedArgs& args) override;
  void add(float* h, const float* y, int64_t n) override;
  void gather_rows(const float* x, const int32_t* index, int count, int64_t n, float* out) override;

 private:
  void ledger_changed() override { team_.set_timing(ledger_ != nullptr); }

  template <typename T>
  T* scratch(size_t offset) const {
    return reinterpret_cast<T*>(scratch_.as<uint8_t>() + offset);
  }
  MatmulKernel matmul_kernel(Type type) const;
  QuantizeKernel quantize_kernel(ActFormat format) const;
  /// The scratch of `rows` quantised rows of `in` values, and the task that fills it from x.
  quant::ActRows act_rows(ActFormat format, int rows, int64_t in) const;
  QuantizeTask act_task(ActFormat format, const float* x, int64_t in) const;
  void quantize_rows(ActFormat format, const float* x, int rows, int64_t in);
  void check_rows(int rows, int64_t in) const;
  /// matmul of x as it is, each target's result in its place of `out`.
  void matmul_into(const MatmulArgs& args, std::span<float* const> out);

  /// Calls work(member) once on each member.
  template <typename F>
  void each_member(F&& work) {
    team_.run(team_.size(), 1, [&](int64_t begin, int64_t end, int) {
      for (int64_t m = begin; m < end; ++m) work(static_cast<int>(m));
    });
  }

  // Parts of experts(), in cpu_experts.cpp.
  struct ExpertPiece {
    const ExpertWork* work;
    int64_t pair_begin, pair_end;  ///< of work->pairs
    int64_t local;                 ///< first pair in the slice's scratch
    int64_t pairs() const { return pair_end - pair_begin; }
  };
  void quantize_expert_rows(const ExpertsArgs& args);
  void run_expert_slice(const ExpertsArgs& args);
  void expert_gate_up(const ExpertsArgs& args, int member);
  void expert_activate(const ExpertPiece& piece, int64_t pair_begin, int64_t pair_end);
  void expert_down(const ExpertsArgs& args, int member);
  quant::ActRows piece_act_rows(const ExpertPiece& piece) const;

  std::string name_ = "cpu";
  ThreadTeam team_;
  const MatmulKernels& matmul_;
  const FloatKernels& float_;
  ScratchLayout layout_;
  Buffer scratch_;
  std::vector<ExpertPiece> slice_;  ///< capacity layout_.pairs, reserved with the scratch
};

}  // namespace weir::cpu
