// weir replay and weir plan --route-trace as a user meets them.
#include <unistd.h>

#include "cli/weir.h"

namespace weir::test {
namespace {

class CliReplay : public Cli {
 protected:
  /// Records a run of the tiny model; returns the trace's path.
  std::string record(const Arguments& more = {}) {
    const std::string path = dir_.file("routes");
    run_ = weir(Arguments{"run", "-m", model_, "-p", "the river", "-n", "20", "--greedy", "--ignore-eos",
                          "--memory", "1GiB", "-t", "1", "--json", "--route-trace", path} +
                more);
    EXPECT_EQ(run_.exit_code, 0) << run_.err;
    return path;
  }
  std::string model_ = tiny();
  ProcessResult run_;
};

TEST_F(CliReplay, GivesTheHitsOfTheRunThatRecordedAndOfOthers) {
  const std::string trace = record({"--expert-slots", "6"});
  const auto six = json_answer(run_);
  const auto answer =
      json_answer(weir({"replay", trace, "--slots", "3,6", "--policy", "lfu", "--phase", "all", "--json"}));
  ASSERT_EQ(answer["rows"].size(), 4u);
  EXPECT_EQ(answer["rows"][2]["expert_slots"], 6);
  EXPECT_EQ(answer["rows"][2]["hits"], six["experts"]["hits"]);
  EXPECT_EQ(answer["rows"][2]["misses"], six["experts"]["misses"]);
  record({"--expert-slots", "3"});
  const auto three = json_answer(run_);
  EXPECT_EQ(answer["rows"][0]["hits"], three["experts"]["hits"]);
  EXPECT_LT(answer["rows"][0]["hits"], answer["rows"][2]["hits"]);
}

TEST_F(CliReplay, PerplexityAndBenchCompleteTheirTraces) {
  const std::string text = dir_.file("text"), trace = dir_.file("routes");
  write_file(text, std::string(600, 'a'));
  const ProcessResult scored = weir({"perplexity", "-m", model_, "-f", text, "-c", "32", "--chunks", "2",
                                     "--memory", "1GiB", "--route-trace", trace});
  EXPECT_EQ(scored.exit_code, 0) << scored.err;
  EXPECT_EQ(json_answer(weir({"replay", trace, "--json"}))["phase_tokens"]["prefill"], 64);
  const ProcessResult measured = weir(
      {"bench", "-m", model_, "-p", "0", "-n", "3", "-r", "1", "--memory", "1GiB", "--route-trace", trace});
  EXPECT_EQ(measured.exit_code, 0) << measured.err;
  EXPECT_EQ(json_answer(weir({"replay", trace, "--json"}))["phase"], "decode");
}

TEST_F(CliReplay, PrintsTablesDrawsTheCurveAndMeasuresReads) {
  const std::string trace = record(), svg = dir_.file("curve.svg");
  const ProcessResult result = weir({"replay", trace, "--measure", model_, "--svg", svg});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  for (const char* words : {"belady", "wait, us/token", "reuse distance", "measured on", "upper bounds"})
    EXPECT_NE(result.out.find(words), std::string::npos) << words << " is not in:\n" << result.out;
  EXPECT_EQ(read_file(svg).rfind("<svg ", 0), 0u);
}

TEST_F(CliReplay, NamesTheModelAndRefusesAnother) {
  const std::string trace = record(), svg = dir_.file("curve.svg");
  const auto answer = json_answer(weir({"replay", trace, "-m", model_, "--svg", svg, "--json"}));
  EXPECT_EQ(answer["model"], model_);
  EXPECT_NE(read_file(svg).find(answer["model_name"].get<std::string>() + ", routes: "), std::string::npos);
  EXPECT_TRUE(json_answer(weir({"replay", trace, "--json"}))["model"].is_null());
  expect_refused(weir({"replay", trace, "-m", pocket_model()}), {trace, "another model"});
}

TEST_F(CliReplay, HidesReadsBehindTheHitsOfALedger) {
  const std::string ledger = dir_.file("ledger.json");
  const std::string trace = record({"--expert-slots", "4", "--ledger-json", ledger});
  const auto bound = json_answer(weir({"replay", trace, "--slots", "4", "--read-rate", "0.01", "--json"}));
  const auto hidden = json_answer(
      weir({"replay", trace, "--slots", "4", "--read-rate", "0.01", "--ledger-json", ledger, "--json"}));
  EXPECT_EQ(bound["rows"][0]["read_ns_per_token"], bound["rows"][0]["exposed_ns_per_token"]);
  EXPECT_LT(hidden["rows"][0]["exposed_ns_per_token"], bound["rows"][0]["exposed_ns_per_token"]);
  EXPECT_GT(hidden["reads"]["hidden_ns_per_hit"]["decode"], 0);
}

TEST_F(CliReplay, BadInputIsRefusedInOneLine) {
  const std::string trace = record();
  expect_refused(weir({"replay"}), {"no trace"});
  expect_refused(weir({"replay", dir_.file("none")}), {"none"});
  expect_refused(weir({"replay", model_}), {model_, "not a route trace"});
  expect_refused(weir({"replay", trace, "--frobnicate"}), {"--frobnicate"});
  expect_refused(weir({"replay", trace, "--slots", "1"}), {"--slots 1", "at least 2"});
  expect_refused(weir({"replay", trace, "--slots", "4,,8"}), {"--slots '4,,8'"});
  expect_refused(weir({"replay", trace, "--slots", "four"}), {"'four'"});
  expect_refused(weir({"replay", trace, "--slots", "99999999999"}), {"99999999999"});
  expect_refused(weir({"replay", trace, "--expert-memory", "1B"}), {"--expert-memory 1B", "at least"});
  expect_refused(weir({"replay", trace, "--expert-memory", "much"}), {"--expert-memory", "much"});
  expect_refused(weir({"replay", trace, "--policy", "fifo"}), {"fifo", "lfu and lru"});
  expect_refused(weir({"replay", trace, "--phase", "verify"}), {"verify", "prefill (", "decode ("});
  expect_refused(weir({"replay", trace, "--ledger-json", trace}), {"not a ledger"});
  expect_refused(weir({"replay", trace, "--read-rate", "1", "--measure", model_}),
                 {"--read-rate", "--measure"});
  std::string bytes = read_file(trace);
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
  write_file(trace, bytes);
  expect_refused(weir({"replay", trace}), {trace, "offset "});
  expect_refused(weir({"plan", "-m", model_, "--memory", "1GiB", "--route-trace", trace}),
                 {trace, "offset "});
}

TEST_F(CliReplay, ATraceOfAnotherModelIsRefused) {
  const std::string trace = record();
  TinyModelOptions options;
  options.experts = 12;
  const std::string other = write_tiny_model(dir_.file("other.gguf"), options);
  expect_refused(weir({"plan", "-m", other, "--memory", "1GiB", "--route-trace", trace}),
                 {trace, "another model", other});
  expect_refused(weir({"replay", trace, "--measure", other}), {trace, "another model", other});
}

TEST_F(CliReplay, AdvisedBudgetsGiveTheSlotsTheyPromise) {
  const std::string trace = record();
  const ProcessResult text =
      weir({"plan", "-m", model_, "-t", "1", "--memory", "1GiB", "--route-trace", trace});
  EXPECT_EQ(text.exit_code, 0) << text.err;
  EXPECT_NE(text.out.find("for 80 %"), std::string::npos) << text.out;
  const auto plan = json_answer(
      weir({"plan", "-m", model_, "-t", "1", "--memory", "1GiB", "--route-trace", trace, "--json"}));
  const auto& advice = plan["advice"];
  EXPECT_EQ(advice["phase"], "decode");
  EXPECT_EQ(advice["current"]["expert_slots"], 8);
  int reached = 0;
  for (const auto& target : advice["targets"]) {
    if (!target["reached"]) continue;
    ++reached;
    const auto again = json_answer(weir({"plan", "-m", model_, "-t", "1", "--memory",
                                         std::to_string(target["budget_bytes"].get<uint64_t>()), "--json"}));
    EXPECT_EQ(again["expert_slots"], target["expert_slots"]);
  }
  EXPECT_GT(reached, 0);
}

/// A command as it was printed, run by a shell; `more` follows it.
ProcessResult pasted(std::string command, const std::string& more) {
  EXPECT_EQ(command.rfind("weir run ", 0), 0u) << command;
  const size_t prompt = command.find(" -p PROMPT");
  EXPECT_NE(prompt, std::string::npos) << command;
  command.replace(prompt, 10, " -p 'the river'");
  ProcessOptions options;
  options.command = {"/bin/sh", "-c", weir_binary() + command.substr(4) + more};
  options.environment = {{"WEIR_LEDGER", ""}};
  options.timeout_seconds = 120;
  return run_process(options);
}

TEST_F(CliReplay, EveryRowOfAdviceIsACommandThatHolds) {
  // A model in which a budget that is worth a wider prefill round has fewer slots than one before it.
  const std::string model = dir_.file("it's a model.gguf"), again = dir_.file("again");
  ASSERT_EQ(symlink(pocket_model().c_str(), model.c_str()), 0);
  model_ = model;
  const std::string trace = record({"-c", "256", "-n", "64"});
  const Arguments plan{"plan",           "-m", model, "-t", "1", "-c", "256", "--memory", "1GiB",
                       "--expert-slots", "8"};
  const ProcessResult text = weir(plan + Arguments{"--route-trace", trace});
  EXPECT_EQ(text.exit_code, 0) << text.err;
  const auto advice = json_answer(weir(plan + Arguments{"--route-trace", trace, "--json"}))["advice"];
  std::vector<nlohmann::json> rows{advice["current"], advice["all_resident"]};
  for (const auto& target : advice["targets"])
    if (target["reached"]) rows.push_back(target);
  ASSERT_GE(rows.size(), 3u);
  EXPECT_EQ(advice["current"]["expert_slots"], 8);
  EXPECT_EQ(advice["all_resident"]["expert_slots"], 32);
  for (const auto& row : rows) {
    const std::string command = row["command"], slots = std::to_string(row["expert_slots"].get<int>());
    SCOPED_TRACE(command);
    EXPECT_NE(text.out.find("    " + command + "\n"), std::string::npos) << text.out;
    const ProcessResult run = pasted(command, " -n 64 --greedy --ignore-eos --json");
    ASSERT_EQ(run.exit_code, 0) << run.err;
    // A recording takes memory of its own: it is of another run, which has the same rounds.
    const ProcessResult recorded =
        weir({"run", "-m", model, "-t", "1", "-c", "256", "--memory", "1GiB", "--prefill-chunk",
              std::to_string(row["prefill_chunk"].get<int>()), "-p", "the river", "-n", "64", "--greedy",
              "--ignore-eos", "--route-trace", again});
    ASSERT_EQ(recorded.exit_code, 0) << recorded.err;
    EXPECT_NE(run.err.find(slots + " of 32 experts"), std::string::npos) << run.err;
    // The run's own counts are those of its slots, and its decode hit rate is the one that was promised.
    const auto all = json_answer(
        weir({"replay", again, "--slots", slots, "--policy", "lfu", "--phase", "all", "--json"}))["rows"][0];
    EXPECT_EQ(json_answer(run)["experts"]["hits"], all["hits"]);
    const auto decode = json_answer(weir(
        {"replay", again, "--slots", slots, "--policy", "lfu", "--phase", "decode", "--json"}))["rows"][0];
    EXPECT_EQ(decode["hits"], row["hits"]);
    EXPECT_EQ(decode["misses"], row["misses"]);
    // And no smaller budget has these slots.
    const std::string less = std::to_string(row["budget_bytes"].get<uint64_t>() - 1);
    const ProcessResult below =
        weir({"plan", "-m", model, "-t", "1", "-c", "256", "--memory", less, "--json"});
    if (below.exit_code == 0) {
      EXPECT_LT(json_answer(below)["expert_slots"], row["expert_slots"]);
    }
  }
}

TEST_F(CliReplay, MemoryMeansTheWholeBudgetEverywhere) {
  const std::string trace = record();
  expect_refused(weir({"replay", trace, "--memory", "1MiB"}),
                 {"replay --memory", "weir plan", "--expert-memory"});
  EXPECT_EQ(weir({"replay", trace, "--expert-memory", "1MiB"}).exit_code, 0);
}

TEST_F(CliReplay, SlotsBeyondTheExpertsSayWhatBecameOfThem) {
  const std::string trace = record();
  const ProcessResult replay = weir({"replay", trace, "--slots", "99", "--json"});
  EXPECT_EQ(json_answer(replay)["rows"][0]["expert_slots"], 8);
  EXPECT_NE(replay.err.find("--slots 99: the model has 8 experts a layer: 8 slots, all resident"),
            std::string::npos)
      << replay.err;
  const ProcessResult plan = weir({"plan", model_, "--memory", "1GiB", "--expert-slots", "64"});
  EXPECT_NE(plan.err.find("--expert-slots 64: the model has 8 experts a layer: 8 slots, all resident"),
            std::string::npos)
      << plan.err;
  EXPECT_EQ(weir({"plan", model_, "--memory", "1GiB", "--expert-slots", "8"}).err, "");
}

}  // namespace
}  // namespace weir::test
