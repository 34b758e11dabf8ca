// Where a run writes, how it ends when it cannot, and that the numbers of a refusal are true.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>

#include "cli/weir.h"
#include "support/sanitized.h"

namespace weir::test {
namespace {

Arguments short_run() {
  return {"run", "-m", pocket_model(), "-p", "hello", "-n", "2", "--greedy", "-c", "64"};
}

class CliOutputs : public Cli {
 protected:
  TempDir dir_;
};
class CliOutputsSlow : public CliOutputs {};

TEST_F(CliOutputs, BadPathsAreRefusedBeforeAnyWork) {
  for (const char* option : {"--logits", "--ledger-json", "--trace", "--route-trace"}) {
    SCOPED_TRACE(option);
    expect_refused(weir(short_run() + Arguments{option, "/nonexistent/x"}), {"/nonexistent/x"});
    expect_refused(weir(short_run() + Arguments{option, dir_.path().string()}), {"directory"});
  }
}

TEST_F(CliOutputs, TheModelAndAnotherOutputAreNeverOverwritten) {
  const std::string model = dir_.file("m.gguf"), out = dir_.file("out");
  std::filesystem::copy_file(pocket_model(), model);
  expect_refused(weir({"run", "-m", model, "-p", "x", "-n", "1", "--logits", model}), {"is the input"});
  expect_refused(weir(short_run() + Arguments{"--trace", out, "--ledger-json", out}), {"two outputs"});
  EXPECT_FALSE(std::filesystem::exists(out));
}

TEST_F(CliOutputs, ADeviceStaysADevice) {
  EXPECT_EQ(weir(short_run() + Arguments{"--logits", "/dev/null"}).exit_code, 0);
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/null"));
}

/// A long run that writes a trace into `folder`, and gets `signals` together in the midst of it.
ProcessResult interrupted_run(const TempDir& folder, const std::vector<int>& signals) {
  ProcessOptions options;
  options.on_first_output = [&](pid_t pid) {
    EXPECT_FALSE(std::filesystem::is_empty(folder.path())) << "no temporary file yet";
    kill(pid, SIGSTOP);  // so that no work comes between them
    for (const int signal : signals) kill(pid, signal);
    kill(pid, SIGCONT);
  };
  return weir({"run", "-m", pocket_model(), "-p", "hello", "-n", "1900", "--ignore-eos", "--greedy", "-c",
               "2048", "--trace", folder.file("trace"), "--logits", folder.file("logits")},
              options);
}

TEST_F(CliOutputs, ASecondInterruptLeavesNoTemporaryFile) {
  const ProcessResult result = interrupted_run(dir_, {SIGINT, SIGTERM});
  EXPECT_EQ(result.exit_code, 130) << result.err;
  EXPECT_TRUE(std::filesystem::is_empty(dir_.path()));
}

TEST_F(CliOutputs, AClosedTerminalLeavesNoTemporaryFileAndStaysThatSignal) {
  EXPECT_EQ(interrupted_run(dir_, {SIGHUP}).signal, SIGHUP);
  EXPECT_TRUE(std::filesystem::is_empty(dir_.path()));
}

TEST_F(CliOutputs, ASecondInterruptOfAProfileLeavesNoTemporaryFile) {
  ProcessOptions options;
  options.environment = {{"TMPDIR", dir_.path().string()}};
  options.on_start = [&](pid_t pid) {
    for (int i = 0; i < 6000 && std::filesystem::is_empty(dir_.path()); ++i) usleep(10'000);
    EXPECT_FALSE(std::filesystem::is_empty(dir_.path()));
    kill(pid, SIGSTOP);
    kill(pid, SIGINT), kill(pid, SIGTERM);
    kill(pid, SIGCONT);
  };
  const ProcessResult result = weir({"profile", "-m", pocket_model()}, options);
  EXPECT_TRUE(result.exit_code == 130 || result.signal == SIGTERM) << result.exit_code << result.err;
  EXPECT_TRUE(std::filesystem::is_empty(dir_.path()));
}

/// Exit code of a shell line, for redirections.
int shell(const std::string& line) {
  ProcessOptions options;
  options.command = {"/bin/sh", "-c", line};
  return run_process(options).exit_code;
}

TEST_F(CliOutputs, AFullOrClosedStdoutIsAFailure) {
  for (const std::string& command : {"info -m " + pocket_model(), "plan -m " + pocket_model(),
                                     std::string("--help"), "tokenize -m " + pocket_model() + " -p hello"})
    EXPECT_EQ(shell(weir_binary() + " " + command + " > /dev/full 2> /dev/null"), 1) << command;
}

TEST_F(CliOutputs, AClosedStderrDoesNotCrash) {
  EXPECT_EQ(shell(weir_binary() + " run --bogus 2>&-"), 2);
  EXPECT_EQ(shell(weir_binary() + " run --bogus 2> /dev/full"), 2);
}

TEST_F(CliOutputs, ControlCharactersStayInOneLine) {
  const ProcessResult result = weir({"run", "-m", "no\nfile\033[31m", "-p", "x"});
  expect_refused(result, {"\\x0a", "\\x1b"});
  EXPECT_EQ(lines_of(result.err).size(), 1u);
}

TEST_F(CliOutputs, ADenseModelHasNoRoutingToRecord) {
  const std::string drafter = std::string(WEIR_SOURCE_DIR) + "/models/pocket-draft-q8.gguf";
  expect_refused(weir({"run", "-m", drafter, "-p", "x", "-n", "1", "--route-trace", dir_.file("r")}),
                 {"no routed experts"});
}

TEST_F(CliOutputs, ADirectoryIsNoPromptFile) {
  expect_refused(weir({"run", "-m", pocket_model(), "-f", dir_.path().string()}), {"directory"});
}

TEST_F(CliOutputs, ATextThatTheBudgetCannotHoldIsRefused) {
  const std::string text = dir_.file("text");
  {
    std::string words;
    while (words.size() < (8u << 20)) words += "many words ";
    write_file(text, words);
  }
  expect_refused(weir({"perplexity", "-m", pocket_model(), "-f", text, "-c", "64", "--memory", "32MiB"}),
                 {"smallest budget"});
}

TEST_F(CliOutputs, TheSmallestBudgetRunsAndOneByteLessDoesNot) {
  for (const char* context : {"16", "256", "2048"}) {
    const Arguments run{"run", "-m", pocket_model(), "-p", "hello", "-n", "2", "--greedy", "-c", context};
    const ProcessResult refusal = weir(run + Arguments{"--memory", "1MiB"});
    expect_refused(refusal, {"smallest budget"});
    const std::string bytes = json_answer(weir({"plan", "-m", pocket_model(), "-c", context, "--json"}))
                                  .at("minimum_budget_bytes")
                                  .dump();
    EXPECT_NE(refusal.err.find(bytes), std::string::npos) << bytes << " is not in: " << refusal.err;
    EXPECT_EQ(weir(run + Arguments{"--memory", bytes}).exit_code, 0);
    expect_refused(weir(run + Arguments{"--memory", std::to_string(std::stoll(bytes) - 1)}),
                   {"smallest budget"});
  }
}

TEST_F(CliOutputs, TheLargestContextRunsAndOneMoreDoesNot) {
  for (const char* memory : {"18MiB", "20MiB", "22MiB"}) {
    const auto plan =
        json_answer(weir({"plan", "-m", pocket_model(), "-c", "16", "--memory", memory, "--json"}));
    const int context = plan.at("largest_context").get<int>();
    const Arguments run{"run", "-m",       pocket_model(), "-p",   "hello", "-n",
                        "1",   "--greedy", "--memory",     memory, "-c"};
    EXPECT_EQ(weir(run + Arguments{std::to_string(context)}).exit_code, 0) << memory;
    if (context < 2048)
      expect_refused(weir(run + Arguments{std::to_string(context + 1)}), {"largest context"});
  }
}

TEST_F(CliOutputs, OneIsNoPlural) {
  const ProcessResult one = weir({"run", "-m", tiny(), "-p", "a", "-n", "1", "--greedy", "--ignore-eos", "-t",
                                  "1", "--ledger", "1", "--memory", "1GiB"});
  EXPECT_NE(one.err.find("decode: 1 token, 0 steps in"), std::string::npos) << one.err;
  for (const char* wrong : {" 1 tokens", " 1 steps", " 1 rounds", " 1 rows", " 1 hits", " 1 misses",
                            " 1 layers", " 1 threads", " 1 lanes"})
    EXPECT_EQ(one.err.find(wrong), std::string::npos) << wrong << " is in " << one.err;
}

TEST_F(CliOutputs, WhatARefusalSaysToTryWorks) {
  const Arguments run{"run", "-m", pocket_model(), "-p", "hello", "-n", "1", "--greedy"};
  for (const Arguments& more : {Arguments{"-c", "2048", "--memory", "18MiB"},
                                Arguments{"-c", "256", "--memory", "20MiB", "--expert-slots", "30"}}) {
    const ProcessResult refusal = weir(run + more);
    expect_refused(refusal, {"; try "});
    std::string advice = refusal.err.substr(refusal.err.rfind("; try ") + 6);
    advice.erase(advice.find_last_not_of('\n') + 1);
    const size_t between = advice.find(" or ");
    ASSERT_NE(between, std::string::npos) << advice;
    for (const std::string& option : {advice.substr(0, between), advice.substr(between + 4)}) {
      Arguments amended = run + more;
      const size_t space = option.find(' ');
      const auto old = std::find(amended.begin(), amended.end(), option.substr(0, space));
      ASSERT_NE(old, amended.end()) << option;
      *(old + 1) = option.substr(space + 1);
      EXPECT_EQ(weir(amended).exit_code, 0) << option << ": " << weir(amended).err;
    }
  }
}

/// The pocket model in a file of this test alone, with none of it in the page cache: what other processes
/// read of a file counts too.
std::string own_model(const TempDir& dir) {
  const std::string path = dir.file("own.gguf");
  std::filesystem::copy_file(pocket_model(), path);
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  EXPECT_GE(fd, 0);
  EXPECT_EQ(fsync(fd), 0);  // pages that are not written yet stay
  EXPECT_EQ(posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED), 0);
  close(fd);
  return path;
}

TEST_F(CliOutputs, TheFilesWrittenAreNamedAtTheEnd) {
  const std::string json = dir_.file("l.json"), trace = dir_.file("t.json"), routes = dir_.file("r.routes"),
                    logits = dir_.file("logits"), svg = dir_.file("curve.svg");
  const auto run = weir(short_run() + Arguments{"--ledger-json", json, "--trace", trace, "--route-trace",
                                                routes, "--logits", logits});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const auto lines = lines_of(run.err);
  ASSERT_GE(lines.size(), 4u);
  EXPECT_EQ(std::vector<std::string>(lines.end() - 4, lines.end()),
            (std::vector<std::string>{
                "weir: wrote the logits to " + logits, "weir: wrote the ledger to " + json,
                "weir: wrote the trace to " + trace, "weir: wrote the routing trace to " + routes}));
  const auto replay = weir({"replay", routes, "--svg", svg});
  EXPECT_EQ(lines_of(replay.err), std::vector<std::string>{"weir: wrote the curve to " + svg});
  for (const auto& path : {json, trace, routes, logits, svg}) EXPECT_TRUE(std::filesystem::exists(path));
}

TEST_F(CliOutputs, TheTraceNamesTheCpuAndEachReadsExpert) {
  const std::string path = dir_.file("t.json");
  ASSERT_EQ(weir(short_run() + Arguments{"--expert-slots", "6", "--trace", path}).exit_code, 0);
  const auto trace = nlohmann::json::parse(std::ifstream(path));
  EXPECT_EQ(trace["otherData"]["device"], "cpu");
  std::set<int> experts;
  for (const auto& event : trace["traceEvents"]) {
    EXPECT_EQ(event.dump().find("device lane"), std::string::npos);
    if (event["ph"] != "X" || event["tid"] < 10) continue;
    const auto& args = event["args"];
    EXPECT_EQ(event["name"], "layer " + args["layer"].dump() + " expert " + args["expert"].dump());
    experts.insert(args["expert"].get<int>());
  }
  EXPECT_GT(experts.size(), 8u);
  EXPECT_LT(*experts.rbegin(), 32);
}

TEST_F(CliOutputsSlow, WritingATraceStaysWithinTheBudget) {
  if (sanitized) GTEST_SKIP() << "a sanitizer's own memory counts";
  const std::string trace = dir_.file("t.json"), model = own_model(dir_);
  for (const char* memory : {"18MiB", "32MiB"}) {
    const auto answer =
        json_answer(weir({"bench", "-m", model, "-p", "0", "-n", "300", "-r", "1", "--memory", memory,
                          "--trace", trace, "--ledger-json", dir_.file("l.json"), "--json"}));
    EXPECT_LE(answer.at("memory").at("peak_bytes").get<int64_t>(),
              answer.at("memory").at("budget_bytes").get<int64_t>())
        << memory;
  }
  EXPECT_GT(std::filesystem::file_size(trace), 100u << 10);
}

TEST_F(CliOutputs, PeakMemoryStaysWithinTheBudget) {
  if (sanitized) GTEST_SKIP() << "a sanitizer's own memory counts";
  const std::string model = own_model(dir_);
  for (const char* memory : {"18MiB", "24MiB", "40MiB"}) {
    const auto answer = json_answer(weir({"run", "-m", model, "-p", "hello", "-n", "40", "--ignore-eos",
                                          "--greedy", "-c", "128", "--memory", memory, "--json"}));
    EXPECT_LE(answer.at("memory").at("peak_bytes").get<int64_t>(),
              answer.at("memory").at("budget_bytes").get<int64_t>())
        << memory;
  }
}

}  // namespace
}  // namespace weir::test
