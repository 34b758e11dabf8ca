// weir ab as a user meets it: verdicts as exit codes, stored observations, interrupts, bad input.
#include <signal.h>

#include <chrono>
#include <fstream>
#include <thread>

#include "cli/weir.h"

namespace weir::test {
namespace {

class CliAb : public Cli {
 protected:
  void SetUp() override {
    Cli::SetUp();
    write_file(dir_.file("p.txt"), "the quick brown fox");
  }
  /// Two option arms on the tiny model.
  ProcessResult compare(const Arguments& more, const std::string& a = "--expert-slots 2",
                        const std::string& b = "--expert-slots 8") {
    return weir(Arguments{"ab", "-m", tiny(), "-t", "1", "-c", "64", "--memory", "1GiB", "--a", a, "--b", b,
                          "--prompts", dir_.file("p.txt"), "-n", "6"} +
                more);
  }
  ProcessResult commands(const std::string& a, const std::string& b, const Arguments& more = {}) {
    return weir(Arguments{"ab", "--a-command", a, "--b-command", b, "--pairs", "6", "--out", out_} + more);
  }
  std::string out_ = dir_.file("ab.json");
};
class CliAbSlow : public CliAb {};

TEST_F(CliAb, OptionArmsGiveAReportAndStoredObservationsTheSame) {
  const ProcessResult first = compare({"--pairs", "6", "--runs", "2", "--out", out_});
  EXPECT_TRUE(first.exit_code == 0 || (first.exit_code >= 10 && first.exit_code <= 12)) << first.err;
  for (const char* words :
       {"verdict: ", "equal tokens", "seed       1", "--expert-slots 2", "peak memory", "machine"})
    EXPECT_NE(first.out.find(words), std::string::npos) << words << "\n" << first.out;
  const std::string sentence = first.out.substr(0, first.out.find('\n') + 1);
  EXPECT_EQ(first.out.rfind("\n" + sentence), first.out.size() - sentence.size() - 1) << "the last line, too";
  const ProcessResult again = weir({"ab", "--from", out_});
  EXPECT_EQ(again.out, first.out);
  EXPECT_EQ(again.exit_code, first.exit_code);
  const ProcessResult json = weir({"ab", "--from", out_, "--json"});
  EXPECT_EQ(json.exit_code, first.exit_code);
  const auto report = nlohmann::json::parse(json.out);
  EXPECT_EQ(report["exit_code"], first.exit_code);
  EXPECT_EQ(report["experiment"]["observations"].size(), 2u + 2 * 2 * (6 + 3));
  EXPECT_EQ(first.out.find("order of openings"), std::string::npos) << "every run is in the file";
  EXPECT_NE(weir({"ab", "--from", out_, "--verbose"}).out.find("order of openings"), std::string::npos);
  EXPECT_EQ(weir({"ab", "--from", out_, "--pairs", "8"}).exit_code, 12) << "changed after looking";
}

TEST_F(CliAb, WithoutPromptsTheFrozenOnesAreCutToTheContext) {
  const ProcessResult r = weir({"ab", "-m", tiny(), "-t", "1", "-c", "64", "--a", "", "--b", "", "-n", "4",
                                "--pairs", "6", "--runs", "1", "--out", out_});
  for (const char* words : {"short", "medium", "long"}) {
    EXPECT_NE(r.out.find(words), std::string::npos) << r.out;
    EXPECT_NE(r.err.find(words + std::string(" has ")), std::string::npos) << r.err;
  }
}

TEST_F(CliAbSlow, WithoutNumbersAPilotTellsThem) {
  const ProcessResult r = compare({"--minutes", "1", "--out", out_});
  EXPECT_TRUE(r.exit_code == 0 || (r.exit_code >= 10 && r.exit_code <= 12)) << r.err;
  EXPECT_NE(r.err.find(" pairs of openings and "), std::string::npos) << r.err;
  EXPECT_NE(r.out.find("pilot of 8 openings"), std::string::npos) << r.out;
}

TEST_F(CliAb, OpenedOnceTheVerdictSaysWhatItDoesNotCover) {
  const ProcessResult r = compare({"--open-once", "--pairs", "6", "--out", out_});
  EXPECT_NE(r.out.find("one opening of each arm: a difference between openings is not covered"),
            std::string::npos)
      << r.out;
  expect_refused(compare({"--open-once", "--runs", "2", "--out", dir_.file("2")}), {"--runs", "--open-once"});
}

TEST_F(CliAb, CommandArmsGiveEachVerdictItsExitCode) {
  // Figures without any noise: what is equal is equal, what differs does so in every pair.
  const auto exit_code = [&](const std::string& a, const std::string& b, const Arguments& more) {
    std::filesystem::remove(out_);
    return commands("echo speed " + a, "echo speed " + b, Arguments{"--figure", "speed (\\d+)"} + more)
        .exit_code;
  };
  EXPECT_EQ(exit_code("5", "6", {}), 0);
  EXPECT_EQ(exit_code("6", "5", {}), 10);
  EXPECT_EQ(exit_code("6", "5", {"--better", "lower"}), 0);
  EXPECT_EQ(exit_code("5", "5", {}), 11);
}

TEST_F(CliAb, CommandArmsSayWhichChecksAreSkipped) {
  const ProcessResult r = commands("echo 5", "echo 6", {"--figure", "\\d"});
  EXPECT_NE(r.out.find("skipped  equal tokens"), std::string::npos) << r.out;
  EXPECT_NE(r.out.find("no ledger"), std::string::npos) << r.out;
}

TEST_F(CliAb, ABackgroundProcessOfACommandIsKilledAndSaidOnceAnArm) {
  const ProcessResult r = commands("sleep 100 & echo 5", "echo 6", {"--figure", "\\d"});
  EXPECT_FALSE(r.timed_out);
  EXPECT_EQ(r.exit_code, 0) << r.err;
  const std::string warning = "warning: arm A: the command ended while s";  // sleep, or sh that becomes it
  EXPECT_NE(r.err.find(warning), std::string::npos) << r.err;
  EXPECT_EQ(r.err.find(warning), r.err.rfind(warning)) << r.err;
}

TEST_F(CliAb, AFailingCommandNamesItsArm) {
  const std::string once = dir_.file("once");
  expect_failed(
      commands("echo 5", "test ! -e " + once + " || { echo why >&2; exit 9; }; touch " + once + "; echo 6",
               {"--figure", "\\d"}),
      {"arm B", "exit code 9", "why", "observations so far"});
  EXPECT_TRUE(std::filesystem::exists(out_)) << "observations so far stay";
}

TEST_F(CliAb, TheVerdictNamesTheCommand) {
  const ProcessResult r = commands("echo 5", "echo 6", {"--figure", "\\d"});
  EXPECT_EQ(r.out.rfind("verdict: B, echo 6, is better\n", 0), 0u) << r.out;
}

TEST_F(CliAb, AFirstRunThatFailsLeavesTheNameFree) {
  const ProcessResult first = commands("echo five", "echo six", {"--figure", "\\d"});
  expect_failed(first, {"matches nothing", "no observations"});
  EXPECT_FALSE(std::filesystem::exists(out_));
  EXPECT_EQ(commands("echo 5", "echo 6", {"--figure", "\\d"}).exit_code, 0);
}

TEST_F(CliAb, AnInterruptLeavesObservationsAndNoVerdict) {
  const std::string beep = dir_.file("beep");
  std::thread interrupter([&] {
    for (int i = 0; i < 600 && !std::filesystem::exists(beep); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    std::ifstream in(beep);
    pid_t pid = 0;
    in >> pid;
    if (pid > 1) kill(pid, SIGINT);
  });
  const std::string once = dir_.file("once");
  const std::string command = "test ! -e " + once + " || { echo $PPID > " + beep + ".new && mv " + beep +
                              ".new " + beep + " && sleep 30; }; touch " + once + "; echo 5";
  const ProcessResult r = commands(command, command, {"--figure", "\\d"});
  interrupter.join();
  EXPECT_EQ(r.exit_code, 130) << r.err;
  EXPECT_EQ(r.out, "");
  EXPECT_NE(r.err.find("no verdict"), std::string::npos) << r.err;
  const ProcessResult judged = weir({"ab", "--from", out_});
  EXPECT_EQ(judged.exit_code, 12) << judged.err;
  EXPECT_NE(judged.out.find("ended in the pilot"), std::string::npos) << judged.out;
}

TEST_F(CliAbSlow, SelfTestKeepsItsPromises) {
  const ProcessResult r = weir({"ab", "--self-test"});
  EXPECT_EQ(r.exit_code, 0) << r.out;
  for (const char* words : {"blocked", "ABAB", "opened once", "openings 3 % apart", "warm-up to 5 %",
                            "clean arms refused", "planted"})
    EXPECT_NE(r.out.find(words), std::string::npos) << words;
}

// As short as it gets: that the script runs, judges, and goes on where it was; its figures are for a quiet
// machine.
TEST_F(CliAbSlow, TheProofScriptCountsVerdictsAndGoesOnWhereItWas) {
  const std::string folder = dir_.file("proof");
  const auto prove = [&] {
    return run_process(
        {.command = {"/usr/bin/python3", std::string(WEIR_SOURCE_DIR) + "/tools/ab_proof.py", tiny(), folder,
                     "--weir", weir_binary(), "--identical", "1", "--different", "1", "--pairs", "6", "-n",
                     "6", "--prompt", dir_.file("p.txt")},
         .environment = {},
         .input = "",
         .timeout_seconds = 120,
         .on_first_output = nullptr,
         .on_first_error = nullptr,
         .on_start = nullptr});
  };
  const ProcessResult first = prove();
  EXPECT_LE(first.exit_code, 1) << first.err;
  const auto lines = lines_of(first.out);
  ASSERT_EQ(lines.size(), 6u) << first.out << first.err;
  EXPECT_EQ(lines[2].rfind("| engine | identical | 1 | ", 0), 0u) << lines[2];
  EXPECT_EQ(lines[3].rfind("| engine | B 5 % slower", 0), 0u) << lines[3];
  EXPECT_EQ(lines[4].rfind("| commands | identical | 1 | ", 0), 0u) << lines[4];
  const ProcessResult again = prove();
  EXPECT_EQ(again.exit_code, first.exit_code);
  EXPECT_NE(lines_of(again.out).at(2).find("| - |"), std::string::npos) << "made before: took no time";
}

// --- bad input

TEST_F(CliAb, TooFewPairsAreRefused) {
  expect_refused(compare({"--pairs", "4", "--out", out_}), {"--pairs 4", "at least 6"});
  expect_refused(compare({"--pairs", "7", "--out", out_}), {"--pairs 7", "even"});
}

TEST_F(CliAb, UnknownOptionInAnArmIsNamed) {
  expect_refused(compare({"--out", out_}, "", "--frobnicate 3"), {"arm B", "--frobnicate"});
  expect_refused(compare({"--out", out_}, "--expert-slots none"), {"arm A", "--expert-slots"});
  expect_refused(compare({"--out", out_}, "--help"), {"arm A", "--help"});
  expect_refused(compare({"--out", out_}, "--trace x"), {"arm A", "--trace"});
  expect_refused(compare({"--out", out_}, "'x"), {"arm A", "not closed"});
  expect_refused(compare({"--out", out_}, "LD_PRELOAD=x"), {"arm A", "LD_PRELOAD"});
  EXPECT_FALSE(std::filesystem::exists(out_));
}

TEST_F(CliAb, AnArmThatCannotFitAloneIsNamed) {
  expect_refused(compare({"--out", out_}, "", "--memory 1MiB"), {"arm B", "1.00 MiB"});
}

TEST_F(CliAb, PromptsThatCannotWorkAreNamed) {
  const std::string prompt = dir_.file("p.txt");
  write_file(prompt, "");
  expect_refused(compare({"--out", out_}), {"p.txt", "empty"});
  write_file(prompt, std::string(4000, 'x'));
  expect_refused(compare({"--out", out_}), {"p.txt", "context"});
  std::filesystem::remove(prompt);
  expect_refused(compare({"--out", out_}), {"p.txt"});
  std::filesystem::create_directory(prompt);
  expect_refused(compare({"--out", out_}), {"p.txt", "*.txt"});
}

TEST_F(CliAb, ObservationsAreNeverReplaced) {
  write_file(out_, "mine");
  expect_refused(compare({"--out", out_}), {"ab.json", "exists"});
  EXPECT_EQ(read_file(out_), "mine");
  expect_refused(compare({"--out", dir_.file("none/ab.json")}), {"--out", "no folder"});
}

TEST_F(CliAb, BadStoredObservationsAreNamed) {
  expect_refused(weir({"ab", "--from", dir_.file("none.json")}), {"none.json"});
  write_file(out_, "{\"schema\": \"weir-ab-1\"}");
  expect_refused(weir({"ab", "--from", out_}), {"ab.json", "weir-ab-1", "opened once"});
  write_file(out_, "{\"schema\": \"weir-ab-2\"}");
  expect_refused(weir({"ab", "--from", out_}), {"ab.json", "design is missing"});
  write_file(out_, "nonsense");
  expect_refused(weir({"ab", "--from", out_}), {"ab.json", "not JSON"});
}

TEST_F(CliAb, ABadFigureIsRefusedBeforeAnythingRunsOrIsWritten) {
  const std::string ran = dir_.file("ran");
  const std::string command = "touch " + ran + "; echo 5";
  expect_refused(commands(command, command, {"--figure", "speed ("}), {"--figure", "speed (", "character 7"});
  expect_refused(commands(command, command, {"--figure", ""}), {"--figure", "empty"});
  EXPECT_FALSE(std::filesystem::exists(ran));
  EXPECT_FALSE(std::filesystem::exists(out_));
}

TEST_F(CliAb, OptionsThatStoredObservationsMakeNothingOfAreRefused) {
  ASSERT_EQ(commands("echo 5", "echo 6", {"--figure", "\\d"}).exit_code, 0);
  const std::vector<Arguments> ignored = {{"-m", "x.gguf"},      {"x.gguf"},
                                          {"-n", "8"},           {"--seed", "1"},
                                          {"--a", ""},           {"--figure", "x"},
                                          {"--cache", "warm"},   {"--out", "o"},
                                          {"--metric", "total"}, {"--better", "lower"},
                                          {"-t", "1"},           {"--self-test"},
                                          {"--prompts", "p"},    {"--allow-different-tokens"}};
  for (const Arguments& option : ignored) {
    SCOPED_TRACE(option[0]);
    const std::string name = option[0] == "x.gguf" ? "MODEL" : option[0];
    expect_refused(weir(Arguments{"ab", "--from", out_} + option), {name, "--from"});
  }
  EXPECT_EQ(weir({"ab", "--from", out_, "--pairs", "6", "--json"}).exit_code, 0);
  expect_refused(weir({"ab", "--from", ""}), {"cannot open"});
}

TEST_F(CliAb, OptionsOfAnEngineAreRefusedForCommands) {
  expect_refused(commands("true", "true", {"-n", "8"}), {"--predict", "--a-command"});
  expect_refused(commands("true", "true", {"-t", "2"}), {"--threads", "--a-command"});
  expect_refused(commands("true", "true", {"--runs", "2"}), {"--runs", "--a-command"});
  expect_refused(commands("true", "true", {"--memory", "1GiB"}), {"--memory", "--a-command"});
  EXPECT_FALSE(std::filesystem::exists(out_));
}

TEST_F(CliAb, OptionsThatTheSelfTestMakesNothingOfAreRefused) {
  expect_refused(weir({"ab", "--self-test", "-m", "x.gguf"}), {"--model", "--self-test"});
  expect_refused(weir({"ab", "--self-test", "--cache", "cold"}), {"--cache", "--self-test"});
}

TEST_F(CliAb, ContradictoryArmsAreRefused) {
  expect_refused(weir({"ab"}), {"--a", "--b"});
  expect_refused(compare({"--a-command", "true"}), {"one kind"});
  expect_refused(commands("true", "true", {"--negative-control", "head"}), {"--negative-control"});
  expect_refused(commands("cat {prompt}", "true"), {"{prompt}", "--prompts"});
  expect_refused(compare({"--negative-control", "heads"}), {"heads", "attention"});
  expect_refused(compare({"--metric", "speed"}), {"speed", "decode"});
  expect_refused(compare({"--cache", "hot"}), {"hot", "warm or cold"});
}

}  // namespace
}  // namespace weir::test
