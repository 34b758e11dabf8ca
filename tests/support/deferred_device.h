// A device that behaves like a GPU as far as the engine can tell, on the CPU device's kernels: its memory
// cannot be touched by the host (it is unmapped outside operations: a stray access faults), nothing runs
// before synchronize(), recordings replay what was enqueued with the contents that memory has then, and it
// routes by itself. For tests of everything above the device.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "device/device.h"

namespace weir::test {

class DeferredDevice final : public Device {
 public:
  struct Options {
    int threads = 2;
    bool recordings = true;
    bool wrong_choice = false;  ///< choose() takes the token beside the right one
    DeviceMemory memory{uint64_t{8} << 30, uint64_t{6} << 30, uint64_t{1} << 28};
    uint64_t overhead_bytes = 1 << 20;
    std::string refusal{};                  ///< of every model; empty: none
    int fail_operation = 0, fail_wait = 0;  ///< the n-th (from 1) throws; 0: none
  };
  /// What happened, for the tests; may outlive the device.
  struct Counters {
    int records = 0, replays = 0, uploads = 0, downloads = 0, synchronisations = 0;
    int operations = 0, waits = 0;  ///< as Options counts them
    uint64_t downloaded_bytes = 0, device_bytes = 0, peak_device_bytes = 0, scratch_bytes = 0;
    std::vector<RecordKey> keys;  ///< recorded, in order
  };
  DeferredDevice(const Options& options, std::shared_ptr<Counters> counters);
  ~DeferredDevice() override;

  const std::string& name() const override { return name_; }
  std::string description() const override { return "deferred: " + cpu_->description(); }
  Buffer allocate(size_t bytes, const char* what) override;
  Buffer allocate_host(size_t bytes, const char* what) override;
  void free(void* data, size_t bytes) noexcept override;
  void upload(void* device_destination, const void* host_source, size_t bytes) override;
  void download(void* host_destination, const void* device_source, size_t bytes) override;
  std::string refusal(const ModelShape&) const override { return options_.refusal; }
  uint64_t scratch_bytes(const ScratchNeeds& needs) const override;
  void reserve(const ScratchNeeds& needs) override;
  void synchronize() override;
  void abandon() noexcept override;
  bool host_visible() const override { return false; }
  bool routes_itself() const override { return true; }
  uint64_t expert_visits() override { return visits_; }
  std::optional<DeviceMemory> memory() const override { return options_.memory; }
  uint64_t overhead_bytes() const override { return options_.overhead_bytes; }

  bool replay(const RecordKey& key, uint64_t kv_positions) override;
  void begin_record(const RecordKey& key) override;
  void end_record() override;

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

 private:
  struct Work {
    Role role;
    std::function<void()> run;
    uint64_t delay_ns;  ///< over 0: spin this long instead
  };
  /// A delay that is injected is part of a recording, as on a GPU.
  struct FullKey {
    RecordKey key{};
    uint64_t delay_ns = 0;
    Role delay_role = Role::unattributed;
    bool operator==(const FullKey&) const = default;
  };
  struct Recording {
    FullKey key;
    std::vector<Work> work;
  };
  FullKey full_key(const RecordKey& key) const;
  void enqueue(std::function<void()> run);
  bool is_ours(const void* host) const;
  void protect(int protection) const;
  void run_routed(const RoutedArgs& args);
  void run_queue();
  static void spin(uint64_t delay_ns);

  Options options_;
  std::shared_ptr<Counters> counters_;
  std::string name_ = "deferred:0";
  std::unique_ptr<Device> cpu_;
  std::map<const uint8_t*, size_t> device_ranges_, host_ranges_;
  std::vector<Work> queue_;
  std::vector<Recording> recordings_;
  std::optional<FullKey> recording_;
  Role role_ = Role::unattributed;
  uint64_t visits_ = 0, visits_filed_ = 0;
  Buffer parts_;
  std::vector<DeviceSpan> spans_;
};

}  // namespace weir::test
