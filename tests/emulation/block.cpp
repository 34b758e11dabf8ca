// The scheduler. A thread runs until it waits or ends; then the next ready thread of its warp, or of another
// warp, is resumed directly. When none is ready control returns to run_block(), which releases threads that
// wait for earlier kernels, asks wait_until()'s conditions, and otherwise reports a deadlock.
#include "emulation/block.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <vector>

#include "base/error.h"
#include "base/random.h"
#include "emulation/copies.h"
#include "emulation/memory.h"
#include "emulation/symbols.h"

namespace weir::emulation {
namespace {

constexpr int max_threads = 1024, max_warps = 32;
constexpr size_t max_shared = 232448;  // of an H100 or H200: 227 KiB

enum class Wait : uint8_t { none, warp, barrier, condition, earlier, ended };

struct Thread {
  Context context;
  uint3 index;
  Wait wait = Wait::none;
  const char* what = "";
  const std::function<bool()>* ready = nullptr;
};

/// A warp-wide operation that some lanes have not reached yet.
struct Rendezvous {
  uint32_t mask = 0, arrived = 0;
  bool whole = false;  ///< no lane may have ended
  const char* name = "";
  WarpOperation operation = nullptr;
  LaneArguments arguments{};
};

struct Warp {
  uint32_t ready = 0, exists = 0, ended = 0;
  std::vector<Rendezvous> open;
};

struct Scheduler {
  Stacks stacks{max_threads};
  Context main;
  Thread threads[max_threads];
  Warp warps[max_warps];
  uint32_t ready_warps = 0;
  int count = 0, current = 0, ended = 0, at_barrier = 0, barrier_votes = 0, barrier_result = 0;
  bool running = false, guarded = false, waits_for_earlier = false, waited = false;
  bool allowed = false, allowed_early = false;  ///< allow_next() was called; before the wait
  NextStarts next_starts = NextStarts::early;
  uint64_t turn = 0;
  std::string kernel, failure;
  const std::function<void()>* body = nullptr;
  uint8_t* shared_end = nullptr;
  size_t shared_bytes = 0;
};
Scheduler scheduler;
inline Scheduler& s() { return scheduler; }

/// A set bit of `mask` (not 0), by the order that is set.
int pick(uint32_t mask) {
  switch (options().order) {
    case Order::forward:
      return std::countr_zero(mask);
    case Order::backward:
      return 31 - std::countl_zero(mask);
    case Order::shuffled: {
      const int by = static_cast<int>(random_u64(options().seed, s().turn++) & 31);
      return (std::countr_zero(std::rotr(mask, by)) + by) & 31;
    }
  }
  return 0;
}

void make_ready(int thread) {
  const int w = thread / 32;
  s().threads[thread].wait = Wait::none;
  s().warps[w].ready |= 1u << (thread % 32);
  s().ready_warps |= 1u << w;
}

void become(int thread) {
  s().current = thread;
  threadIdx = s().threads[thread].index;
}

/// Leaves the current thread, whose wait is set, for the next ready one or for run_block().
void yield_to_next() {
  Scheduler& k = s();
  Thread& self = k.threads[k.current];
  if (k.ready_warps == 0) {
    switch_context(self.context, k.main);
    return;
  }
  const int own = k.current / 32;
  const int w = (k.ready_warps >> own) & 1 ? own : pick(k.ready_warps);
  Warp& warp = k.warps[w];
  const int bit = pick(warp.ready);
  warp.ready &= ~(1u << bit);
  if (warp.ready == 0) k.ready_warps &= ~(1u << w);
  become(w * 32 + bit);
  switch_context(self.context, k.threads[k.current].context);
}

void block_on(Wait wait, const char* what) {
  Thread& self = s().threads[s().current];
  self.wait = wait, self.what = what;
  // yield_to_next changes `current`; whoever resumes this thread sets it back.
  yield_to_next();
}

/// Completes the operation if all are there who must be. `self` is not made ready: it runs.
bool complete_if_full(Warp& warp, size_t at, int self) {
  Rendezvous& r = warp.open[at];
  if ((r.whole ? r.mask : r.mask & warp.exists & ~warp.ended) & ~r.arrived) return false;
  const Rendezvous done = r;
  warp.open.erase(warp.open.begin() + static_cast<long>(at));
  done.operation(done.arguments);
  const int base = static_cast<int>(&warp - s().warps) * 32;
  for (uint32_t rest = done.arrived; rest; rest &= rest - 1) {
    const int thread = base + std::countr_zero(rest);
    if (thread != self) make_ready(thread);
  }
  return true;
}

bool release_barrier_if_full(int self) {
  Scheduler& k = s();
  if (k.at_barrier == 0 || k.at_barrier + k.ended < k.count) return false;
  k.barrier_result = k.barrier_votes, k.barrier_votes = 0, k.at_barrier = 0;
  for (int t = 0; t < k.count; ++t)
    if (t != self && k.threads[t].wait == Wait::barrier) make_ready(t);
  return true;
}

void arrive(uint32_t mask, const char* name, WarpOperation operation, void* arguments, bool whole) {
  Scheduler& k = s();
  const int own = k.current % 32;
  Warp& warp = k.warps[k.current / 32];
  if (!((mask >> own) & 1)) fail(fmt::format("{} with a mask {:#x} that leaves out the caller", name, mask));
  size_t at = 0;
  while (at < warp.open.size() && warp.open[at].mask != mask) ++at;
  if (at == warp.open.size()) warp.open.push_back({mask, 0, whole, name, operation, {}});
  Rendezvous& r = warp.open[at];
  if (r.operation != operation) fail(fmt::format("{} while other lanes of the warp are at {}", name, r.name));
  r.arrived |= 1u << own;
  r.arguments[static_cast<size_t>(own)] = arguments;
  if (!complete_if_full(warp, at, k.current)) block_on(Wait::warp, name);
}

void end_thread() {
  Scheduler& k = s();
  Warp& warp = k.warps[k.current / 32];
  warp.ended |= 1u << (k.current % 32);
  ++k.ended;
  for (size_t i = 0; i < warp.open.size();)
    if (!complete_if_full(warp, i, -1)) ++i;
  release_barrier_if_full(-1);
  block_on(Wait::ended, "its end");
}

void thread_main() {
  (*s().body)();
  end_thread();
  __builtin_unreachable();
}

std::string deadlock() {
  Scheduler& k = s();
  std::vector<std::pair<std::string, int>> waits;
  for (int t = 0; t < k.count; ++t) {
    const Thread& thread = k.threads[t];
    auto at = std::find_if(waits.begin(), waits.end(), [&](auto& w) { return w.first == thread.what; });
    if (at == waits.end()) at = waits.insert(waits.end(), {thread.what, 0});
    ++at->second;
  }
  std::string text =
      fmt::format("{}: deadlock in block ({}, {}, {}):", k.kernel, blockIdx.x, blockIdx.y, blockIdx.z);
  for (const auto& [what, n] : waits) {
    const int first = static_cast<int>(
        std::find_if(k.threads, k.threads + k.count, [&](const Thread& t) { return what == t.what; }) -
        k.threads);
    text += fmt::format("{} {} at {} (first: {})", &what == &waits[0].first ? "" : ",", n, what, first);
  }
  return text;
}

/// Threads that can go on after all: false if there are none.
bool unblock() {
  Scheduler& k = s();
  bool any = false;
  for (int t = 0; t < k.count; ++t) {
    Thread& thread = k.threads[t];
    if (thread.wait == Wait::condition && (*thread.ready)()) make_ready(t), any = true;
  }
  if (any || !k.waits_for_earlier) return any;
  k.waits_for_earlier = false, k.waited = true;
  memory::unguard();
  for (int t = 0; t < k.count; ++t)
    if (k.threads[t].wait == Wait::earlier) make_ready(t), any = true;
  return any;
}

void start_block() {
  Scheduler& k = s();
  for (Warp& warp : k.warps) warp.ready = warp.exists = warp.ended = 0, warp.open.clear();
  k.ready_warps = 0, k.ended = 0, k.at_barrier = 0, k.barrier_votes = 0;
  k.waits_for_earlier = k.waited = k.allowed = k.allowed_early = false;
  int t = 0;
  for (unsigned z = 0; z < blockDim.z; ++z)
    for (unsigned y = 0; y < blockDim.y; ++y)
      for (unsigned x = 0; x < blockDim.x; ++x, ++t) {
        k.threads[t].index = {x, y, z};
        k.threads[t].context = make_context(k.stacks.top(t), Stacks::bytes - 20480, thread_main);
        k.warps[t / 32].exists |= 1u << (t % 32);
        make_ready(t);
      }
  if (options().poison_shared) {
    memset(k.shared_end - (k.shared_bytes + 127) / 128 * 128, 0xff, (k.shared_bytes + 127) / 128 * 128);
    poison_static_shared();
  }
  reset_copies();
}

void run_block() {
  Scheduler& k = s();
  start_block();
  do {
    const int w = pick(k.ready_warps), bit = pick(k.warps[w].ready);
    k.warps[w].ready &= ~(1u << bit);
    if (k.warps[w].ready == 0) k.ready_warps &= ~(1u << w);
    become(w * 32 + bit);
    switch_context(k.main, k.threads[k.current].context);
    if (!k.failure.empty()) return;
  } while (k.ended < k.count && unblock());
  if (k.ended < k.count)
    k.failure = deadlock();
  else if (const char* copies = unfinished_copies())
    k.failure = fmt::format("{}: block ({}, {}, {}) ends with {}", k.kernel, blockIdx.x, blockIdx.y,
                            blockIdx.z, copies);
}

void map_shared() {
  Scheduler& k = s();
  if (k.shared_end) return;
  const size_t bytes = (max_shared + 4095) / 4096 * 4096;
  void* p = mmap(nullptr, bytes + 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  WEIR_CHECK(p != MAP_FAILED, "no memory for shared memory");
  k.shared_end = static_cast<uint8_t*>(p) + bytes;
  mprotect(k.shared_end, 4096, PROT_NONE);
}

}  // namespace

void warp_operation(uint32_t mask, const char* name, WarpOperation operation, void* arguments) {
  arrive(mask, name, operation, arguments, false);
}

void whole_warp_operation(const char* name, WarpOperation operation, void* arguments) {
  if (live_lanes() != ~0u) fail(fmt::format("{} in a warp of which lanes have ended or never were", name));
  arrive(~0u, name, operation, arguments, true);
}

int block_barrier(bool predicate) {
  Scheduler& k = s();
  ++k.at_barrier;
  k.barrier_votes += predicate ? 1 : 0;
  if (!release_barrier_if_full(k.current)) block_on(Wait::barrier, "__syncthreads");
  return k.barrier_result;
}

void wait_until(const char* name, const std::function<bool()>& ready) {
  if (ready()) return;
  s().threads[s().current].ready = &ready;
  block_on(Wait::condition, name);
}

void wait_for_earlier_kernels() {
  Scheduler& k = s();
  if (k.waited) return;
  if (!k.guarded) {
    k.waited = true;
    return;
  }
  k.waits_for_earlier = true;
  block_on(Wait::earlier, "wait_for_previous");
}

void allow_later_kernels() {
  Scheduler& k = s();
  if (!k.allowed) k.allowed_early = !k.waited;
  k.allowed = true;
}

NextStarts next_starts() { return s().next_starts; }

void fail(const std::string& message) {
  Scheduler& k = s();
  k.failure = where() + ": " + message;
  Context abandoned;
  switch_context(abandoned, k.main);
  __builtin_unreachable();
}

int lane() { return s().current % 32; }
int thread_number() { return s().current; }
uint32_t live_lanes() {
  const Warp& warp = s().warps[s().current / 32];
  return warp.exists & ~warp.ended;
}
uint8_t* dynamic_shared() { return s().shared_end - (s().shared_bytes + 127) / 128 * 128; }
size_t dynamic_shared_bytes() { return s().shared_bytes; }
bool in_kernel() { return s().running; }
std::string where() {
  return fmt::format("{}: block ({}, {}, {}), thread ({}, {}, {})", s().kernel, blockIdx.x, blockIdx.y,
                     blockIdx.z, threadIdx.x, threadIdx.y, threadIdx.z);
}
bool is_stack_guard(const void* address) { return s().stacks.is_guard(address); }

std::string run_grid(const std::string& kernel, dim3 grid, dim3 block, size_t shared_bytes,
                     const std::function<void()>& body) {
  Scheduler& k = s();
  WEIR_CHECK(!k.running, "{} launched from inside {}", kernel, k.kernel);
  map_shared();
  gridDim = grid, blockDim = block;
  k.kernel = kernel, k.body = &body, k.shared_bytes = shared_bytes, k.failure.clear();
  k.count = static_cast<int>(block.x * block.y * block.z);
  const uint64_t blocks = uint64_t{grid.x} * grid.y * grid.z;
  std::vector<uint32_t> order(blocks);
  for (uint64_t i = 0; i < blocks; ++i) order[i] = static_cast<uint32_t>(i);
  if (options().order == Order::backward) std::reverse(order.begin(), order.end());
  if (options().order == Order::shuffled)
    for (uint64_t i = blocks; i > 1; --i)
      std::swap(order[i - 1], order[random_u64(options().seed, k.turn++) % i]);
  k.running = true;
  bool waited = false, late = false, allowed = false;
  for (uint64_t i = 0; i < blocks && k.failure.empty(); ++i) {
    blockIdx = {order[i] % grid.x, order[i] / grid.x % grid.y, order[i] / grid.x / grid.y};
    // Not in every launch: the guard makes wait_for_previous() a barrier, which can hide a missing one.
    k.guarded = i < static_cast<uint64_t>(options().guarded_blocks) &&
                random_u64(options().seed, counts().launches) % 2;
    if (k.guarded) memory::guard();
    run_block();
    if (k.guarded) memory::unguard();
    // The next launch starts when every block has allowed it or ended.
    waited = waited || k.waited, allowed = allowed || k.allowed;
    late = late || (k.waited && !k.allowed_early);
    note(&Counts::blocks);
  }
  k.running = false;
  k.next_starts = !late ? NextStarts::early : allowed ? NextStarts::after_wait : NextStarts::after_end;
  if (k.failure.empty() && !waited) k.failure = kernel + ": no thread calls wait_for_previous()";
  return k.failure;
}

}  // namespace weir::emulation
