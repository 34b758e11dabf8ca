// Who ends when at which signal. Each case is a process of its own.
#include "base/interrupt.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <thread>

namespace weir {
namespace {

using testing::ExitedWithCode;
using testing::KilledBySignal;

class Interrupt : public testing::Test {
 protected:
  Interrupt() { testing::GTEST_FLAG(death_test_style) = "threadsafe"; }
};
using InterruptDeathTest = Interrupt;

TEST_F(InterruptDeathTest, AloneEndsTheProcess) {
  EXPECT_EXIT((clean_up_at_signals(), raise(SIGINT), _exit(3)), ExitedWithCode(130), "");
  EXPECT_EXIT((clean_up_at_signals(), raise(SIGTERM), _exit(3)), KilledBySignal(SIGTERM), "");
}

TEST_F(InterruptDeathTest, CaughtSetsAFlagAndTheSecondEnds) {
  EXPECT_EXIT((catch_interrupts(), raise(SIGINT), _exit(interrupted() ? 4 : 3)), ExitedWithCode(4), "");
  EXPECT_EXIT((catch_interrupts(), raise(SIGINT), raise(SIGTERM), _exit(3)), ExitedWithCode(130), "");
}

TEST_F(InterruptDeathTest, WhereNobodyLooksTheFirstEnds) {
  const auto inside = [] {
    catch_interrupts();
    const EndAtOnce nobody_looks;
    raise(SIGINT);
    _exit(3);
  };
  EXPECT_EXIT(inside(), ExitedWithCode(130), "");
  const auto before = [] {
    catch_interrupts();
    raise(SIGINT);
    const EndAtOnce nobody_looks;
    _exit(3);
  };
  EXPECT_EXIT(before(), ExitedWithCode(130), "");
  const auto after = [] {
    catch_interrupts();
    { const EndAtOnce nobody_looks; }
    raise(SIGINT);
    _exit(interrupted() ? 4 : 3);
  };
  EXPECT_EXIT(after(), ExitedWithCode(4), "");
}

TEST_F(InterruptDeathTest, WithChildrenAnyNumberOnlySetsTheFlag) {
  const auto inside = [] {
    catch_interrupts();
    EndChildrenFirst children;
    raise(SIGINT), raise(SIGINT), raise(SIGTERM);
    _exit(interrupted() ? 4 : 3);
  };
  EXPECT_EXIT(inside(), ExitedWithCode(4), "");
}

TEST_F(InterruptDeathTest, WhatIsIgnoredStaysIgnored) {
  const auto ignored = [] {
    signal(SIGINT, SIG_IGN);
    clean_up_at_signals();
    catch_interrupts();
    raise(SIGINT), raise(SIGINT);
    _exit(interrupted() ? 4 : 3);
  };
  EXPECT_EXIT(ignored(), ExitedWithCode(3), "");
}

// The main thread is the one that makes temporary files: the handler runs there.
TEST_F(InterruptDeathTest, ASignalToAnotherThreadIsTheMainThreads) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "ThreadSanitizer keeps signals back, and now and then past a thread's end";
#endif
  const auto other = [] {
    clean_up_at_signals();
    // Not joined: the process may end first, which ThreadSanitizer would call a leak.
    std::thread([] {
      pthread_kill(pthread_self(), SIGINT);
      sleep(10);
    }).detach();
    sleep(10);
    _exit(3);
  };
  EXPECT_EXIT(other(), ExitedWithCode(130), "");
}

}  // namespace
}  // namespace weir
