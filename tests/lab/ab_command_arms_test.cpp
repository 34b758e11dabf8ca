// Whole commands as arms: their figure, their time, their failures, and their end at an interrupt.
#include "lab/ab/command_arms.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include "base/error.h"
#include "lab/ab/judge.h"
#include "lab/ab/process_group.h"
#include "support/temp_dir.h"

namespace weir::lab::ab {
namespace {

template <typename Work>
std::string error_of(Work work, int exit_code) {
  try {
    work();
  } catch (const Error& e) {
    EXPECT_EQ(e.exit_code(), exit_code) << e.what();
    return e.what();
  }
  return "no error";
}

bool has(const std::string& text, const std::string& words) { return text.find(words) != std::string::npos; }

TEST(AbCommand, OutputExitCodeTimeAndMemory) {
  const CommandResult r = run_command("echo one; echo two; echo why >&2; sleep 0.05; exit 3", nullptr);
  EXPECT_EQ(r.out, "one\ntwo\n");
  EXPECT_EQ(r.complaint, "why");
  EXPECT_EQ(r.exit_code, 3);
  EXPECT_FALSE(r.interrupted);
  EXPECT_GT(r.wall_ns, 50'000'000u);
  EXPECT_GT(r.peak_bytes, 100'000u);
  EXPECT_EQ(run_command("kill -9 $$", nullptr).exit_code, 128 + 9);
  EXPECT_EQ(run_command("cat", nullptr).exit_code, 0) << "standard input is empty, not ours";
}

TEST(AbCommand, LongOutputIsReadToItsEnd) {
  const CommandResult r = run_command("yes 0123456789 | head -c 20000000; echo; echo last", nullptr);
  EXPECT_EQ(r.exit_code, 0);
  EXPECT_LE(r.out.size(), 4u << 20);
  EXPECT_EQ(r.out.substr(r.out.size() - 5), "last\n");
}

TEST(AbCommand, AnInterruptEndsAllItStarted) {
  const test::TempDir dir;
  std::atomic<bool> cancel{false};
  std::thread after([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    cancel = true;
  });
  const CommandResult r = run_command("(sleep 30; touch " + dir.file("late") + ") | cat; sleep 30", &cancel);
  after.join();
  EXPECT_TRUE(r.interrupted);
  EXPECT_LT(r.wall_ns, 10'000'000'000u);
}

TEST(AbCommand, WhatItLeavesInTheBackgroundIsNotWaitedForButKilled) {
  // The loop: until the shell's child has become sleep, it is called sh.
  const std::string named = " & echo $$; while [ \"$(cat /proc/$!/comm)\" != sleep ]; do :; done";
  for (const char* redirection : {"", " >/dev/null 2>&1"}) {
    SCOPED_TRACE(redirection);
    const CommandResult r = run_command(std::string("sleep 100") + redirection + named, nullptr);
    EXPECT_EQ(r.exit_code, 0);
    EXPECT_LT(r.wall_ns, 50'000'000'000u);
    EXPECT_EQ(r.left_running, std::vector<std::string>{"sleep"});
    EXPECT_TRUE(running_in(std::stoi(r.out)).empty());
  }
}

TEST(AbCommand, ProcessesThatEndMeanwhileDoNotDisturbTheSearch) {
  std::atomic<bool> done{false};
  std::thread churn([&] {
    const char* many = "i=0; while [ $i -lt 200 ]; do /bin/true; i=$((i + 1)); done";
    while (!done) EXPECT_NO_THROW(run_command(many, nullptr));
  });
  for (int i = 0; i < 1000; ++i) EXPECT_NO_THROW(running_in(1 << 30));
  done = true;
  churn.join();
}

TEST(AbCommand, WhatItWaitedForIsNotTakenForLeft) {
  const CommandResult r = run_command("sleep 0.05 & wait; (exit 3) & wait; echo done | cat", nullptr);
  EXPECT_EQ(r.out, "done\n");
  EXPECT_TRUE(r.left_running.empty()) << r.left_running.front();
}

TEST(AbCommand, ItsOwnOutputIsWholeAlthoughTheBackgroundHoldsThePipe) {
  const CommandResult r =
      run_command("sleep 100 & head -c 3000000 /dev/zero | tr '\\0' x; echo; echo last", nullptr);
  EXPECT_EQ(r.out.size(), 3'000'000u + 6);
  EXPECT_EQ(r.out.substr(r.out.size() - 6), "\nlast\n");
}

TEST(AbCommand, ABackgroundThatWritesForEverIsEnded) {
  const CommandResult r = run_command("yes & sleep 0.05", nullptr);
  EXPECT_LT(r.wall_ns, 50'000'000'000u);
  EXPECT_EQ(r.left_running.size(), 1u);
}

TEST(AbCommand, WhatMovedToASessionOfItsOwnIsFoundAndKilled) {
  const test::TempDir dir;
  const std::string child = dir.file("child"), orphan = dir.file("orphan");
  const auto in_a_session = [](const std::string& file) {
    return "setsid sh -c 'echo $$ > " + file + "; exec sleep 100' >/dev/null 2>&1";
  };
  const std::string waiting = "while [ ! -s " + child + " -o ! -s " + orphan +
                              " ]; do sleep 0.01; done; while [ \"$(cat /proc/$(cat " + child +
                              ")/comm /proc/$(cat " + orphan + ")/comm | sort -u)\" != sleep ]; do :; done";
  const CommandResult r =
      run_command(in_a_session(child) + " & (" + in_a_session(orphan) + " &) ; " + waiting, nullptr);
  EXPECT_EQ(r.exit_code, 0) << r.complaint;
  EXPECT_EQ(r.left_running, std::vector<std::string>{"sleep"});
  for (const std::string& file : {child, orphan}) {
    const pid_t pid = std::stoi(test::read_file(file));
    EXPECT_NE(kill(pid, 0), 0) << file << " still there";
  }
}

TEST(AbCommand, ProcessesThatWereThereBeforeAreLeftAlone) {
  const pid_t other = fork();
  if (other == 0) {
    execl("/bin/sleep", "sleep", "100", static_cast<char*>(nullptr));
    _exit(127);
  }
  EXPECT_TRUE(run_command("true", nullptr).left_running.empty());
  EXPECT_EQ(kill(other, 0), 0);
  EXPECT_EQ(waitpid(other, nullptr, WNOHANG), 0) << "it ended";
  kill(other, SIGKILL);
  waitpid(other, nullptr, 0);
}

TEST(AbCommand, WhatIgnoresTheInterruptIsKilled) {
  std::atomic<bool> cancel{true};
  const CommandResult r = run_command("trap '' TERM; sleep 100 >/dev/null 2>&1", &cancel);
  EXPECT_TRUE(r.interrupted);
  EXPECT_LT(r.wall_ns, 10'000'000'000u);
}

TEST(AbFigure, LastMatchAndItsFirstGroup) {
  const std::string text =
      "load 7 s\nspeed: 12.5 tok/s\nspeed: -1e-3 tok/s\nspeed: +13.25 tok/s\nmemory 99\n";
  EXPECT_DOUBLE_EQ(find_figure("speed: (\\S+)", text), 13.25);
  EXPECT_DOUBLE_EQ(find_figure("[0-9]+$", text), 99) << "no group: the match";
  EXPECT_DOUBLE_EQ(find_figure("^load ([0-9]+)", text), 7) << "^ is the start of any line";
}

TEST(AbFigure, WhatCannotBeReadIsSaid) {
  EXPECT_TRUE(has(error_of([] { find_figure("speed (", "speed 1"); }, 2), "--figure"));
  EXPECT_TRUE(has(error_of([] { find_figure("speed (\\d+)", "none"); }, 2), "matches nothing"));
  EXPECT_TRUE(has(error_of([] { find_figure("speed (.*)", "speed fast"); }, 2), "expected a number"));
  EXPECT_TRUE(has(error_of([] { find_figure("(.*)", "nan"); }, 2), "expected a number"));
}

CommandArms arms(const std::string& a, const std::string& b, const std::string& figure,
                 const std::string& prompt = "") {
  return CommandArms({{a, b}, figure, {prompt}, nullptr});
}

TEST(AbCommandArms, FigureOrTimeIsTheValue) {
  auto figures = arms("echo v=2", "echo v=3", "v=(.*)");
  EXPECT_DOUBLE_EQ(figures.observe({.kind = RunKind::pair, .arm = Side::a})->value, 2);
  EXPECT_DOUBLE_EQ(figures.observe({.kind = RunKind::pair, .arm = Side::b})->value, 3);
  auto times = arms("sleep 0.05", "true", "");
  EXPECT_GT(times.observe({.kind = RunKind::pair, .arm = Side::a})->value, 50);
}

TEST(AbCommandArms, FailuresNameTheArm) {
  auto bad = arms("echo v=0", "echo broken >&2; exit 7", "v=(.*)");
  EXPECT_TRUE(has(error_of([&] { bad.observe({.arm = Side::a}); }, 2), "arm A: the figure is 0"));
  const std::string failed = error_of([&] { bad.observe({.arm = Side::b}); }, 1);
  for (const char* words : {"arm B", "exit code 7", "broken"}) EXPECT_TRUE(has(failed, words)) << failed;
  auto silent = arms("true", "true", "v=(.*)");
  EXPECT_TRUE(has(error_of([&] { silent.observe({.arm = Side::b}); }, 2), "arm B: --figure"));
}

TEST(AbCommandArms, ThePromptsPathIsOneWord) {
  const test::TempDir dir;
  const std::string path = dir.file("it's a prompt.txt");
  test::write_file(path, "42");
  auto cat = arms("cat {prompt}", "cat {prompt} {prompt}", "(.+)", path);
  EXPECT_DOUBLE_EQ(cat.observe({.arm = Side::a})->value, 42);
  EXPECT_DOUBLE_EQ(cat.observe({.arm = Side::b})->value, 4242);
}

}  // namespace
}  // namespace weir::lab::ab
