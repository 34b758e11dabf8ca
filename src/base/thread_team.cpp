// The thread team: one sequence word that the caller bumps to publish a task, one counter that the members
// count down. Both are waited for by a short spin and then a futex, so that an oversubscribed or idle team
// gives the processor away. Knows nothing of what the work is.
#include "base/thread_team.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "base/pause.h"
#include "base/random.h"

namespace weir {
namespace {

constexpr int pauses_per_clock_read = 32;

void futex_wait(std::atomic<uint32_t>& word, uint32_t seen) {
  // Returns at once where the word has changed; a spurious return is handled by the callers' loops.
  syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, seen, nullptr, nullptr, 0);
}

void futex_wake_all(std::atomic<uint32_t>& word) {
  syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, INT32_MAX, nullptr, nullptr, 0);
}

int processors_allowed() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
  return CPU_COUNT(&set);
}

}  // namespace

struct ThreadTeam::State {
  // Published by the bump of `sequence`, read by members after they have seen it: plain fields.
  Erased work = nullptr;
  void* context = nullptr;
  int64_t count = 0, grain = 1;
  int members = 1;
  bool timing = false, stop = false;
  bool sampled = false;  ///< the times of the current task are taken; handed over by `sequence`
  uint64_t tasks = 0, samples = 0, next_sample = 0, drawn = 0;

  struct alignas(64) Member {
    uint64_t begin_ns = 0, end_ns = 0;  ///< of the last task; handed over by `remaining`
  };
  std::vector<Member> member;
  std::vector<std::thread> threads;

  alignas(64) std::atomic<uint32_t> sequence{0};
  std::atomic<uint32_t> sleepers{0};
  alignas(64) std::atomic<uint32_t> remaining{0};
  std::atomic<uint32_t> caller_sleeps{0};

  alignas(64) Imbalance totals;
  bool spins = true;     ///< false where the team is larger than the processors it may use
  bool running = false;  ///< the caller is inside run()

  template <typename Ready>
  bool spin(Ready&& ready) const {
    if (!spins) {
      for (int i = 0; i < 4; ++i) {
        if (ready()) return true;
        sched_yield();
      }
      return ready();
    }
    const uint64_t deadline = now_ns() + ThreadTeam::spin_ns;
    do {
      for (int i = 0; i < pauses_per_clock_read; ++i) {
        if (ready()) return true;
        pause_processor();
      }
    } while (now_ns() < deadline);
    return ready();
  }

  void part(int m) {
    Member& own = member[static_cast<size_t>(m)];
    const Range range = split(count, grain, m, members);
    if (sampled) own.begin_ns = now_ns();
    if (range.begin < range.end) work(context, range.begin, range.end, m);
    if (sampled) own.end_ns = now_ns();
  }

  /// Waits for a sequence other than `seen` and returns it.
  uint32_t next_task(uint32_t seen) {
    const auto changed = [&] { return sequence.load(std::memory_order_acquire) != seen; };
    if (!spin(changed)) {
      // Store-load order against publish(): either it sees the sleeper, or the sleeper sees its sequence.
      sleepers.fetch_add(1, std::memory_order_seq_cst);
      while (sequence.load(std::memory_order_seq_cst) == seen) futex_wait(sequence, seen);
      sleepers.fetch_sub(1, std::memory_order_relaxed);
    }
    return sequence.load(std::memory_order_acquire);
  }

  void member_loop(int m) {
    uint32_t seen = 0;
    for (;;) {
      seen = next_task(seen);
      if (stop) return;
      part(m);
      // Release: the results of this part, and its times, before the caller sees the count.
      if (remaining.fetch_sub(1, std::memory_order_seq_cst) == 1 &&
          caller_sleeps.load(std::memory_order_seq_cst) != 0)
        futex_wake_all(remaining);
    }
  }

  void publish() {
    sequence.fetch_add(1, std::memory_order_seq_cst);
    if (sleepers.load(std::memory_order_seq_cst) != 0) futex_wake_all(sequence);
  }

  void wait_for_members() {
    if (spin([&] { return remaining.load(std::memory_order_acquire) == 0; })) return;
    // Store-load order against member_loop(): either the last member sees the flag, or this sees its zero.
    caller_sleeps.store(1, std::memory_order_seq_cst);
    for (;;) {
      const uint32_t left = remaining.load(std::memory_order_seq_cst);
      if (left == 0) break;
      futex_wait(remaining, left);
    }
    caller_sleeps.store(0, std::memory_order_relaxed);
  }

  /// Decides whether the next task is timed. One in eight on average, at random distances: the clock reads of
  /// all would cost more than a hundredth of a small model's round, and fixed distances would fall on the
  /// same operations.
  void begin_task() {
    sampled = timing && tasks == next_sample;
    if (sampled) {
      ++samples;
      next_sample += 1 + random_u64(0x7ea3, drawn++) % 15;
    }
    tasks += timing;
  }

  void account() {
    uint64_t last = 0;
    for (const Member& m : member) last = std::max(last, m.end_ns);
    for (const Member& m : member) {
      totals.busy_ns += m.end_ns - m.begin_ns;
      totals.barrier_ns += last - m.end_ns;
    }
  }
};

ThreadTeam::ThreadTeam(int threads) : threads_(threads), state_(std::make_unique<State>()) {
  WEIR_CHECK(threads >= 1, "threads {}", threads);
  state_->members = threads;
  state_->member.resize(static_cast<size_t>(threads));
  state_->spins = threads <= processors_allowed();
  // Signals belong to the thread that made the team: members inherit a full mask.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  for (int m = 1; m < threads; ++m)
    state_->threads.emplace_back([state = state_.get(), m] { state->member_loop(m); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

ThreadTeam::~ThreadTeam() {
  state_->stop = true;
  state_->publish();
  for (std::thread& thread : state_->threads) thread.join();
}

ThreadTeam::Range ThreadTeam::split(int64_t count, int64_t grain, int member, int members) {
  const int64_t units = (count + grain - 1) / grain;
  const int64_t begin = units * member / members * grain;
  const int64_t end = units * (member + 1) / members * grain;
  return {std::min(begin, count), std::min(end, count)};
}

void ThreadTeam::set_timing(bool on) { state_->timing = on; }

ThreadTeam::Imbalance ThreadTeam::take_imbalance() {
  State& s = *state_;
  Imbalance taken = s.totals;
  taken.tasks = s.tasks;
  if (s.samples > 0) {
    const double scale = static_cast<double>(s.tasks) / static_cast<double>(s.samples);
    taken.busy_ns = static_cast<uint64_t>(scale * static_cast<double>(taken.busy_ns));
    taken.barrier_ns = static_cast<uint64_t>(scale * static_cast<double>(taken.barrier_ns));
  }
  s.totals = {};
  s.next_sample -= std::min(s.next_sample, s.tasks);
  s.tasks = s.samples = 0;
  return taken;
}

void ThreadTeam::run_erased(int64_t count, int64_t grain, Erased work, void* context) {
  State& s = *state_;
  WEIR_CHECK(!s.running && grain >= 1, "nested run, or grain {}", grain);
  if (count <= 0) return;
  s.running = true;
  s.begin_task();
  if (threads_ == 1 || count <= grain) {
    const uint64_t begin = s.sampled ? now_ns() : 0;
    work(context, 0, count, 0);
    if (s.sampled) {
      // The others wait all along: a serial stretch is imbalance too.
      const uint64_t busy = now_ns() - begin;
      s.totals.busy_ns += busy;
      s.totals.barrier_ns += busy * static_cast<uint64_t>(threads_ - 1);
    }
    s.running = false;
    return;
  }
  s.work = work, s.context = context, s.count = count, s.grain = grain;
  s.remaining.store(static_cast<uint32_t>(threads_ - 1), std::memory_order_relaxed);
  s.publish();
  s.part(0);
  s.wait_for_members();
  if (s.sampled) s.account();
  s.running = false;
}

}  // namespace weir
