#include "support/deferred_device.h"

#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include <algorithm>
#include <set>

#include "base/clock.h"

namespace weir::test {
namespace {

constexpr size_t page = 4096;
size_t pages(size_t bytes) { return (bytes + page - 1) / page * page; }

uint64_t thread_cpu_ns() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

}  // namespace

DeferredDevice::DeferredDevice(const Options& options, std::shared_ptr<Counters> counters)
    : options_(options), counters_(std::move(counters)), cpu_(make_cpu_device(options.threads)) {}

DeferredDevice::~DeferredDevice() { parts_ = {}; }

Buffer DeferredDevice::allocate(size_t bytes, const char* what) {
  if (bytes == 0) return {};
  WEIR_CHECK(!recording_, "an allocation of {} while a round is recorded", what);
  void* data = mmap(nullptr, pages(bytes), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data == MAP_FAILED) throw failure("deferred: cannot allocate {} bytes for {}", bytes, what);
  device_ranges_[static_cast<const uint8_t*>(data)] = bytes;
  counters_->device_bytes += bytes;
  counters_->peak_device_bytes = std::max(counters_->peak_device_bytes, counters_->device_bytes);
  return Buffer(this, data, bytes);
}

Buffer DeferredDevice::allocate_host(size_t bytes, const char* what) {
  if (bytes == 0) return {};
  void* data = mmap(nullptr, pages(bytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED)
    throw failure("deferred: cannot allocate {} bytes of host memory for {}", bytes, what);
  host_ranges_[static_cast<const uint8_t*>(data)] = bytes;
  return Buffer(this, data, bytes);
}

void DeferredDevice::free(void* data, size_t bytes) noexcept {
  const auto* at = static_cast<const uint8_t*>(data);
  if (device_ranges_.erase(at) > 0) counters_->device_bytes -= bytes;
  host_ranges_.erase(at);
  munmap(data, pages(bytes));
}

bool DeferredDevice::is_ours(const void* host) const {
  const auto* at = static_cast<const uint8_t*>(host);
  auto found = host_ranges_.upper_bound(at);
  if (found == host_ranges_.begin()) return false;
  --found;
  return at < found->first + found->second;
}

void DeferredDevice::protect(int protection) const {
  for (const auto& [data, bytes] : device_ranges_)
    mprotect(const_cast<uint8_t*>(data), pages(bytes), protection);
}

void DeferredDevice::enqueue(std::function<void()> run) {
  if (++counters_->operations == options_.fail_operation) throw failure("deferred: an operation failed");
  queue_.push_back({role_, std::move(run), 0});
}

void DeferredDevice::upload(void* to, const void* from, size_t bytes) {
  if (bytes == 0) return;
  ++counters_->uploads;
  if (is_ours(from)) return enqueue([=] { memcpy(to, from, bytes); });
  WEIR_CHECK(!recording_, "an upload of memory that a replay would not find");
  const auto* data = static_cast<const uint8_t*>(from);
  enqueue([to, copy = std::vector<uint8_t>(data, data + bytes)] { memcpy(to, copy.data(), copy.size()); });
}

void DeferredDevice::download(void* to, const void* from, size_t bytes) {
  if (bytes == 0) return;
  ++counters_->downloads;
  counters_->downloaded_bytes += bytes;
  enqueue([=] { memcpy(to, from, bytes); });
  if (is_ours(to)) return;
  WEIR_CHECK(!recording_, "a download to memory that a replay would not find");
  run_queue();
}

uint64_t DeferredDevice::scratch_bytes(const ScratchNeeds& needs) const {
  return cpu_->scratch_bytes(needs) + static_cast<uint64_t>(needs.rows) * static_cast<uint64_t>(needs.top_k) *
                                          static_cast<uint64_t>(needs.hidden) * sizeof(float);
}

void DeferredDevice::reserve(const ScratchNeeds& needs) {
  cpu_->reserve(needs);
  counters_->scratch_bytes = scratch_bytes(needs);
  parts_ = cpu_->allocate(scratch_bytes(needs) - cpu_->scratch_bytes(needs), "expert outputs");
}

/// Of its own time: a GPU is not preempted while it spins, however busy the host is.
void DeferredDevice::spin(uint64_t delay_ns) {
  for (const uint64_t begin = thread_cpu_ns(); thread_cpu_ns() - begin < delay_ns;) {
  }
}

/// As a GPU does it: the host's account stands at `gap` from the first work on, and the roles are told after.
void DeferredDevice::run_queue() {
  if (queue_.empty()) return;
  protect(PROT_READ | PROT_WRITE);
  for (const Work& work : queue_) {
    const uint64_t begin = now_ns();
    if (work.delay_ns > 0)
      spin(work.delay_ns);
    else
      work.run();
    const uint64_t end = now_ns();
    if (ledger_)
      spans_.push_back({work.role, begin, work.delay_ns > 0 ? std::min(begin + work.delay_ns, end) : end});
  }
  protect(PROT_NONE);
  queue_.clear();
}

void DeferredDevice::synchronize() {
  WEIR_CHECK(!recording_, "a wait while a round is recorded");
  if (++counters_->waits == options_.fail_wait) throw failure("deferred: the device is lost");
  ++counters_->synchronisations;
  if (ledger_ && !queue_.empty() && spans_.empty()) ledger_->enter(Role::gap);
  run_queue();
  if (ledger_ && !spans_.empty()) ledger_->charge_device(spans_);
  ExpertCounters traffic;
  traffic.hits = visits_ - std::exchange(visits_filed_, visits_);
  if (ledger_ && traffic.hits > 0) ledger_->expert_traffic(traffic);
  spans_.clear();
}

void DeferredDevice::abandon() noexcept {
  queue_.clear(), spans_.clear();
  recording_.reset();
}

DeferredDevice::FullKey DeferredDevice::full_key(const RecordKey& key) const {
  FullKey full{key};
  if (ledger_) full.delay_ns = ledger_->device_delay_pending(&full.delay_role);
  return full;
}

bool DeferredDevice::replay(const RecordKey& key, uint64_t) {
  WEIR_CHECK(queue_.empty(), "a replay while a round is under way");
  const FullKey full = full_key(key);
  const auto found = std::find_if(recordings_.begin(), recordings_.end(),
                                  [&](const Recording& recording) { return recording.key == full; });
  if (found == recordings_.end()) return false;
  if (full.delay_ns > 0) ledger_->take_device_delay(full.delay_role);
  ++counters_->replays;
  queue_ = found->work;
  return true;
}

void DeferredDevice::begin_record(const RecordKey& key) {
  WEIR_CHECK(queue_.empty() && !recording_, "a recording begins while a round is under way");
  if (options_.recordings) recording_ = full_key(key);
}

void DeferredDevice::end_record() {
  if (!recording_) return;
  ++counters_->records;
  counters_->keys.push_back(recording_->key);
  recordings_.push_back({*recording_, queue_});
  recording_.reset();
}

void DeferredDevice::begin_role(Role role) {
  role_ = role;
  const uint64_t delay_ns = ledger_ ? ledger_->take_device_delay(role) : 0;
  if (delay_ns > 0) queue_.push_back({role, {}, delay_ns});
}

void DeferredDevice::embed(const EmbedArgs& a) {
  enqueue([=, this] { cpu_->embed(a); });
}
void DeferredDevice::rms_norm(const NormArgs& a) {
  enqueue([=, this] { cpu_->rms_norm(a); });
}
void DeferredDevice::matmul(const MatmulArgs& a) {
  enqueue([this, a, targets = std::vector<MatmulTarget>(a.targets.begin(), a.targets.end())] {
    MatmulArgs args = a;
    args.targets = targets;
    cpu_->matmul(args);
  });
}
void DeferredDevice::rope_and_store(const RopeStoreArgs& a) {
  enqueue([=, this] { cpu_->rope_and_store(a); });
}
void DeferredDevice::attend(const AttendArgs& a) {
  enqueue([=, this] {
    for (int r = 0; r < a.rows.count; ++r)
      WEIR_CHECK(a.rows.position[r] < a.rows.longest, "position {} of {}", a.rows.position[r],
                 a.rows.longest);
    const std::set<int32_t> lanes(a.rows.lane, a.rows.lane + a.rows.count);
    WEIR_CHECK(a.rows.lone == (std::ssize(lanes) == a.rows.count), "{} rows of {} lanes", a.rows.count,
               lanes.size());
    cpu_->attend(a);
  });
}
void DeferredDevice::route(const RouteArgs& a) {
  enqueue([=, this] { cpu_->route(a); });
}
void DeferredDevice::experts(const ExpertsArgs&) { WEIR_CHECK(false, "a device that routes itself"); }
void DeferredDevice::combine(const CombineArgs&) { WEIR_CHECK(false, "a device that routes itself"); }
void DeferredDevice::routed_experts(const RoutedArgs& a) {
  enqueue([=, this] { run_routed(a); });
}
void DeferredDevice::choose(const ChooseArgs& a) {
  enqueue([=, this] {
    cpu_->choose(a);
    if (!options_.wrong_choice) return;
    for (int r = 0; r < a.rows; ++r) a.choice[r].token ^= 1;
  });
}
void DeferredDevice::gated(const GatedArgs& a) {
  enqueue([=, this] { cpu_->gated(a); });
}
void DeferredDevice::add(float* h, const float* y, int64_t n) {
  enqueue([=, this] { cpu_->add(h, y, n); });
}
void DeferredDevice::gather_rows(const float* x, const int32_t* index, int count, int64_t n, float* out) {
  enqueue([=, this] { cpu_->gather_rows(x, index, count, n, out); });
}

void DeferredDevice::run_routed(const RoutedArgs& a) {
  const ExpertBank& bank = a.bank;
  std::vector<std::vector<int32_t>> pairs(static_cast<size_t>(bank.experts));
  for (int32_t p = 0; p < a.rows * a.top_k; ++p) pairs[static_cast<size_t>(a.ids[p])].push_back(p);
  const auto moved = [](Matrix matrix, uint64_t bytes) {
    matrix.data = static_cast<const uint8_t*>(matrix.data) + bytes;
    return matrix;
  };
  std::vector<ExpertWork> work;
  for (size_t e = 0; e < pairs.size(); ++e) {
    if (pairs[e].empty()) continue;
    ++visits_;
    const auto slot = static_cast<uint64_t>(bank.slot_of ? bank.slot_of[e] : static_cast<int32_t>(e));
    work.push_back({moved(bank.gate, slot * bank.gate_stride), moved(bank.up, slot * bank.up_stride),
                    moved(bank.down, slot * bank.down_stride), pairs[e]});
  }
  cpu_->experts({work, a.x, a.top_k, a.activation, parts_.as<float>()});
  cpu_->combine({parts_.as<float>(), a.weights, a.h, a.rows, a.top_k, bank.down.out});
}

}  // namespace weir::test
