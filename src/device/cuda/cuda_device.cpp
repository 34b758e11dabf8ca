// Opening the GPU, its memory and scratch, and the one place where the host waits for it.
#include "device/cuda/cuda_device.h"

#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <atomic>

#include "base/args.h"
#include "base/clock.h"

namespace weir::cuda {
namespace {

/// Copies up to this size between device memory and host memory of ours go by a kernel: no copy engine, and
/// so no full dependency, between the kernels of a round.
constexpr size_t kernel_copy_bytes = 64 << 10;
/// Uploads of a round's batch, however wide: the role `upload` begins with a kernel.
constexpr size_t kernel_upload_bytes = 2 << 20;
/// Graphs, their nodes' parameters and the driver's own workspace: measured as the memory that 48 recordings
/// of a 48-layer model take.
constexpr uint64_t recordings_bytes = uint64_t{96} << 20;

bool in_words(const void* a, const void* b, size_t bytes) {
  return (reinterpret_cast<uintptr_t>(a) | reinterpret_cast<uintptr_t>(b) | bytes) % sizeof(uint32_t) == 0;
}

size_t round_up(size_t n, size_t unit) { return (n + unit - 1) / unit * unit; }

int open_index(int index) {
  int count = 0;
  const cudaError_t result = cudaGetDeviceCount(&count);
  if (result != cudaSuccess || count == 0)
    throw input_error("--device cuda:{}: no GPU: {}", index,
                      result != cudaSuccess ? cudaGetErrorString(result) : "the driver offers none");
  if (index < 0 || index >= count)
    throw input_error("--device cuda:{}: there is no such GPU: expected 0 to {}", index, count - 1);
  return index;
}

}  // namespace

ScratchLayout plan_scratch(const ScratchNeeds& needs) {
  ScratchLayout l;
  l.needs = needs;
  const auto rows = static_cast<size_t>(needs.rows);
  const size_t in = round_up(static_cast<size_t>(std::max(needs.max_in, needs.hidden)), 256);
  l.pairs = int64_t{needs.rows} * needs.top_k;
  const auto pairs = static_cast<size_t>(l.pairs), experts = static_cast<size_t>(needs.experts);
  const size_t ff = round_up(static_cast<size_t>(needs.expert_ff), 256);
  size_t at = 0;
  const auto take = [&at](size_t bytes) {
    const size_t begin = at;
    at += round_up(bytes, 256);
    return begin;
  };
  l.q = take(rows * in);
  l.scale = take(rows * in / 32 * sizeof(float));
  l.sums = take(rows * in / 32 * sizeof(int16_t));
  l.pair_q = take(pairs * ff);
  l.pair_scale = take(pairs * ff / 32 * sizeof(float));
  l.pair_sums = take(pairs * ff / 32 * sizeof(int16_t));
  l.normed = take(rows * in * sizeof(float));
  l.act = take(pairs * ff * sizeof(float));
  l.parts = take(pairs * static_cast<size_t>(needs.hidden) * sizeof(float));
  l.logits = take(rows * experts * sizeof(float));
  l.active = take(sizeof(int32_t));
  l.expert = take(experts * sizeof(int32_t));
  l.begin = take((experts + 1) * sizeof(int32_t));
  l.pair_list = take(pairs * sizeof(int32_t));
  l.ticket = take(small_rows * route_ticket_words * sizeof(uint32_t));
  l.partial_bytes =
      needs.heads > 0 ? attend_partial_bytes(needs.rows, needs.heads, needs.head_dim, needs.longest) : 0;
  l.partials = take(l.partial_bytes);
  l.choose = take(choose_partial_bytes(std::max(needs.rows, small_rows)));
  l.bytes = at;
  return l;
}

CudaDevice::CudaDevice(const CudaOptions& options) : options_(options) {
  // Every kernel is loaded when the device opens: none may have to be while a graph is recorded.
  set_environment_default("CUDA_MODULE_LOADING", "EAGER");
  index_ = open_index(options.index);
  name_ = fmt::format("cuda:{}", index_);
  cudaDeviceProp properties;
  check(cudaGetDeviceProperties(&properties, index_), "cudaGetDeviceProperties", "opening the device");
  major_ = properties.major, minor_ = properties.minor;
  model_ = properties.name;
  if (major_ != 9 || minor_ != 0)
    throw input_error(
        "--device {}: {} has compute capability {}.{}: this build holds code for 9.0 (H100, H200) alone",
        name_, model_, major_, minor_);
  make_current();
  check(cudaStreamCreateWithFlags(&stream_.handle, cudaStreamNonBlocking), "cudaStreamCreateWithFlags",
        "opening the device");
  stream_.multiprocessors = properties.multiProcessorCount;
  stream_.shared_bytes = properties.sharedMemPerMultiprocessor;
  stream_.failing_launch = options.fail_launch;
  try {
    open_memory();
  } catch (...) {
    cudaStreamDestroy(stream_.handle);
    throw;
  }
}

void CudaDevice::open_memory() {
  size_t free = 0, total = 0;
  check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo", "opening the device");
  context_bytes_ = total - free;
  stamps_ = allocate(most_stamps * sizeof(uint64_t), "stamps");
  ticket_ = allocate(sizeof(uint32_t), "the round counter");
  mailbox_ = allocate_host(mailbox_flag_bytes + most_stamps * sizeof(uint64_t), "the mailbox");
  measure_tick(stream_, stamps_.as<uint64_t>());
  download(&tick_ns_, stamps_.data(), sizeof tick_ns_);
  check(cudaMemsetAsync(stamps_.data(), 0, stamps_.bytes(), stream_.handle), "cudaMemsetAsync", "stamps");
  check(cudaStreamSynchronize(stream_.handle), "cudaStreamSynchronize", "opening the device");
  pending_ = false;
}

CudaDevice::~CudaDevice() {
  abandon_capture();
  cudaStreamSynchronize(stream_.handle);  // a lost device: nothing more to say here
  for (auto& [key, recording] : recordings_) cudaGraphExecDestroy(recording.graph);
  scratch_ = {}, stamps_ = {}, ticket_ = {}, mailbox_ = {};
  cudaStreamDestroy(stream_.handle);
}

void CudaDevice::make_current() const {
  thread_local int current = -1;
  if (current == index_) return;
  check(cudaSetDevice(index_), "cudaSetDevice", name_.c_str());
  current = index_;
}

std::string CudaDevice::description() const {
  return fmt::format("{}: {}, {} multiprocessors, {} arithmetic", name_, model_, stream_.multiprocessors,
                     options_.arithmetic == Arithmetic::fast ? "fast" : "portable");
}

std::optional<DeviceMemory> CudaDevice::memory() const {
  make_current();
  size_t free = 0, total = 0;
  check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo", "the plan");
  return DeviceMemory{total, free, context_bytes_};
}

uint64_t CudaDevice::overhead_bytes() const {
  return options_.graphs ? recordings_bytes : recordings_bytes / 4;
}

Buffer CudaDevice::allocate(size_t bytes, const char* what) {
  if (bytes == 0) return {};
  make_current();
  void* data = nullptr;
  const bool fails = ++allocations_ == options_.fail_allocation;
  const cudaError_t result = fails ? cudaErrorMemoryAllocation : cudaMalloc(&data, bytes);
  if (result != cudaSuccess) {
    cudaGetLastError();  // the error is reported here: it must not be found again by a later call
    size_t free = 0, total = 0;
    cudaMemGetInfo(&free, &total);
    throw failure("{}: cannot allocate {} bytes for {}: {} of {} bytes are free: {}", name_, bytes, what,
                  free, total, cudaGetErrorString(result));
  }
  Buffer buffer(this, data, bytes);
  ready_ = {};  // this may be a row's old place
  check(cudaMemsetAsync(data, 0, bytes, stream_.handle), "cudaMemsetAsync", what);
  pending_ = true, finished_ = false;
  return buffer;
}

Buffer CudaDevice::allocate_host(size_t bytes, const char* what) {
  if (bytes == 0) return {};
  make_current();
  void* data = nullptr;
  const bool fails = ++allocations_ == options_.fail_allocation;
  const cudaError_t result =
      fails ? cudaErrorMemoryAllocation : cudaHostAlloc(&data, bytes, cudaHostAllocMapped);
  if (result != cudaSuccess) {
    cudaGetLastError();
    throw failure("{}: cannot allocate {} bytes of host memory for {}: {}", name_, bytes, what,
                  cudaGetErrorString(result));
  }
  memset(data, 0, bytes);
  host_ranges_[static_cast<const uint8_t*>(data)] = bytes;
  return Buffer(this, data, bytes);
}

void CudaDevice::free(void* data, size_t) noexcept {
  const auto found = host_ranges_.find(static_cast<const uint8_t*>(data));
  if (found == host_ranges_.end()) {
    cudaFree(data);
  } else {
    host_ranges_.erase(found);
    cudaFreeHost(data);
  }
}

bool CudaDevice::is_ours(const void* host) const {
  const auto* at = static_cast<const uint8_t*>(host);
  auto found = host_ranges_.upper_bound(at);
  if (found == host_ranges_.begin()) return false;
  --found;
  return at < found->first + found->second;
}

void CudaDevice::upload(void* device_destination, const void* host_source, size_t bytes) {
  if (bytes == 0) return;
  begin_operation();
  settled_ = false;
  const bool ours = is_ours(host_source);
  WEIR_CHECK(ours || !capturing_, "an upload of memory that a replay would not find");
  if (ours && bytes <= kernel_upload_bytes && in_words(device_destination, host_source, bytes))
    copy_mapped(stream_, device_destination, host_source, bytes);
  else
    check(cudaMemcpyAsync(device_destination, host_source, bytes, cudaMemcpyHostToDevice, stream_.handle),
          "cudaMemcpyAsync", "an upload");
  end_operation();
}

void CudaDevice::download(void* host_destination, const void* device_source, size_t bytes) {
  if (bytes == 0) return;
  begin_operation();
  const bool ours = is_ours(host_destination);
  WEIR_CHECK(ours || !capturing_, "a download to memory that a replay would not find");
  if (ours && bytes <= kernel_copy_bytes && in_words(host_destination, device_source, bytes)) {
    copy_mapped(stream_, host_destination, device_source, bytes);
  } else {
    check(cudaMemcpyAsync(host_destination, device_source, bytes, cudaMemcpyDeviceToHost, stream_.handle),
          "cudaMemcpyAsync", "a download");
    if (!ours) check(cudaStreamSynchronize(stream_.handle), "cudaStreamSynchronize", "a download");
  }
  end_operation();
}

void CudaDevice::reserve(const ScratchNeeds& needs) {
  const ScratchNeeds all = layout_.needs.covering(needs);
  forget_recordings();  // they hold the old scratch
  grouped_ids_ = nullptr;
  ready_ = {};
  layout_ = plan_scratch(all);
  scratch_ = {};
  scratch_ = allocate(layout_.bytes, "scratch");
}

void CudaDevice::synchronize() {
  if (capturing_) return;  // end_record() enqueues the end of the round; the wait comes after it
  if (!pending_) return;
  make_current();
  if (!finished_) enqueue_finish();
  wait_for_flag();
  pending_ = false;
  charge_round();
}

void CudaDevice::abandon() noexcept {
  abandon_capture();
  cudaStreamSynchronize(stream_.handle);  // its error is of the round that was given up, and told already
  cudaGetLastError();
  pending_ = false, finished_ = true;
  account_.clear();
  stream_.stamp = nullptr;
  due_delay_ns_ = 0;
  waiting_rope_.reset();
  ready_ = {};
  grouped_ids_ = nullptr;
}

/// Visits are counted whether the ledger is on or off: those of the time without it are not its.
void CudaDevice::ledger_changed() {
  if (ledger_) visits_seen_ = expert_visits();
}

/// The kernels that group rows by expert count as they go, in the first of the stamps.
uint64_t CudaDevice::expert_visits() {
  make_current();
  uint64_t visits = 0;
  check(cudaMemcpyAsync(&visits, stamps_.data(), sizeof visits, cudaMemcpyDeviceToHost, stream_.handle),
        "cudaMemcpyAsync", "the count of visits");
  check(cudaStreamSynchronize(stream_.handle), "cudaStreamSynchronize", "the count of visits");
  return visits;
}

void CudaDevice::enqueue_finish() {
  launch_waiting_rope();
  ready_ = {};  // a recording may begin: what is ready now would not be when it is replayed
  auto* stamps = stamps_.as<uint64_t>();
  Finish args;
  args.ticket = ticket_.as<uint32_t>();
  args.flag = mailbox_.as<volatile uint32_t>();
  const size_t taken = account_.roles.size();
  stream_.stamp = nullptr;
  if (ledger_ && taken > 0) {
    args.stamps = stamps;
    args.stamps_out = reinterpret_cast<uint64_t*>(mailbox_.as<uint8_t>() + mailbox_flag_bytes);
    args.stamp_count = static_cast<int>(first_stamp + taken + 1);
  }
  finish(stream_, args);
  finished_ = true;
  if (!capturing_) ++tickets_;
}

/// The flag comes over the bus some microseconds before the driver would wake this thread. A fault never sets
/// it: the driver is asked now and then.
void CudaDevice::wait_for_flag() {
  const auto* flag = mailbox_.as<volatile uint32_t>();
  constexpr int looks = 1 << 15;
  for (bool complete = false;;) {
    for (int i = 0; i < looks; ++i) {
      if (*flag == tickets_) {
        std::atomic_thread_fence(std::memory_order_acquire);
        return;
      }
      __builtin_ia32_pause();
    }
    const cudaError_t state = cudaStreamQuery(stream_.handle);
    if (state == cudaErrorNotReady) continue;
    check(state, "cudaStreamQuery", "a round: the device is lost or a kernel faulted");
    WEIR_CHECK(!complete, "{}: the stream is empty and the round's flag is {} of {}", name_, *flag, tickets_);
    complete = true;  // it may have been set since the last look
  }
}

}  // namespace weir::cuda

namespace weir {

std::unique_ptr<Device> make_cuda_device(const CudaOptions& options) {
  return std::make_unique<cuda::CudaDevice>(options);
}

bool built_with_cuda() { return true; }

int cuda_device_count() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
}

}  // namespace weir
