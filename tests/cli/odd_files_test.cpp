// Files with one odd thing each, as converters and finetunes in the wild make them (tests/odd/odd_gguf.py):
// what a file asks for is done, or it is refused by name, in run, plan and info alike.
#include <gmock/gmock.h>

#include <algorithm>
#include <optional>

#include "cli/weir.h"

namespace weir::test {
namespace {

/// What is right for a file: a perplexity, or a refusal that holds all words, or that it runs.
struct OddFile {
  const char* name;
  std::optional<double> perplexity = {};
  std::vector<std::string> refused = {};
  const char* warning = nullptr;  ///< on stderr, once
};
void PrintTo(const OddFile& file, std::ostream* out) { *out << file.name; }

// Perplexities: odd_gguf.py --perplexity, and for YaRN llama.cpp's.
const OddFile odd_files[] = {
    {"bias-qwen3moe", 25803.93},
    {"bias-qwen3", 32922.67},
    {"shared-expert", {}, {"tensor blk.0.ffn_gate_shexp.weight is not used by qwen3moe"}},
    {"probs-bias", {}, {"tensor blk.0.exp_probs_b.bias is not used by qwen3moe"}},
    {"sinks", {}, {"tensor blk.0.attn_sinks.weight is not used by qwen3moe"}},
    {"output-bias", {}, {"tensor output.bias is not used by qwen3moe"}},
    {"third-layer", {}, {"tensor blk.2.attn_norm.weight is of layer 2", "block_count is 2"}},
    {"padded-head"},
    {"top-129"},
    {"linear", 20721.2},
    {"yarn", 22744.97},
    {"kv-array", 8461.17},
    {"heads-array", 8461.17},
    {"ff-array", 8461.17},
    {"bos-out-of-range", 8461.17, {}, "bos_token_id"},
    {"pre-deepseek-r1-qwen", 8461.17},
    {"no-expert-ff", 8461.17},
    {"non-causal", {}, {"qwen3moe.attention.causal is false"}},
};

class CliOddFiles : public Cli, public testing::WithParamInterface<OddFile> {
 protected:
  /// Where all of them lie; written once for the whole program.
  static const TempDir& folder() {
    static const TempDir written;
    static const ProcessResult made = [] {
      ProcessOptions options;
      options.command = {"/usr/bin/python3", std::string(WEIR_SOURCE_DIR) + "/tests/odd/odd_gguf.py", "--all",
                         written.path().string()};
      return run_process(options);
    }();
    EXPECT_EQ(made.exit_code, 0) << made.err;
    return written;
  }
  std::string model() const { return folder().file(std::string(GetParam().name) + ".gguf"); }
  ProcessResult run(const Arguments& more) const {
    return weir(Arguments{"run", "-m", model(), "-p", "the", "--memory", "1GiB", "-t", "1"} + more);
  }

  void expect_refusals() const {
    const auto& words = GetParam().refused;
    expect_refused(run({"-n", "4"}), words);
    expect_refused(weir({"plan", "-m", model(), "--memory", "1GiB"}), words);
    const ProcessResult info = weir({"info", "-m", model()});
    EXPECT_EQ(info.exit_code, 0) << info.err;
    EXPECT_THAT(info.out, testing::HasSubstr("supported: no: " + words.front()));
    EXPECT_THAT(info.out, testing::Not(testing::HasSubstr("supported: yes")));
  }

  void expect_perplexity(double right) const {
    const nlohmann::json answer =
        json_answer(weir({"perplexity", "-m", model(), "-f", folder().file("text.txt"), "-c", "64",
                          "--chunks", "4", "--memory", "1GiB", "-t", "1", "--json"}));
    ASSERT_TRUE(answer.contains("perplexity")) << answer;
    EXPECT_NEAR(answer["perplexity"].get<double>() / right, 1, 1e-3) << answer["perplexity"];
  }
};

TEST_P(CliOddFiles, AreDoneOrRefusedByName) {
  const OddFile& file = GetParam();
  if (!file.refused.empty()) return expect_refusals();
  const ProcessResult ran = run({"-n", "4", "--greedy"});
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_THAT(weir({"info", "-m", model()}).out, testing::HasSubstr("supported: yes"));
  if (file.perplexity) expect_perplexity(*file.perplexity);
  if (file.warning) {
    EXPECT_THAT(lines_of(ran.err), testing::Contains(testing::AllOf(testing::HasSubstr("warning"),
                                                                    testing::HasSubstr(file.warning)))
                                       .Times(1));
  }
}

INSTANTIATE_TEST_SUITE_P(, CliOddFiles, testing::ValuesIn(odd_files), [](const auto& test) {
  std::string name = test.param.name;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

/// Of one file among them.
class CliOddFile : public CliOddFiles {};
INSTANTIATE_TEST_SUITE_P(PaddedHead, CliOddFile, testing::Values(odd_files[7]));

TEST_P(CliOddFile, NeverChoosesIdsAboveTheTokenizer) {
  for (const Arguments& how : {Arguments{"--greedy"}, Arguments{"--temp", "3", "--seed", "1"}}) {
    const nlohmann::json answer = json_answer(run(how + Arguments{"-n", "200", "--json", "--ignore-eos"}));
    ASSERT_TRUE(answer.contains("tokens")) << answer;
    for (const int token : answer["tokens"]) EXPECT_LT(token, 263);
  }
}

}  // namespace
}  // namespace weir::test
