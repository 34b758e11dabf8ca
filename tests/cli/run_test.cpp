// `weir run` and the other commands from outside: what is on which stream, in which form, and that nothing
// that should not change the answer does.
#include <signal.h>

#include "cli/weir.h"

namespace weir::test {
namespace {

class CliRun : public Cli {
 protected:
  /// 24 tokens, sampled with a fixed seed, of the tiny model with K-quants.
  Arguments arguments(const Arguments& more = {}) {
    if (model_.empty()) model_ = tiny(tiny_kquant_options());
    return Arguments{"run",    "-m", model_,     "-p",  "the weir in the river", "-n", "24", "--ignore-eos",
                     "--seed", "7",  "--memory", "1GiB"} +
           more;
  }
  std::string model_;
};

TEST_F(CliRun, HelpIsOnStdoutAndNoError) {
  const ProcessResult result = weir({"--help"});
  EXPECT_EQ(result.exit_code, 0);
  for (const char* command : {"run", "info", "plan", "bench", "verify", "tokenize", "perplexity"})
    EXPECT_NE(result.out.find(command), std::string::npos) << command;
}

TEST_F(CliRun, JsonIsOneLineWithEveryKey) {
  const nlohmann::json answer = json_answer(weir(arguments({"--json"})));
  for (const char* key : {"text", "tokens", "tokens_hash", "logits_hash", "timings", "experts", "memory"})
    EXPECT_TRUE(answer.contains(key)) << key;
  EXPECT_FALSE(answer.contains("ledger"));
  EXPECT_EQ(answer["tokens"].size(), 24u);
  for (const char* key : {"hits", "misses", "bytes_read"})
    EXPECT_TRUE(answer["experts"][key].is_number()) << key;
  for (const char* key : {"budget_bytes", "peak_bytes"})
    EXPECT_TRUE(answer["memory"][key].is_number()) << key;
  for (const char* key :
       {"prompt_n", "prompt_ms", "prompt_per_second", "predicted_n", "predicted_ms", "predicted_per_second"})
    EXPECT_TRUE(answer["timings"][key].is_number()) << key;
  EXPECT_EQ(answer["timings"]["predicted_steps"], 23);
}

TEST_F(CliRun, MoreThan128ExpertsATokenRunAndAreNoSecretForAGpu) {
  TinyModelOptions options;
  options.layers = 1, options.experts = 256, options.top_k = 129;
  options.hidden = 32, options.heads = 2, options.kv_heads = 1;
  model_ = tiny(options);
  EXPECT_EQ(json_answer(weir(arguments({"--json"})))["tokens"].size(), 24u);
  EXPECT_EQ(weir({"plan", "-m", model_, "--memory", "1GiB"}).exit_code, 0);
  EXPECT_TRUE(json_answer(weir({"info", model_, "--json"}))["unsupported"].empty());
  const auto lines = json_answer(weir({"info", model_, "--json", "--device", "cuda:0"}))["unsupported"];
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_NE(lines[0].get<std::string>().find("129 experts used for a token: a GPU takes up to 128"),
            std::string::npos);
  expect_refused(weir({"plan", "-m", model_, "--memory", "1GiB", "--device", "cuda:0"}), {"cuda:0"});
  expect_refused(weir({"info", model_, "--device", "tpu"}), {"--device", "tpu"});
}

TEST_F(CliRun, LogitsAreHashedOnlyWhereAsked) {
  const nlohmann::json plain = json_answer(weir(arguments({"--json"})));
  const nlohmann::json hashed = json_answer(weir(arguments({"--json", "--hash-logits"})));
  EXPECT_TRUE(plain["logits_hash"].is_null());
  EXPECT_EQ(hashed["logits_hash"].get<std::string>().size(), 16u);
  EXPECT_EQ(hashed["tokens_hash"], plain["tokens_hash"]);
  expect_refused(weir(arguments({"--hash-logits"})), {"--hash-logits", "--json"});
}

TEST_F(CliRun, AWarningIsSaidOnceHoweverOftenTheModelIsOpened) {
  gguf::Writer writer = tiny_model();
  writer.set("tokenizer.ggml.merges", std::vector<std::string>{"zz qq"});
  model_ = dir_.file("odd.gguf");
  writer.write(model_);
  const ProcessResult result = weir({"verify", "--quick", "-m", model_, "--memory", "1GiB"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  size_t warnings = 0;
  for (const std::string& line : lines_of(result.err)) warnings += line.rfind("weir: warning: ", 0) == 0;
  EXPECT_EQ(warnings, 1u) << result.err;
}

TEST_F(CliRun, StdoutIsTheTextThatJsonHolds) {
  const nlohmann::json answer = json_answer(weir(arguments({"--json"})));
  const ProcessResult plain = weir(arguments());
  EXPECT_EQ(plain.exit_code, 0);
  const std::string text = answer["text"];
  EXPECT_EQ(plain.out.substr(0, text.size()), text);
  EXPECT_LE(plain.out.size(), text.size() + 1);  // at most a final newline
}

TEST_F(CliRun, LedgerChangesNothingOnStdout) {
  const ProcessResult off = weir(arguments());
  ASSERT_EQ(off.exit_code, 0) << off.err;
  EXPECT_NE(off.out, "");
  for (const char* every : {"0", "1", "16"})
    EXPECT_EQ(weir(arguments({"--ledger", every})).out, off.out) << every;
  const ProcessResult json =
      weir(arguments({"--ledger-json", dir_.file("ledger.json"), "--trace", dir_.file("trace.json")}));
  EXPECT_EQ(json.out, off.out);
  for (const char* file : {"ledger.json", "trace.json"})
    EXPECT_TRUE(nlohmann::json::accept(read_file(dir_.file(file)))) << file;
}

TEST_F(CliRun, LedgerReportIsOnStderrOnlyWhenOn) {
  EXPECT_EQ(weir(arguments()).err.find("unattributed"), std::string::npos);
  EXPECT_NE(weir(arguments({"--ledger", "16"})).err.find("unattributed"), std::string::npos);
  EXPECT_TRUE(json_answer(weir(arguments({"--ledger", "16", "--json"}))).contains("ledger"));
}

TEST_F(CliRun, JunkInTheEnvironmentIsOffWithAWarning) {
  ProcessOptions options;
  options.environment = {{"WEIR_LEDGER", "loud"}};
  const ProcessResult result = weir(arguments(), options);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_NE(result.err.find("loud"), std::string::npos);
  EXPECT_EQ(result.err.find("unattributed"), std::string::npos);
}

TEST_F(CliRun, AnswerDoesNotDependOnHowItIsComputed) {
  const nlohmann::json base = json_answer(weir(arguments({"--json"})));
  const std::vector<Arguments> cells{
      {"-t", "1"},
      {"-t", "2"},
      {"--prefill-chunk", "1"},
      {"--prefill-chunk", "7"},
      {"--expert-slots", "2"},
      {"--expert-slots", "3"},
      {"--expert-slots", "8"},
      {"--expert-policy", "lru", "--expert-slots", "3"},
      {"--io", "buffered", "--expert-slots", "2"},
      {"--io", "buffered", "--read-advice", "bounded", "--expert-slots", "2"},
      {"--ledger", "1"},
  };
  for (const Arguments& cell : cells) {
    const nlohmann::json answer = json_answer(weir(arguments(cell + Arguments{"--json"})));
    SCOPED_TRACE(cell[0] + " " + cell[1]);
    EXPECT_EQ(answer["tokens"], base["tokens"]);
    EXPECT_EQ(answer["tokens_hash"], base["tokens_hash"]);
    EXPECT_EQ(answer["logits_hash"], base["logits_hash"]);
  }
}

TEST_F(CliRun, AnotherSeedGivesAnotherAnswer) {
  const nlohmann::json one = json_answer(weir(arguments({"--json"})));
  const nlohmann::json two = json_answer(weir(arguments({"--json", "--seed", "8"})));
  EXPECT_NE(one["tokens_hash"], two["tokens_hash"]);
}

TEST_F(CliRun, FewSlotsMissMoreThanAllSlots) {
  const nlohmann::json few = json_answer(weir(arguments({"--json", "--expert-slots", "2"})));
  const nlohmann::json all = json_answer(weir(arguments({"--json", "--expert-slots", "8"})));
  EXPECT_GT(few["experts"]["misses"], all["experts"]["misses"]);
  EXPECT_GT(few["experts"]["bytes_read"], all["experts"]["bytes_read"]);
}

TEST_F(CliRun, RandomSeedIsPrinted) {
  const Arguments unseeded{"run", "-m", tiny(), "-p", "the", "-n", "2", "--memory", "1GiB"};
  EXPECT_NE(weir(unseeded).err.find("seed"), std::string::npos);
}

TEST_F(CliRun, LogitsFileHoldsEveryEvaluatedPosition) {
  const nlohmann::json answer = json_answer(weir(arguments({"--json", "--logits", dir_.file("logits")})));
  const size_t positions = answer["timings"]["prompt_n"].get<size_t>() + answer["tokens"].size() - 1;
  const size_t row = static_cast<size_t>(tiny_vocabulary_size()) * sizeof(float);
  EXPECT_EQ(std::filesystem::file_size(dir_.file("logits")), 16 + positions * row);  // docs/json.md
}

TEST_F(CliRun, DenseModelRuns) {
  const Arguments dense{"run",      "-m",           tiny(tiny_dense_options()),
                        "-p",       "the",          "-n",
                        "8",        "--ignore-eos", "--greedy",
                        "--memory", "1GiB",         "--json"};
  const nlohmann::json answer = json_answer(weir(dense));
  EXPECT_EQ(answer["tokens"].size(), 8u);
  EXPECT_EQ(answer["experts"]["misses"], 0);
}

TEST_F(CliRun, InterruptEndsCleanlyWithWhatWasGenerated) {
  ProcessOptions options;
  options.on_first_output = [](pid_t pid) { kill(pid, SIGINT); };
  const Arguments endless{"run",  "-m", pocket_model(), "-p",           "The river", "-n",
                          "1900", "-c", "2048",         "--ignore-eos", "--seed",    "1"};
  const ProcessResult result = weir(endless, options);
  EXPECT_FALSE(result.timed_out);
  EXPECT_EQ(result.signal, 0) << result.err;
  EXPECT_TRUE(result.exit_code == 0 || result.exit_code == 130) << result.exit_code << ": " << result.err;
  EXPECT_NE(result.out, "");
  EXPECT_LT(result.out.size(), 1900u);
}

TEST_F(CliRun, OtherCommandsAnswerInOneLineOfJson) {
  const std::string model = tiny();
  const nlohmann::json info = json_answer(weir({"info", "-m", model, "--json"}));
  EXPECT_EQ(info["architecture"], "qwen3moe");
  json_answer(weir({"plan", "-m", model, "--memory", "1GiB", "--json"}));
  const nlohmann::json tokens = json_answer(weir({"tokenize", "-m", model, "-p", "the weir", "--json"}));
  EXPECT_FALSE(tokens.empty());
}

TEST_F(CliRun, PlanRefusesWhatRunRefuses) {
  const std::string model = tiny();
  expect_refused(weir({"plan", "-m", model, "--memory", "64KiB"}), {"64"});
  expect_refused(weir({"run", "-m", model, "-p", "the", "--memory", "64KiB"}), {"64"});
}

}  // namespace
}  // namespace weir::test
