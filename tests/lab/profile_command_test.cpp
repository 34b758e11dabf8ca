// weir profile and weir verify as a user runs them.
#include <algorithm>
#include <fstream>

#include "cli/weir.h"
#include "lab/prompts.h"

namespace weir::test {
namespace {

class LabCommand : public Cli {
 protected:
  std::string prompt_file(const std::string& text) {
    std::ofstream(dir_.file("prompt.txt")) << text;
    return dir_.file("prompt.txt");
  }
};

TEST_F(LabCommand, ProfileOfTheFrozenPromptsAddsUpAndItsReplayCountsAsTheEngine) {
  const auto result = weir({"profile", "-m", pocket_model(), "--expert-slots", "8", "-c", "640", "-n", "16",
                            "--memory", "256MiB", "--json"});
  const auto json = json_answer(result);
  ASSERT_EQ(json["prompts"].size(), 3u);
  EXPECT_EQ(json["prompts"][0]["prompt_tokens"], 68);
  EXPECT_EQ(json["prompts"][2]["text_tokens"], 3111);
  EXPECT_EQ(json["prompts"][2]["prompt_tokens"], 624);
  EXPECT_NE(result.err.find("long has 3111 tokens: cut to the first 624"), std::string::npos) << result.err;
  uint64_t sum = 0;
  for (const auto& role : json["decode"]["roles"]) sum += role["ns"].get<uint64_t>();
  EXPECT_EQ(sum, json["decode"]["wall_ns"].get<uint64_t>());
  EXPECT_EQ(json["decode"]["tokens"], 3 * 15);
  EXPECT_GE(json["decode"]["coverage"].get<double>(), 0.99);
  const auto& curve = json["slot_curve"];
  const auto used =
      std::find_if(curve.begin(), curve.end(), [](const auto& p) { return p["expert_slots"] == 8; });
  ASSERT_NE(used, curve.end());
  EXPECT_EQ((*used)["hits"], json["decode"]["hits"]);
  EXPECT_EQ((*used)["misses"], json["decode"]["misses"]);
  EXPECT_LT(curve.back()["misses"], (*used)["misses"]);
}

TEST_F(LabCommand, ProfileOfAnOwnPromptPrintsTextAndMarkdown) {
  const Arguments common{"profile", "-m", tiny(), "--prompts", prompt_file("a small prompt"), "-n", "40"};
  const auto text = weir(common);
  EXPECT_EQ(text.exit_code, 0) << text.err;
  EXPECT_NE(text.out.find("Largest block"), std::string::npos) << text.out;
  EXPECT_EQ(text.out.find("DIFFER"), std::string::npos) << text.out;
  const auto markdown = weir(common + Arguments{"--markdown"});
  EXPECT_NE(markdown.out.find("| role |"), std::string::npos) << markdown.out;
}

TEST_F(LabCommand, WhatIfPrintsARowForEachRole) {
  const auto result = weir({"profile", "-m", tiny(), "--prompts", prompt_file("a small prompt"), "-n", "24",
                            "--what-if", "--runs", "2", "--delay-us", "300", "--json"});
  const auto json = json_answer(result);
  EXPECT_EQ(json["schema"], "weir-what-if-1");
  ASSERT_GE(json["roles"].size(), 5u);
  EXPECT_TRUE(json["roles"][0]["criticality"].is_object());
  double before = 1e9;
  for (const auto& role : json["roles"]) {
    if (role["criticality"].is_null()) break;  // those without a figure are last
    const double worth = role["share"].get<double>() * role["criticality"]["slope"].get<double>();
    EXPECT_LE(worth, before) << json["roles"];
    before = worth;
  }
  EXPECT_EQ(json["advice"].get<std::string>().rfind("Advice: ", 0), 0u) << json["advice"];
}

TEST_F(LabCommand, ARoleThatNeverRanIsNamedWithThoseThatDid) {
  const Arguments common{"profile",    "-m", tiny(),      "--prompts", prompt_file("a small prompt"),
                         "-n",         "16", "--what-if", "--runs",    "2",
                         "--delay-us", "50", "--role",    "recurrent"};
  expect_refused(weir(common),
                 {"--role", "recurrent never ran", "roles that ran are embed, attention, router"});
  const auto some = weir(common + Arguments{"--role", "head"});
  EXPECT_EQ(some.exit_code, 0) << some.err;
  EXPECT_NE(some.err.find("warning: --role: recurrent never ran"), std::string::npos) << some.err;
  EXPECT_NE(some.out.find("Not in the table: recurrent never ran"), std::string::npos) << some.out;
  const auto json = json_answer(weir(common + Arguments{"--role", "head", "--json"}));
  EXPECT_EQ(json["never_ran"], nlohmann::json::array({"recurrent"}));
  EXPECT_EQ(json["roles"].size(), 1u);
}

TEST_F(LabCommand, BadPromptsAreRefusedInOneLine) {
  const std::string model = tiny();
  expect_refused(weir({"profile", "-m", model, "--prompts", prompt_file("")}), {"prompt.txt", "empty"});
  expect_refused(
      weir({"profile", "-m", model, "-c", "64", "-n", "8", "--prompts", prompt_file(std::string(99, 'x'))}),
      {"prompt.txt", "context of 64"});
  expect_refused(weir({"profile", "-m", model, "--prompts", dir_.file("none")}), {"none"});
  expect_refused(weir({"profile", "-m", model, "-c", "64", "-n", "64"}), {"-n 64"});
  expect_refused(weir({"profile", "-m", model, "--json", "--markdown"}), {"--json"});
  expect_refused(weir({"profile", "-m", model, "--what-if", "--role", "bogus"}), {"--role", "bogus"});
  expect_refused(weir({"profile", "-m", model, "--frobnicate"}), {"--frobnicate"});
}

TEST_F(LabCommand, ATextThatIsNotUtf8IsNamedWithItsByte) {
  const std::string model = tiny(), text = prompt_file("abc\xc3(");
  const std::vector<std::string> words{"prompt.txt is not valid UTF-8 at byte 3 (0xc3)", "expected UTF-8"};
  expect_refused(weir({"profile", "-m", model, "--prompts", text}), words);
  expect_refused(weir({"profile", "-m", model, "--prompts", dir_.path().string()}), words);
  expect_refused(weir({"verify", "-m", model, "-c", "256", "--quick", "-f", text}), words);
}

TEST_F(LabCommand, OptionsOfWhatIfAreRefusedWithoutIt) {
  const std::vector<Arguments> ignored = {{"--role", "head"}, {"--runs", "4"}, {"--delay-us", "0"}};
  for (const Arguments& option : ignored)
    expect_refused(weir(Arguments{"profile", "-m", pocket_model()} + option), {option[0], "--what-if"});
}

TEST_F(LabCommand, QuickVerifyIsEqualAndReportsAPlantedFaultWithItsPlace) {
  const std::string model = tiny();
  const auto clean = json_answer(weir({"verify", "-m", model, "-c", "256", "--quick", "--json"}));
  EXPECT_EQ(clean["different"], 0);
  EXPECT_GE(clean["cells"].size(), 10u);
  const auto planted = weir({"verify", "-m", model, "-c", "256", "--quick", "--plant-fault", "threads 1"});
  EXPECT_EQ(planted.exit_code, 1);
  EXPECT_NE(planted.out.find("DIFFERENT"), std::string::npos);
  EXPECT_NE(planted.out.find("layer 1, attention"), std::string::npos) << planted.out;
  EXPECT_NE(planted.out.find("1 different"), std::string::npos) << planted.out;
  expect_refused(weir({"verify", "-m", model, "--plant-fault", "nonsense"}), {"nonsense", "threads 1"});
}

}  // namespace
}  // namespace weir::test
