// The account of the GPU's rounds: which role each stamp opens, what a round moved, and how the stamps that
// came back become spans of the host's time.
#include <algorithm>

#include "base/clock.h"
#include "device/cuda/cuda_device.h"

namespace weir::cuda {

void RoundAccount::add_window(Role role, int window, uint64_t position_bytes) {
  for (Window& w : windows)
    if (w.role == role && w.window == window) {
      w.bytes_per_position += position_bytes;
      return;
    }
  windows.push_back({role, window, position_bytes});
}

/// The first work since the host last waited: from here on the host's account stands at `gap` until it has
/// waited, and what the GPU did in between is charged from its stamps.
void CudaDevice::open_round() {
  settled_ = false;
  account_.clear();
  kv_positions_ = 0;
  if (!ledger_) return;
  if (!capturing_) ledger_->enter(Role::gap);
  round_begin_ns_ = now_ns();
}

void CudaDevice::begin_operation() {
  make_current();
  launch_waiting_rope();
  ready_ = {};
  if (!pending_) open_round();
  pending_ = true;
  finished_ = false;
}

void CudaDevice::end_operation() {
  if (due_delay_ns_ == 0 || stream_.stamp != nullptr) return;
  spin(stream_, due_delay_ns_);
  due_delay_ns_ = 0;
}

void CudaDevice::begin_role(Role role) {
  launch_waiting_rope();  // it belongs to the role before
  if (!ledger_) return;
  if (!pending_) open_round();
  pending_ = true, finished_ = false;
  role_ = role;
  const size_t slot = first_stamp + account_.roles.size();
  if (stream_.stamp != nullptr) {  // nothing ran in the role before
    account_.roles.back() = role;
  } else if (slot + 1 < most_stamps) {  // the last slot is the end's
    account_.roles.push_back(role);
    stream_.stamp = stamps_.as<uint64_t>() + slot;
  }
  if (const uint64_t ns = ledger_->take_device_delay(role); ns > 0) due_delay_ns_ = ns, capture_spins_ = true;
}

/// After the wait: stamps to spans, bytes to roles.
void CudaDevice::charge_round() {
  if (!ledger_ || account_.roles.empty()) return;
  const uint64_t now = now_ns();
  const auto* stamps = reinterpret_cast<const uint64_t*>(mailbox_.as<uint8_t>() + mailbox_flag_bytes);
  const uint64_t* first = stamps + first_stamp;
  const size_t n = account_.roles.size();
  clock_.add(round_begin_ns_, now, first[0], first[n]);
  ledger_->set_device_clock({tick_ns_, clock_.bound_ns()});
  spans_.clear();
  for (size_t i = 0; i < n; ++i)
    spans_.push_back({account_.roles[i], clock_.to_host(first[i]), clock_.to_host(first[i + 1])});
  ledger_->charge_device(spans_);
  const uint64_t visits = stamps[0] - visits_seen_;
  visits_seen_ = stamps[0];
  for (int r = 0; r < role_count; ++r) {
    const auto i = static_cast<size_t>(r);
    const uint64_t bytes =
        account_.bytes[i] + account_.bytes_per_position[i] * kv_positions_ +
        account_.bytes_per_visit[i] * visits / std::max<uint64_t>(account_.visit_layers[i], 1);
    if (bytes > 0) ledger_->bytes_for(static_cast<Role>(r), bytes);
  }
  for (const auto& w : account_.windows)
    ledger_->bytes_for(w.role, w.bytes_per_position * positions_seen(lanes_, w.window));
  ExpertCounters traffic;
  traffic.hits = visits;
  ledger_->expert_traffic(traffic);
}

}  // namespace weir::cuda
