// The team's split covers every index once and its barrier hands every result to the caller, with as many
// members as there are processors and with more. Run under TSan as well.
#include "base/thread_team.h"

#include <gtest/gtest.h>
#include <time.h>

#include <numeric>
#include <vector>

#include "base/clock.h"
#include "base/random.h"

namespace weir {
namespace {

uint64_t process_cpu_ns() {
  timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return static_cast<uint64_t>(t.tv_sec) * 1'000'000'000u + static_cast<uint64_t>(t.tv_nsec);
}

void sleep_ms(int ms) {
  timespec t{0, ms * 1'000'000};
  nanosleep(&t, nullptr);
}

TEST(ThreadTeamSplit, PartsAreContiguousAlignedAndCoverEverything) {
  for (int64_t count : {0, 1, 7, 8, 9, 63, 64, 1000, 4097})
    for (int64_t grain : {1, 3, 8, 16, 5000})
      for (int members : {1, 2, 3, 5, 16}) {
        int64_t at = 0;
        for (int m = 0; m < members; ++m) {
          const auto part = ThreadTeam::split(count, grain, m, members);
          EXPECT_EQ(part.begin, at) << count << " " << grain << " " << m << "/" << members;
          EXPECT_LE(part.begin, part.end);
          if (part.end != count) {
            EXPECT_EQ(part.end % grain, 0) << count << " " << grain << " " << m;
          }
          at = part.end;
        }
        EXPECT_EQ(at, count);
      }
}

TEST(ThreadTeamSplit, PartsDifferByOneGrainAtMost) {
  for (int members : {2, 3, 7}) {
    int64_t least = INT64_MAX, most = 0;
    for (int m = 0; m < members; ++m) {
      const auto part = ThreadTeam::split(800, 8, m, members);
      least = std::min(least, part.end - part.begin), most = std::max(most, part.end - part.begin);
    }
    EXPECT_LE(most - least, 8);
  }
}

class ThreadTeamOf : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Sizes, ThreadTeamOf, testing::Values(1, 2, 3, 8));

TEST_P(ThreadTeamOf, EachIndexIsVisitedOnceByTheMemberOfItsPart) {
  ThreadTeam team(GetParam());
  ASSERT_EQ(team.size(), GetParam());
  for (int64_t count : {1, 2, 5, 64, 1001}) {
    std::vector<int> visits(static_cast<size_t>(count)), owner(static_cast<size_t>(count), -1);
    team.run(count, 1, [&](int64_t begin, int64_t end, int member) {
      for (int64_t i = begin; i < end; ++i)
        ++visits[static_cast<size_t>(i)], owner[static_cast<size_t>(i)] = member;
    });
    for (int64_t i = 0; i < count; ++i) {
      EXPECT_EQ(visits[static_cast<size_t>(i)], 1);
      const int m = owner[static_cast<size_t>(i)];
      const auto part =
          count <= 1 ? ThreadTeam::Range{0, count} : ThreadTeam::split(count, 1, m, team.size());
      EXPECT_TRUE(part.begin <= i && i < part.end) << i << " by " << m;
    }
  }
}

TEST_P(ThreadTeamOf, SmallTasksRunOnTheCallerAlone) {
  ThreadTeam team(GetParam());
  int calls = 0;
  team.run(16, 16, [&](int64_t begin, int64_t end, int member) {
    ++calls;
    EXPECT_TRUE(begin == 0 && end == 16 && member == 0);
  });
  team.run(0, 16, [&](int64_t, int64_t, int) { ++calls; });
  EXPECT_EQ(calls, 1);
}

// Plain, unsynchronised data passed from task to task: any hole in the barrier is a race (TSan) or a wrong
// sum.
TEST_P(ThreadTeamOf, EachTaskSeesWhatTheTaskBeforeWrote) {
  ThreadTeam team(GetParam());
  constexpr int64_t n = 64;
  std::vector<int64_t> a(n), b(n);
  std::iota(a.begin(), a.end(), 0);
  const int64_t tasks = 5'000;
  for (int64_t t = 0; t < tasks; ++t) {
    team.run(n, 1, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i)
        b[static_cast<size_t>(i)] = a[static_cast<size_t>((i + 1) % n)] + 1;  // written by another member
    });
    std::swap(a, b);
  }
  int64_t sum = 0;
  for (int64_t v : a) sum += v;
  EXPECT_EQ(sum, n * (n - 1) / 2 + n * tasks);
}

// Pauses longer and shorter than the spin: members are found asleep, spinning and on the way between.
TEST_P(ThreadTeamOf, WakesAfterPausesOfAnyLength) {
  ThreadTeam team(GetParam());
  std::vector<int64_t> seen(static_cast<size_t>(team.size()) * 8);
  const int64_t tasks = 300;
  for (int64_t t = 0; t < tasks; ++t) {
    team.run(team.size(), 1, [&](int64_t, int64_t, int m) { ++seen[static_cast<size_t>(m) * 8]; });
    const uint64_t pause_ns = random_u64(7, static_cast<uint64_t>(t)) % (3 * ThreadTeam::spin_ns);
    for (const uint64_t until = now_ns() + pause_ns; now_ns() < until;) {
    }
  }
  for (int m = 0; m < team.size(); ++m) EXPECT_EQ(seen[static_cast<size_t>(m) * 8], tasks);
}

TEST_P(ThreadTeamOf, UnevenPartsOutlastTheCallersSpin) {
  ThreadTeam team(GetParam());
  for (int t = 0; t < 20; ++t) {
    std::vector<int> done(static_cast<size_t>(team.size()));
    team.run(team.size(), 1, [&](int64_t, int64_t, int m) {
      if (m == t % team.size()) sleep_ms(1);
      done[static_cast<size_t>(m)] = 1;
    });
    for (int d : done) EXPECT_EQ(d, 1);
  }
}

TEST(ThreadTeam, MadeAndDestroyedWithoutATask) {
  for (int i = 0; i < 50; ++i) ThreadTeam team(3);
}

TEST(ThreadTeam, AnIdleTeamSleeps) {
  ThreadTeam team(2);
  team.run(2, 1, [](int64_t, int64_t, int) {});
  sleep_ms(5);
  const uint64_t before = process_cpu_ns();
  sleep_ms(200);
  EXPECT_LT(process_cpu_ns() - before, 50'000'000u);
}

TEST(ThreadTeam, ImbalanceCountsBusyAndWaitingTime) {
  ThreadTeam team(2);
  team.run(2, 1, [](int64_t, int64_t, int) {});
  EXPECT_EQ(team.take_imbalance().tasks, 0u) << "off until asked for";
  team.set_timing(true);
  const auto lopsided = [](int64_t, int64_t, int m) {
    if (m == 1) sleep_ms(20);
  };
  team.run(2, 1, lopsided);
  const auto taken = team.take_imbalance();
  EXPECT_EQ(taken.tasks, 1u);
  EXPECT_GE(taken.busy_ns, 20'000'000u);
  EXPECT_GE(taken.barrier_ns, 15'000'000u) << "member 0 waited for member 1";
  EXPECT_EQ(team.take_imbalance().tasks, 0u) << "taken once";
  team.run(1, 1, [](int64_t, int64_t, int) { sleep_ms(20); });
  const auto serial = team.take_imbalance();
  EXPECT_EQ(serial.tasks, 1u);
  EXPECT_EQ(serial.barrier_ns, serial.busy_ns) << "one member works, one waits";
}

}  // namespace
}  // namespace weir
