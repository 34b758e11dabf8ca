// Every command that computes, on a file with a damaged expert: exit code 2, the expert named, and no file
// left that looks whole.
#include "cli/weir.h"
#include "support/damage.h"

namespace weir::test {
namespace {

class CliNotFinite : public Cli {
 protected:
  void SetUp() override {
    Cli::SetUp();
    model_ = tiny();
    for (int expert = 1; expert < 8; ++expert) damage(model_, "blk.1.ffn_down_exps.weight", 64 * expert);
    write_file(text_, std::string(200, 'a') + " the weir in the river holds it to a level, and so on.\n");
  }
  void expect_named(const Arguments& arguments) {
    SCOPED_TRACE(arguments.front());
    expect_refused(weir(arguments + Arguments{"-m", model_, "--memory", "1GiB"}),
                   {"finite", "tensor blk.1.ffn_down_exps.weight, expert 1 holds a NaN"});
    std::vector<std::string> left;
    for (const auto& entry : std::filesystem::directory_iterator(dir_.path()))
      if (entry.path() != model_ && entry.path() != text_) left.push_back(entry.path().filename());
    EXPECT_EQ(left, std::vector<std::string>{});
  }
  Arguments files() const {
    return {"--ledger-json",    dir_.file("ledger"), "--trace",
            dir_.file("trace"), "--route-trace",     dir_.file("routes")};
  }
  std::string model_, text_ = dir_.file("text.txt");
};

TEST_F(CliNotFinite, RunFailsAndLeavesNoFile) {
  const Arguments run{"run", "-f", text_, "--greedy", "--logits", dir_.file("logits")};
  expect_named(run + files() + Arguments{"-n", "4"});
  expect_named(run + files() + Arguments{"-n", "0"});
}

TEST_F(CliNotFinite, TheJsonOfARunSaysThatItFailed) {
  const ProcessResult result =
      weir({"run", "-m", model_, "-f", text_, "-n", "4", "--json", "--memory", "1GiB"});
  EXPECT_EQ(result.exit_code, 2);
  const auto json = nlohmann::json::parse(result.out);
  EXPECT_EQ(json["finish"], "failed");
  EXPECT_EQ(json["tokens"].size(), 0u);
  EXPECT_NE(json["error"].get<std::string>().find("expert 1"), std::string::npos);
}

TEST_F(CliNotFinite, PerplexityFailsAndLeavesNoFile) {
  expect_named(Arguments{"perplexity", "-f", text_, "-c", "64", "--json"} + files());
}

TEST_F(CliNotFinite, BenchFailsWithoutADecodeTestToo) {
  expect_named(Arguments{"bench", "-p", "64", "-n", "4", "-r", "1", "--json"} + files());
  expect_named(Arguments{"bench", "-p", "64", "-n", "0", "-r", "1", "--json"} + files());
  expect_named(Arguments{"bench", "-p", "0", "-n", "4", "-r", "1"} + files());
}

TEST_F(CliNotFinite, VerifyFailsAndSkipsNothing) { expect_named({"verify", "--quick", "--json"}); }

TEST_F(CliNotFinite, ProfileFails) {
  expect_named({"profile", "-n", "8", "--json"});
  expect_named({"profile", "--what-if", "-n", "8", "--runs", "2", "--json"});
}

TEST_F(CliNotFinite, AbFails) {
  expect_named({"ab", "--a", "-t 1", "--b", "-t 2", "--prompts", text_, "--pairs", "6", "-n", "4", "--json",
                "--out", dir_.file("observations.json")});
}

}  // namespace
}  // namespace weir::test
