// What the ledger costs when on: nothing allocated after construction, a switch in tens of nanoseconds. This
// file replaces the program's operator new with one that counts.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <new>

#include "ledger/ledger.h"
#include "ledger/trace.h"

namespace {
thread_local uint64_t allocations = 0, allocated_bytes = 0;
}

// The form that does not throw too: a sanitizer's own would not match the delete below. Not inlined: g++
// would take new and free for a mismatched pair.
[[gnu::noinline]] void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  ++allocations;
  allocated_bytes += bytes;
  return std::malloc(bytes ? bytes : 1);
}
[[gnu::noinline]] void* operator new(size_t bytes) {
  if (void* p = operator new(bytes, std::nothrow)) return p;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* p) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, size_t) noexcept { std::free(p); }

namespace weir {
namespace {

TEST(LedgerCost, NothingIsAllocatedAfterConstruction) {
  LedgerOptions options;
  options.trace = true;
  options.ring_rounds = 4;
  options.ring_spans = 16;
  options.log_every = 1;
  options.inject_role = Role::head;
  options.inject_ns = 100;
  const uint64_t before_construction = allocations;
  Ledger ledger(options);
  ASSERT_GT(allocations, before_construction) << "the counter does not count";
  const uint64_t before = allocations;
  for (int generation = 0; generation < 3; ++generation) {
    ledger.begin_generation();
    for (int i = 0; i < 20; ++i) {
      ledger.begin_round(i == 0 ? Phase::prefill : Phase::decode);
      for (int r = 0; r < role_count; ++r) {
        RoleScope scope(&ledger, static_cast<Role>(r));
        ledger.bytes(10);
      }
      ledger.hidden(Role::upload, 5);
      ledger.expert_traffic({1, 1, 4096, 1, 10});
      ledger.imbalance(10, 1, 1);
      ledger.read_span(1, 2, 3, 0, 4096);
      ledger.end_round(1, 1);
    }
    ledger.end_generation();
  }
  EXPECT_EQ(allocations, before);
  EXPECT_GT(ledger.rounds_dropped(), 0u) << "the rings were meant to wrap";
  EXPECT_GT(ledger.spans_dropped(), 0u);
}

TEST(LedgerCost, ThePlanKnowsWhatTheLedgerTakes) {
  for (const bool trace : {false, true}) {
    LedgerOptions options;
    options.trace = trace;
    const uint64_t before = allocated_bytes;
    const Ledger ledger(options);
    // Writing the trace takes memory too, when the run is over.
    const uint64_t writing =
        trace ? trace_write_bytes + static_cast<uint64_t>(options.ring_spans) * trace_index_bytes : 0;
    EXPECT_EQ(allocated_bytes - before + sizeof(Ledger) + writing, Ledger::bytes(options));
  }
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || !defined(__OPTIMIZE__)
constexpr bool timed = false;
#else
constexpr bool timed = true;
#endif

/// The best of 50 batches, so that a busy machine does not count.
template <typename F>
double best_ns(F&& once) {
  uint64_t best = UINT64_MAX;
  for (int batch = 0; batch < 50; ++batch) {
    const uint64_t begin = now_ns();
    for (int i = 0; i < 2'000; ++i) once(i);
    best = std::min(best, now_ns() - begin);
  }
  return static_cast<double>(best) / 2'000;
}

double ns_per_switch(const LedgerOptions& options) {
  Ledger ledger(options);
  ledger.begin_generation();
  ledger.begin_round(Phase::decode);
  return best_ns([&](int i) { ledger.enter(static_cast<Role>(i % role_count)); });
}

TEST(LedgerCost, ASwitchTakesUnder200Nanoseconds) {
  if (!timed) GTEST_SKIP() << "timed in release builds only";
  uint64_t sink = 0;
  const double clock = best_ns([&](int) { sink += now_ns(); });
  EXPECT_NE(sink, 0u);
  LedgerOptions options;
  const double plain = ns_per_switch(options);
  options.trace = true;
  const double traced = ns_per_switch(options);
  std::printf("clock %.1f ns, switch %.1f ns, with trace %.1f ns\n", clock, plain, traced);
  EXPECT_LT(plain, 200);
  EXPECT_LT(traced, 200);
}

TEST(LedgerCost, ARoundIsFiledInUnder5Microseconds) {
  if (!timed) GTEST_SKIP() << "timed in release builds only";
  Ledger ledger{LedgerOptions{}};
  ledger.begin_generation();
  uint64_t best = UINT64_MAX;
  for (int round = 0; round < 500; ++round) {
    ledger.begin_round(Phase::decode);
    for (int r = 0; r < role_count; ++r) ledger.enter(static_cast<Role>(r));
    const uint64_t begin = now_ns();
    ledger.end_round(1, 1);
    best = std::min(best, now_ns() - begin);
  }
  std::printf("end_round %llu ns\n", static_cast<unsigned long long>(best));
  EXPECT_LT(best, 5'000u);
}

}  // namespace
}  // namespace weir
