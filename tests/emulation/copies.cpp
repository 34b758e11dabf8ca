// See copies.h. A barrier's state is kept here by its address: its 8 bytes of shared memory hold a mark, so
// that one which is overwritten or of an earlier block is found.
#include "emulation/copies.h"

#include <fmt/format.h>

#include <chrono>
#include <cstring>
#include <map>
#include <vector>

#include "emulation/ptx.h"

namespace weir::emulation {
namespace {

struct Copy {
  void* to;
  const void* from;
  size_t bytes;
};

/// A thread's cp_async16 copies that it has not waited for, oldest first.
struct ThreadCopies {
  struct Entry {
    Copy copy;
    uint32_t group;
  };
  std::vector<Entry> entries;
  size_t first = 0;
  uint32_t group = 0;  ///< that the next copy joins
};

struct Barrier {
  uint32_t arrivals = 0;  ///< a phase
  uint32_t arrived = 0;
  int64_t bytes = 0;  ///< expected less copied, in this phase
  uint64_t phase = 0;
  std::vector<Copy> copies;
};

constexpr uint64_t barrier_mark = 0x7fff'ba99'1e9a'11ed;

struct State {
  std::map<uint64_t*, Barrier> barriers;
  ThreadCopies threads[1024];
};
State the_state;
inline State& state() { return the_state; }

/// What runs until it is waited for: its destination is nothing that may be read, its source must be there
/// from now on.
void begin(const Copy& copy) {
  const auto* from = static_cast<const volatile uint8_t*>(copy.from);
  static_cast<void>(from[0]), static_cast<void>(from[copy.bytes - 1]);
  memset(copy.to, 0xff, copy.bytes);
}
void finish(const Copy& copy) { memcpy(copy.to, copy.from, copy.bytes); }

void check_aligned(const void* p, size_t to, const char* what) {
  if (reinterpret_cast<uintptr_t>(p) % to) fail(fmt::format("{} is not {}-byte aligned", what, to));
}

Barrier& barrier_at(uint64_t* at, const char* what) {
  auto it = state().barriers.find(at);
  if (it == state().barriers.end()) fail(fmt::format("{} of a barrier that was not initialised", what));
  if (*at != barrier_mark) fail(fmt::format("{} of a barrier that was overwritten", what));
  return it->second;
}

void end_phase_if_complete(Barrier& b) {
  if (b.arrived < b.arrivals || b.bytes != 0) return;
  b.arrived = 0, ++b.phase;
}

}  // namespace

void reset_copies() {
  state().barriers.clear();
  for (ThreadCopies& t : state().threads) t.entries.clear(), t.first = 0, t.group = 0;
}

const char* unfinished_copies() {
  for (const auto& [at, b] : state().barriers)
    if (!b.copies.empty()) return "a bulk copy that no one waited for";
  return nullptr;
}

}  // namespace weir::emulation

namespace weir::cuda {

using namespace emulation;

uint64_t globaltimer() {
  note(&Counts::clock_reads);
  return static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch() /
                               std::chrono::nanoseconds(1));
}

void cp_async16(void* shared, const void* global) {
  check_aligned(shared, 16, "cp_async16's destination"), check_aligned(global, 16, "cp_async16's source");
  ThreadCopies& own = state().threads[thread_number()];
  own.entries.push_back({{shared, global, 16}, own.group});
  begin(own.entries.back().copy);
}

void cp_commit() { ++state().threads[thread_number()].group; }

void cp_wait_groups(int open) {
  ThreadCopies& own = state().threads[thread_number()];
  for (; own.first < own.entries.size(); ++own.first) {
    const auto& [copy, group] = own.entries[own.first];
    if (group + static_cast<uint32_t>(open) >= own.group) return;
    finish(copy);
  }
  own.entries.clear(), own.first = 0;
}

void barrier_init(uint64_t* barrier, uint32_t arrivals) {
  check_aligned(barrier, 8, "a barrier");
  if (arrivals == 0) fail("a barrier for no arrivals");
  state().barriers[barrier] = {arrivals, 0, 0, 0, {}};
  *barrier = barrier_mark;
}

void arrive_expecting(uint64_t* barrier, uint32_t bytes) {
  Barrier& b = barrier_at(barrier, "arrive_expecting");
  b.bytes += bytes;
  if (++b.arrived > b.arrivals) fail("more arrivals at a barrier than it was initialised for");
  end_phase_if_complete(b);
}

void barrier_wait(uint64_t* barrier, uint32_t parity) {
  barrier_at(barrier, "barrier_wait");
  if (parity > 1) fail(fmt::format("barrier_wait for parity {}", parity));
  wait_until("barrier_wait", [barrier, parity] {
    Barrier& b = state().barriers[barrier];  // asked by the scheduler too, where nothing may fail
    for (const Copy& copy : b.copies) finish(copy), b.bytes -= static_cast<int64_t>(copy.bytes);
    b.copies.clear();
    end_phase_if_complete(b);
    return (b.phase & 1) != parity;
  });
}

void bulk_copy(void* shared, const void* global, uint32_t bytes, uint64_t* barrier) {
  check_aligned(shared, 16, "bulk_copy's destination"), check_aligned(global, 16, "bulk_copy's source");
  if (bytes % 16 || bytes == 0) fail(fmt::format("bulk_copy of {} bytes", bytes));
  Barrier& b = barrier_at(barrier, "bulk_copy");
  b.copies.push_back({shared, global, bytes});
  begin(b.copies.back());
}

}  // namespace weir::cuda
