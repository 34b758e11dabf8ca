// Recordings: rounds captured once as CUDA graphs and launched again. A recording holds the same kernels that
// the operations enqueue by themselves; the stamped rounds of the ledger are recordings of their own, with as
// many nodes.
#include <algorithm>

#include "base/clock.h"
#include "device/cuda/cuda_device.h"

namespace weir::cuda {

CudaDevice::FullKey CudaDevice::full_key(const RecordKey& key) const {
  FullKey full;
  full.key = key;
  full.stamped = ledger_ != nullptr;
  if (!ledger_) return full;
  Role role = Role::unattributed;
  full.delay_ns = ledger_->device_delay_pending(&role);
  if (full.delay_ns > 0) full.delay_role = static_cast<int>(role);
  return full;
}

bool CudaDevice::replay(const RecordKey& key, uint64_t kv_positions) {
  if (!options_.graphs) return false;
  const auto found = recordings_.find(full_key(key));
  if (found == recordings_.end()) return false;
  WEIR_CHECK(!pending_, "a replay while a round is under way");
  make_current();
  if (ledger_) {
    ledger_->enter(Role::gap);
    if (found->second.spins) ledger_->take_device_delay(static_cast<Role>(found->first.delay_role));
  }
  round_begin_ns_ = ledger_ ? now_ns() : 0;
  launch_recording(found->second, kv_positions);
  return true;
}

void CudaDevice::launch_recording(Recording& recording, uint64_t kv_positions) {
  account_ = recording.account;
  kv_positions_ = kv_positions;
  recording.used = ++uses_;
  last_nodes_ = recording.nodes;
  grouped_ids_ = nullptr;
  ready_ = {};
  check(cudaGraphLaunch(recording.graph, stream_.handle), "cudaGraphLaunch", "a recorded round");
  replayed_launches_ += recording.launches;
  pending_ = finished_ = true;
  ++tickets_;
}

void CudaDevice::begin_record(const RecordKey& key) {
  if (!options_.graphs) return;
  abandon_capture();  // of a round that an error cut short
  WEIR_CHECK(!pending_, "a recording begins while a round is under way");
  if (recordings_.size() >= most_recordings) drop_oldest_recording();
  make_current();
  capture_key_ = full_key(key);
  capture_launches_ = stream_.launches;
  capture_spins_ = false;
  check(cudaStreamBeginCapture(stream_.handle, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture",
        "a recording");
  capturing_ = true;
}

void CudaDevice::end_record() {
  if (!capturing_) return;
  enqueue_finish();
  Recording recording;
  recording.launches = stream_.launches - capture_launches_;
  recording.spins = capture_spins_;
  stream_.launches = capture_launches_;  // they have not run yet
  cudaGraph_t graph = nullptr;
  capturing_ = false;
  check(cudaStreamEndCapture(stream_.handle, &graph), "cudaStreamEndCapture", "a recording");
  cudaError_t result = cudaGraphGetNodes(graph, nullptr, &recording.nodes);
  if (result == cudaSuccess) result = cudaGraphInstantiate(&recording.graph, graph, 0);
  cudaGraphDestroy(graph);
  check(result, "cudaGraphInstantiate", "a recording");
  result = cudaGraphUpload(recording.graph, stream_.handle);
  if (result != cudaSuccess) cudaGraphExecDestroy(recording.graph);
  check(result, "cudaGraphUpload", "a recording");
  recording.account = account_;
  const uint64_t positions = kv_positions_;
  Recording& kept = recordings_[capture_key_] = std::move(recording);
  if (ledger_) {
    ledger_->enter(Role::gap);  // until here the host formed the round
    round_begin_ns_ = now_ns();
  }
  launch_recording(kept, positions);
}

void CudaDevice::forget_recordings() {
  synchronize();
  for (auto& [key, recording] : recordings_) cudaGraphExecDestroy(recording.graph);
  recordings_.clear();
}

void CudaDevice::drop_oldest_recording() {
  const auto oldest =
      std::min_element(recordings_.begin(), recordings_.end(),
                       [](const auto& a, const auto& b) { return a.second.used < b.second.used; });
  cudaGraphExecDestroy(oldest->second.graph);
  recordings_.erase(oldest);
}

void CudaDevice::abandon_capture() noexcept {
  if (!capturing_) return;
  waiting_rope_.reset();
  cudaGraph_t graph = nullptr;
  cudaStreamEndCapture(stream_.handle, &graph);
  if (graph) cudaGraphDestroy(graph);
  stream_.launches = capture_launches_;  // they never ran
  capturing_ = false;
}

}  // namespace weir::cuda
