// A fixed team of threads that spins between tasks of a round and splits work the same way every time.
// The calling thread is member 0 and carries the ledger's account; the others' busy time is kept for the
// imbalance column. Results never depend on the split: every output element is computed by one member.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <type_traits>

namespace weir {

class ThreadTeam {
 public:
  /// How long a worker spins after a task before it sleeps. The waits for experts of a layer are some 100 to
  /// 300 us long: a worker that slept through them had to be woken for every few missed experts
  /// (docs/streaming.md).
  static constexpr uint64_t spin_ns = 300'000;

  /// threads >= 1, the caller included.
  explicit ThreadTeam(int threads);
  ~ThreadTeam();
  ThreadTeam(const ThreadTeam&) = delete;
  ThreadTeam& operator=(const ThreadTeam&) = delete;

  int size() const { return threads_; }

  /// Calls work(begin, end, member) once per member with the fixed contiguous split of [0, count) whose inner
  /// boundaries are multiples of `grain`. Returns when all have finished (a full barrier). Runs on the caller
  /// alone where count <= grain. `work` must not throw.
  template <typename F>
  void run(int64_t count, int64_t grain, F&& work) {
    using Work = std::remove_reference_t<F>;
    run_erased(
        count, grain,
        [](void* context, int64_t begin, int64_t end, int member) {
          (*static_cast<Work*>(context))(begin, end, member);
        },
        const_cast<void*>(static_cast<const void*>(&work)));
  }

  /// Member m's part of [0, count) in multiples of grain: pure, the same for the same arguments.
  struct Range {
    int64_t begin, end;
  };
  static Range split(int64_t count, int64_t grain, int member, int members);

  /// While on, workers' busy and waiting times are estimated from one task in eight, taken at random
  /// distances (two clock reads for each of those and member).
  void set_timing(bool on);
  struct Imbalance {
    uint64_t busy_ns = 0;     ///< sum over members of time inside work()
    uint64_t barrier_ns = 0;  ///< sum over members of time from the end of their work to the last one's end
    uint64_t tasks = 0;
  };
  /// Totals since the last call; the caller must not be inside run().
  Imbalance take_imbalance();

 private:
  using Erased = void (*)(void* context, int64_t begin, int64_t end, int member);
  void run_erased(int64_t count, int64_t grain, Erased work, void* context);
  struct State;
  int threads_;
  std::unique_ptr<State> state_;
};

}  // namespace weir
