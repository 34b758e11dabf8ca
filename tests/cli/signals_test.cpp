// Ctrl-C at every stage of a command: while nobody can stop in an orderly way it ends at once, a signal that
// the parent ignores stays ignored, and nothing that a command started outlives it.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>

#include "cli/weir.h"

namespace weir::test {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

/// Until `path` holds something; false after a minute.
bool wait_for_file(const std::string& path) {
  for (int i = 0; i < 6000; ++i) {
    std::error_code error;
    if (std::filesystem::file_size(path, error) > 0 && !error) return true;
    usleep(10'000);
  }
  return false;
}

class CliSignals : public Cli {
 protected:
  TempDir dir_;
};

// A text that takes seconds to tokenise and is too long for the context: a command that looks at the signal
// only later would answer with that, and exit code 2.
TEST_F(CliSignals, AnInterruptBeforeTheFirstRoundEndsAtOnce) {
  const std::string text = dir_.file("long.txt");
  {
    std::string words;
    for (int i = 0; words.size() < (16u << 20); ++i) words += "word" + std::to_string(i) + " of a text, ";
    write_file(text, words);
  }
  for (const char* command : {"run", "perplexity"}) {
    SCOPED_TRACE(command);
    Clock::time_point sent;
    ProcessOptions options;
    options.on_first_error = [&](pid_t pid) {  // the plan: the model is about to be loaded
      usleep(50'000);
      sent = Clock::now();
      kill(pid, SIGINT);
    };
    const ProcessResult result =
        weir({command, "-m", pocket_model(), "-f", text, "-c", "2048", "--ledger-json", dir_.file("ledger")},
             options);
    EXPECT_EQ(result.exit_code, 130) << result.err;
    EXPECT_LT(seconds_since(sent), 2) << "on any machine, however busy; a tenth of a second on a quiet one";
    EXPECT_EQ(result.err.find("error"), std::string::npos) << result.err;
    EXPECT_EQ(std::distance(std::filesystem::directory_iterator(dir_.path()), {}), 1) << "only the text";
  }
}

TEST_F(CliSignals, ASignalThatTheParentIgnoresStaysIgnored) {
  for (const int signal : {SIGINT, SIGTERM}) {
    SCOPED_TRACE(signal);
    ProcessOptions options;
    options.command = {"/bin/sh", "-c",
                       "trap '' INT TERM; exec " + weir_binary() + " run -m " + pocket_model() +
                           " -p hello -n 200 --ignore-eos --greedy -c 256"};
    options.on_first_output = [&](pid_t pid) { kill(pid, signal); };
    const ProcessResult result = run_process(options);
    EXPECT_EQ(result.exit_code, 0) << result.signal << result.err;
    EXPECT_NE(result.err.find("decode: 200 tokens"), std::string::npos) << result.err;
  }
}

TEST_F(CliSignals, VerifyEndsAtAnInterrupt) {
  ProcessOptions options;
  options.on_first_output = [](pid_t pid) { kill(pid, SIGINT); };
  const ProcessResult result = weir({"verify", "-m", pocket_model(), "-c", "256"}, options);
  EXPECT_EQ(result.exit_code, 130) << result.err;
}

// One child ignores the gentle signal, one has a session of its own, one has lost its parent besides.
TEST_F(CliSignals, WhatAnAbStartedEndsWithIt) {
  for (const bool twice : {false, true}) {
    SCOPED_TRACE(twice);
    const std::string pids = dir_.file(twice ? "twice" : "once"), out = dir_.file("ab.json");
    const std::string command = "trap '' TERM; setsid sh -c 'echo $$ > " + pids +
                                ".session; exec sleep 1000' & (setsid sh -c 'echo $$ > " + pids +
                                ".orphan; exec sleep 1000' &); while [ ! -s " + pids + ".session -o ! -s " +
                                pids + ".orphan ]; do sleep 0.01; done; echo $$ > " + pids + "; sleep 1000";
    Clock::time_point sent;
    ProcessOptions options;
    options.on_start = [&](pid_t pid) {
      EXPECT_TRUE(wait_for_file(pids));
      sent = Clock::now();
      kill(pid, SIGINT);
      if (twice) usleep(20'000), kill(pid, SIGINT);
    };
    const ProcessResult result =
        weir({"ab", "--a-command", command, "--b-command", command, "--out", out}, options);
    EXPECT_EQ(result.exit_code, 130) << result.err;
    EXPECT_LT(seconds_since(sent), 5);
    for (const char* name : {"", ".session", ".orphan"}) {
      std::ifstream in(pids + name);
      pid_t pid = 0;
      in >> pid;
      EXPECT_GT(pid, 1) << name;
      EXPECT_NE(pid > 1 ? kill(pid, 0) : 0, 0) << "still there: the child" << name;
    }
    EXPECT_FALSE(std::filesystem::exists(out)) << "no run was complete";
    for (const auto& entry : std::filesystem::directory_iterator(dir_.path()))
      EXPECT_NE(entry.path().extension(), ".tmp");
  }
}

}  // namespace
}  // namespace weir::test
