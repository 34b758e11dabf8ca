// The CUDA device: one stream, one GPU, weights and activations in its memory. Owns memory, scratch,
// recordings (CUDA graphs) and the stamps that tell the ledger when each role ran; the work itself is in the
// kernels (kernels.h). Nothing between two synchronize() calls waits for the GPU. Knows no family and no
// file. One file per concern: cuda_device.cpp (opening, memory, waiting), recordings.cpp, account.cpp,
// operations.cpp, expert_operations.cpp.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "device/cuda/clock_tie.h"
#include "device/cuda/kernels.h"
#include "device/device.h"

namespace weir::cuda {

/// Where each operation's scratch lies in the one buffer of the device, in bytes from its begin.
struct ScratchLayout {
  ScratchNeeds needs;
  int64_t pairs = 0;                  ///< rows * top_k
  size_t q = 0, scale = 0, sums = 0;  ///< activations of a batch: [rows, in], [rows, in / 32] twice
  size_t pair_q = 0, pair_scale = 0, pair_sums = 0;  ///< of the experts' inner rows: [pairs, ff], ...
  size_t normed = 0;                                 ///< [rows, in]: for weights that are not quantised
  size_t act = 0, parts = 0;                         ///< [pairs, ff], [pairs, hidden]
  size_t logits = 0;                                 ///< [rows, experts]
  size_t active = 0, expert = 0, begin = 0, pair_list = 0, ticket = 0;
  size_t partials = 0, partial_bytes = 0;  ///< attention
  size_t choose = 0;
  size_t bytes = 0;
};
ScratchLayout plan_scratch(const ScratchNeeds& needs);

/// What a round is charged for once it is complete: roles in order of their stamps, and bytes.
struct RoundAccount {
  std::vector<Role> roles;                                ///< of stamp i + first_stamp
  std::array<uint64_t, role_count> bytes{};               ///< moved whatever the positions are
  std::array<uint64_t, role_count> bytes_per_position{};  ///< times Rows::kv_positions
  std::array<uint64_t, role_count> bytes_per_visit{};     ///< an expert's, summed over `visit_layers`,
  std::array<uint64_t, role_count> visit_layers{};        ///< times experts visited in all of them
  struct Window {
    Role role;
    int window;
    uint64_t bytes_per_position;
  };
  std::vector<Window> windows;  ///< times the positions seen in such a window; one for each role and window
  void add_window(Role role, int window, uint64_t position_bytes);
  /// Keeps the lists' memory: a round allocates nothing.
  void clear() {
    roles.clear(), windows.clear();
    for (auto* counts : {&bytes, &bytes_per_position, &bytes_per_visit, &visit_layers}) counts->fill(0);
  }
};

class CudaDevice final : public Device {
 public:
  explicit CudaDevice(const CudaOptions& options);
  ~CudaDevice() override;

  const std::string& name() const override { return name_; }
  std::string description() const override;
  Buffer allocate(size_t bytes, const char* what) override;
  Buffer allocate_host(size_t bytes, const char* what) override;
  void free(void* data, size_t bytes) noexcept override;
  void upload(void* device_destination, const void* host_source, size_t bytes) override;
  void download(void* host_destination, const void* device_source, size_t bytes) override;
  std::string refusal(const ModelShape& shape) const override { return cuda_refusal(shape); }
  uint64_t scratch_bytes(const ScratchNeeds& needs) const override { return plan_scratch(needs).bytes; }
  void reserve(const ScratchNeeds& needs) override;
  void synchronize() override;
  void abandon() noexcept override;
  bool host_visible() const override { return false; }
  bool routes_itself() const override { return true; }
  uint64_t expert_visits() override;
  std::optional<DeviceMemory> memory() const override;
  uint64_t overhead_bytes() const override;

  bool replay(const RecordKey& key, uint64_t kv_positions) override;
  void begin_record(const RecordKey& key) override;
  void end_record() override;
  void forget_recordings() override;

  void begin_batch(std::span<const LaneSpan> lanes) override { lanes_.assign(lanes.begin(), lanes.end()); }
  void begin_role(Role role) override;
  void file_imbalance() override {}

  void embed(const EmbedArgs& args) override;
  void rms_norm(const NormArgs& args) override;
  void matmul(const MatmulArgs& args) override;
  void rope_and_store(const RopeStoreArgs& args) override;
  void attend(const AttendArgs& args) override;
  void route(const RouteArgs& args) override;
  void experts(const ExpertsArgs& args) override;
  void combine(const CombineArgs& args) override;
  void routed_experts(const RoutedArgs& args) override;
  void choose(const ChooseArgs& args) override;
  void gated(const GatedArgs& args) override;
  void add(float* h, const float* y, int64_t n) override;
  void gather_rows(const float* x, const int32_t* index, int count, int64_t n, float* out) override;

  /// Launches since the start, replayed ones included; nodes of the recording that ran last. For tests.
  uint64_t launches() const { return replayed_launches_ + stream_.launches; }
  size_t recorded_nodes() const { return last_nodes_; }

 protected:
  void ledger_changed() override;

 private:
  struct Recording {
    cudaGraphExec_t graph = nullptr;
    RoundAccount account;
    size_t nodes = 0;
    uint64_t launches = 0, used = 0;
    bool spins = false;  ///< the delay of its key: the role that it belongs to ran
  };
  /// A RecordKey and what the device itself makes differ: stamped or not, and a delay's role and length.
  struct FullKey {
    RecordKey key;
    bool stamped = false;
    int delay_role = -1;
    uint64_t delay_ns = 0;
    auto tie() const {
      return std::tie(key.rows, key.outputs, key.longest, key.flavour, stamped, delay_role, delay_ns);
    }
    bool operator<(const FullKey& other) const { return tie() < other.tie(); }
  };
  void open_memory();
  /// What is called from here on is this GPU's; another device of the process may have been before.
  void make_current() const;
  FullKey full_key(const RecordKey& key) const;
  void launch_recording(Recording& recording, uint64_t kv_positions);
  void drop_oldest_recording();
  void abandon_capture() noexcept;

  /// Rows that acts() holds quantised: of the operation before this one alone.
  struct ReadyActs {
    const float* x = nullptr;  ///< null: none
    int64_t in = 0;
    ActFormat format = ActFormat::none;
    int rows = 1;
    bool is(const float* row, int row_count, const Acts& wanted) const {
      return x != nullptr && x == row && rows == row_count && in == wanted.in && format == wanted.format;
    }
  };

  /// How a layer's experts are computed: one row's by pair, a few rows' by pair, or any number's by expert.
  struct ExpertPath {
    bool few = false;
    bool inner_by_pair = false, outer_by_pair = false;  ///< one row's gate and up; its down and sum
    bool by_pair() const { return few || (inner_by_pair && outer_by_pair); }
  };

  /// Before and after every operation: `begin` opens the round's account, `end` injects a delay that is due.
  void begin_operation();
  void end_operation();
  void open_round();
  void enqueue_finish();
  void wait_for_flag();
  void charge_round();
  void declare(uint64_t bytes) { account_.bytes[static_cast<size_t>(role_)] += bytes; }

  template <typename T>
  T* scratch(size_t offset) const {
    return reinterpret_cast<T*>(scratch_.as<uint8_t>() + offset);
  }
  Acts acts(ActFormat format, int64_t in) const;
  Acts pair_acts(ActFormat format, int64_t in) const;
  ExpertGroups groups() const;
  void launch_dots(const MatmulArgs& args, ReadyActs ready);
  void quantised_matmul(const MatmulArgs& args, Type type, std::span<const MatmulTarget> targets,
                        ReadyActs& ready);
  void large_matmuls(const MatmulArgs& args, Type type, std::span<const MatmulTarget> targets,
                     const Acts& quantised);
  void launch_waiting_rope();
  ExpertPath expert_path(const RoutedArgs& args) const;
  void group_rows(const RoutedArgs& args);
  void expert_inner(const RoutedArgs& args, const ReadyActs& ready, ExpertPath path, uint64_t* visits);
  void expert_outer(const RoutedArgs& args, ExpertPath path);
  void check_scratch(int rows, int64_t in) const;
  bool is_ours(const void* host) const;

  static constexpr size_t mailbox_flag_bytes = 64;
  static constexpr size_t most_stamps = 4096;
  static constexpr size_t first_stamp = 1;  ///< slot 0 counts visits to experts
  static constexpr size_t most_recordings = 48;

  CudaOptions options_;
  std::string name_, model_;
  int index_ = 0, major_ = 0, minor_ = 0;
  uint64_t context_bytes_ = 0;
  Stream stream_;
  std::map<const uint8_t*, size_t> host_ranges_;  ///< what allocate_host() gave out
  int allocations_ = 0;

  ScratchLayout layout_;
  Buffer scratch_;
  const int32_t* grouped_ids_ = nullptr;  ///< whose pairs groups() holds
  int grouped_rows_ = 0;
  ReadyActs ready_;
  std::optional<RopeStoreArgs> waiting_rope_;  ///< not launched yet: attend() may take it over
  /// The batch's rows and the cache are complete when anything launched from here on starts: a kernel came
  /// after what wrote them that lets none start before its own wait is over (embed, gate and up).
  bool settled_ = false;

  // The round under way.
  bool pending_ = false;  ///< something was enqueued since the last wait
  bool finished_ = true;  ///< and its finish kernel too
  Role role_ = Role::unattributed;
  uint64_t due_delay_ns_ = 0;
  RoundAccount account_;
  std::vector<LaneSpan> lanes_;
  uint64_t kv_positions_ = 0, round_begin_ns_ = 0, visits_seen_ = 0;

  // Shared with the GPU.
  Buffer stamps_;   ///< device: [most_stamps] uint64
  Buffer ticket_;   ///< device: uint32
  Buffer mailbox_;  ///< host: the flag, then the stamps read back
  uint32_t tickets_ = 0;
  uint64_t tick_ns_ = 0;
  ClockTie clock_;
  std::vector<DeviceSpan> spans_;

  bool capturing_ = false, capture_spins_ = false;
  FullKey capture_key_;
  uint64_t capture_launches_ = 0, replayed_launches_ = 0, uses_ = 0;
  size_t last_nodes_ = 0;
  std::map<FullKey, Recording> recordings_;
};

}  // namespace weir::cuda
