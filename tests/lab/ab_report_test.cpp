// The observations file and the reports: nothing is lost on the way, and bad files are refused in one line.
#include "lab/ab/report.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "lab/ab/arms_table.h"
#include "lab/ab/observations.h"
#include "lab/ab/role_table.h"
#include "lab/ab/schedule.h"
#include "lab/ab/synthetic.h"
#include "support/temp_dir.h"

namespace weir::lab::ab {
namespace {

using Json = nlohmann::ordered_json;

Experiment experiment(double effect = .02) {
  Experiment e = synthetic_experiment(12, 4, {effect, .005, {}, 11});
  e.observations.back().start.page_cache_bytes.reset();
  return e;
}

TEST(AbObservations, FileGivesTheSameReportAndVerdict) {
  const test::TempDir dir;
  const Experiment e = experiment();
  write_observations(e, dir.file("ab.json"));
  const Experiment back = read_observations(dir.file("ab.json"));
  EXPECT_EQ(report_text(back, judge(back)), report_text(e, judge(e)));
  EXPECT_EQ(report_json(back, judge(back)).dump(), report_json(e, judge(e)).dump());
  EXPECT_EQ(judge(back).outcome, Outcome::faster);
}

std::string error_of(const Json& json) {
  try {
    from_json(json, "x.json");
  } catch (const Error& e) {
    EXPECT_EQ(e.exit_code(), 2);
    return e.what();
  }
  return "accepted";
}

TEST(AbObservations, BadFieldsAreNamed) {
  const Json good = to_json(experiment());
  EXPECT_EQ(error_of(good), "accepted");
  struct Case {
    const char* pointer;
    Json value;
    const char* words;
  };
  const Case cases[] = {
      {"/schema", "other", "schema"},
      {"/schema", "weir-ab-1", "each arm was opened once"},
      {"/design/runs", 0, "expected 1 to"},
      {"/design/pilot_openings", 3, "even"},
      {"/observations/2/opening", -1, "expected 0 to"},
      {"/design/pairs", "12", "x.json: design: pairs"},
      {"/design/pairs", 7, "even"},
      {"/design/pairs", -1, "expected 0 to"},
      {"/design/prompts", Json::array(), "at least one"},
      {"/design/metric", "speed", "expected decode, prefill, total, figure or command"},
      {"/design/fingerprint", "xyz", "16 hexadecimal digits"},
      {"/setting/same_slots", 1, "true or false"},
      {"/setting/roles", {"attention", 3}, "strings"},
      {"/observations", 3, "array"},
      {"/observations/2", 3, "observation 3: expected an object"},
      {"/observations/2/value", 0, "above 0"},
      {"/observations/2/value", -1.5, "above 0"},
      {"/observations/2/value", 12.5, "observation 3: value: 12.5: expected metric_ns in milliseconds, "},
      {"/observations/2/metric_ns", 12'500'000u, "expected metric_ns in milliseconds, 12.5"},
      {"/design/commands", true, "metric: decode: expected figure or command"},
      {"/design/higher_is_better", true, "higher_is_better: true: expected false"},
      {"/design/metric", "figure", "metric: figure: expected decode, prefill or total"},
      {"/observations/2/prompt", 1, "expected 0 to 0"},
      {"/observations/2/arm", "C", "expected A or B"},
      {"/observations/2/hits", -3, "0 or above"},
      {"/observations/2/misses", 1ull << 63, "expected 0 to 2^56"},
      {"/observations/2/peak_bytes", 1ull << 63, "expected 0 to 2^56"},
      {"/observations/2/took_s", -1, "took_s: -1: expected 0 to 1e9 seconds"},
      {"/observations/2/took_s", 1e308, "expected 0 to 1e9 seconds"},
      {"/design/negative_control", "zzz", "expected one of the setting's roles"},
      {"/observations/2/wall_ns", 1u, "metric_ns: "},
      {"/observations/2/unattributed_ns", 1ull << 60,
       "unattributed_ns: 1152921504606846976: expected at most wall_ns"},
      {"/observations/2/started_s", -1, "started_s: -1: expected no less than the run before it"},
      {"/observations/2/tokens", 1000, "tokens: 1000: expected at most the design's predict, 64"},
      {"/observations/2/start_filled", 65u, "start_filled: 65: expected at most start_slots, 64"},
      {"/observations/2/role_ns", {1u, 2u}, "one for each of 4 roles"},
      {"/observations/2/role_ns", {1u, 2u, 3u, 4u}, "add up to 10"},
  };
  for (const auto& c : cases) {
    Json bad = good;
    bad[Json::json_pointer(c.pointer)] = c.value;
    const std::string error = error_of(bad);
    EXPECT_NE(error.find(c.words), std::string::npos) << c.pointer << ": " << error;
    EXPECT_EQ(error.rfind("x.json", 0), 0u) << error;
    EXPECT_EQ(error.find('\n'), std::string::npos) << error;
  }
}

TEST(AbObservations, AFigureNeedsNotBeATime) {
  Json figures = to_json(experiment());
  figures["design"]["commands"] = true;
  figures["design"]["metric"] = "figure";
  figures["observations"][2]["value"] = 12.5;
  EXPECT_EQ(error_of(figures), "accepted");
  figures["design"]["metric"] = "command";
  EXPECT_NE(error_of(figures).find("expected metric_ns"), std::string::npos);
}

TEST(AbObservations, EveryMissingFieldIsNamed) {
  const Json good = to_json(experiment());
  for (const char* section : {"design", "setting"})
    for (const auto& [key, value] : good[section].items()) {
      Json bad = good;
      bad[section].erase(key);
      EXPECT_NE(error_of(bad).find(key + " is missing"), std::string::npos) << key;
    }
  for (const auto& [key, value] : good["observations"][0].items()) {
    if (key == "start_page_cache_bytes") continue;
    Json bad = good;
    bad["observations"][0].erase(key);
    if (key == "stolen_ns") {
      EXPECT_EQ(error_of(bad), "accepted") << "files from before it was recorded lack it";
      continue;
    }
    EXPECT_NE(error_of(bad).find(key + " is missing"), std::string::npos) << key;
  }
}

TEST(AbObservations, NotJsonIsRefused) {
  const test::TempDir dir;
  for (const char* text : {"", "{", "[1, 2]", "3"}) {
    test::write_file(dir.file("bad.json"), text);
    EXPECT_THROW(read_observations(dir.file("bad.json")), Error) << text;
  }
  EXPECT_THROW(read_observations(dir.file("none.json")), Error);
}

TEST(AbRoles, DifferencesAddUpToTheWholesExactly) {
  const Experiment e = experiment();
  const auto pairs = complete_pairs(e, RunKind::pair);
  const RoleTable table = role_table(e, pairs);
  ASSERT_EQ(table.rows.size(), 4u);
  int64_t sum = 0;
  uint64_t a = 0;
  for (const auto& row : table.rows) sum += row.difference_ns, a += row.a_ns;
  EXPECT_EQ(sum, table.whole.difference_ns);
  EXPECT_EQ(a, table.whole.a_ns);
  EXPECT_LT(sum, 0) << "B is faster";
  ASSERT_TRUE(table.rows[0].interval);
  EXPECT_LT(table.rows[0].interval->high, 0);
}

TEST(AbReport, ARefundShows) {
  Experiment e = experiment(.06);
  for (auto& o : e.observations)
    if (o.run.arm == Side::b) o.role_ns[1] += 4'000'000, o.role_ns[0] -= 4'000'000;  // it waits instead
  const std::string text = report_text(e, judge(e));
  EXPECT_NE(text.find("against the whole: expert_wait"), std::string::npos) << text;
}

std::string line_of(const std::string& text, const std::string& words) {
  const size_t at = text.find(words), end = text.find('\n', at);
  return at == std::string::npos ? "" : text.substr(at, end - at);
}

TEST(AbReport, SaysWhatWasFound) {
  const Experiment e = experiment();
  const std::string text = report_text(e, judge(e));
  for (const char* words :
       {"times A's decode speed", "95 % interval", "12 pairs of openings: B won 12",
        "sign-flip test p = 0.0005", "null pairs", "roles, ms a run", "peak memory", "seed       4"})
    EXPECT_NE(text.find(words), std::string::npos) << words << "\n" << text;
  const Json json = report_json(e, judge(e));
  EXPECT_EQ(json["verdict"], "faster");
  EXPECT_EQ(json["sentence"], verdict_line(e, judge(e)));
  EXPECT_EQ(json["experiment"]["observations"].size(), 2u + 2 * (12 + 6));
  EXPECT_GT(json["estimate"]["ratio"], 1.01);
  EXPECT_EQ(json["exit_code"], 0);
}

TEST(AbReport, EveryRunIsShownOnRequestOnly) {
  const Experiment e = experiment();
  const std::string summary = report_text(e, judge(e)), all = report_text(e, judge(e), Detail::observations);
  for (const char* words : {"0123456789abcdef", "order of openings, seed 4"}) {
    EXPECT_EQ(summary.find(words), std::string::npos) << words;
    EXPECT_NE(all.find(words), std::string::npos) << words << "\n" << all;
  }
}

TEST(AbReport, TheOrderIsAWordForEachPair) {
  Design design = synthetic_design(6, 2, 3);
  for (const bool once : {false, true}) {
    design.open_once = once, design.runs = once ? 1 : 3;
    const Experiment e = synthetic_experiment(design, {.02, .005, {}, 11});
    const std::string line = line_of(report_text(e, judge(e), Detail::observations), "  (");
    std::string expected = "  (";
    const auto schedule = make_schedule(design);
    int block = -1, opening = -1;
    for (const auto& run : schedule) {
      if (run.kind == RunKind::pilot) {
        expected += name(run.arm);
        continue;
      }
      if (!once && run.opening == opening) continue;
      if (block < 0) expected += ')';
      if (run.block != block) expected += ' ';
      const bool null = run.kind == RunKind::null_pair;
      expected += run.arm == Side::a ? (null ? 'a' : 'A') : (null ? 'b' : 'B');
      block = run.block, opening = run.opening;
    }
    EXPECT_EQ(line, expected);
  }
}

TEST(AbReport, TheVerdictNamesBAndThePromptsFirstAndLast) {
  Experiment e = experiment();
  e.design.arms = {"--expert-policy lru", "--expert-policy lfu"};
  e.design.prompts.push_back({"other", 1, 10});
  e = synthetic_experiment(e.design, {.02, .005, {}, 11});
  const std::string text = report_text(e, judge(e));
  const std::string sentence = "verdict: B, --expert-policy lfu, is faster, on 2 prompts";
  EXPECT_EQ(text.rfind(sentence + "\n", 0), 0u) << text;
  EXPECT_EQ(text.rfind("\n" + sentence + "\n"), text.size() - sentence.size() - 2) << text;
  e.design.arms[1] = "";
  EXPECT_EQ(verdict_line(e, judge(e)), "verdict: B, without options of its own, is faster, on 2 prompts");
  e.design.arms[1] = std::string(200, 'x');
  EXPECT_EQ(verdict_line(e, judge(e)), "verdict: B is faster, on 2 prompts");
  e.design.open_once = true;
  e.design.arms[1] = "x";
  Verdict slower;
  slower.outcome = Outcome::slower;
  slower.estimate = Estimate{};
  EXPECT_EQ(
      verdict_line(e, slower),
      "verdict: B, x, is slower, on 2 prompts; one opening of each: a difference between openings is not "
      "covered");
}

TEST(AbReport, TheArmsTableAgreesWithTheVerdict) {
  // Null pairs and the pilot are far off: they are no part of it.
  Design design = synthetic_design(12, 4, 2);
  design.negative_control.clear();
  design.prompts.push_back({"other", 1, 10});
  Experiment e = synthetic_experiment(design, {.1, .005, {.opening = .01}, 11});
  for (auto& o : e.observations) {
    o.tokens_hash = static_cast<uint64_t>(o.run.prompt), o.start.fingerprint = o.tokens_hash;
    if (o.run.prompt == 1) o.value *= 3, o.hits = 100, o.bytes_read = 4000;
    if (o.run.kind != RunKind::pair) o.value *= 10, o.hits = 0, o.bytes_read = 1 << 30;
  }
  const ArmsTable table = arms_table(e);
  const Verdict v = judge(e);
  ASSERT_TRUE(v.estimate) << report_text(e, v);
  EXPECT_NEAR(std::log(table.whole.arms[0].mean_value / table.whole.arms[1].mean_value),
              v.estimate->log_ratio, 1e-9);
  EXPECT_NEAR(table.whole.log_ratio, v.estimate->log_ratio, 1e-12);
  EXPECT_EQ(table.whole.arms[0].runs, 24);
  ASSERT_EQ(table.prompts.size(), 2u);
  double mean = 0;
  for (const auto& row : table.prompts) {
    EXPECT_NEAR(std::log(row.arms[0].mean_value / row.arms[1].mean_value), row.log_ratio, 1e-9);
    mean += row.pairs * row.log_ratio / 12;
  }
  EXPECT_NEAR(mean, v.estimate->log_ratio, 1e-12);
  EXPECT_DOUBLE_EQ(table.prompts[0].arms[0].hit_rate, .9);
  EXPECT_DOUBLE_EQ(table.prompts[1].arms[0].hit_rate, .5);
  EXPECT_EQ(table.prompts[1].arms[1].mean_bytes_read, 4000u);
  const std::string text = report_text(e, v);
  const std::string ratio = fmt::format("{:.4f}", std::exp(v.estimate->log_ratio));
  EXPECT_NE(line_of(text, "  B has").find(ratio), std::string::npos) << text;
  const size_t all = text.find("\nall ");
  ASSERT_NE(all, std::string::npos) << text;
  EXPECT_NE(text.find(ratio, all), std::string::npos) << text;
}

TEST(AbReport, ARefusalHasReasonsAndRunsButNoRatio) {
  Experiment e = experiment();
  e.design.seed = 5;
  const std::string text = report_text(e, judge(e));
  EXPECT_EQ(text.find("times A's"), std::string::npos) << text;
  EXPECT_EQ(text.find("roles, ms"), std::string::npos) << text;
  EXPECT_NE(text.find("verdict: REFUSED"), std::string::npos);
  EXPECT_NE(text.find("is not the one that seed 5 gives"), std::string::npos);
  const std::string all = report_text(e, judge(e), Detail::observations);
  EXPECT_NE(all.find("0123456789abcdef"), std::string::npos) << "raw observations stay";
  const Json json = report_json(e, judge(e));
  EXPECT_TRUE(json["estimate"].is_null());
  EXPECT_TRUE(json["roles"].is_null());
}

TEST(AbReport, NothingResolvedNamesTheSmallestEffect) {
  const Experiment e = experiment(0);
  const std::string text = report_text(e, judge(e));
  EXPECT_NE(text.find("no difference resolved"), std::string::npos);
  EXPECT_NE(text.find("or more would have been"), std::string::npos);
}

TEST(AbReport, SaysThatTokensWereAllowedToDiffer) {
  Experiment e = experiment();
  e.design.allow_different_tokens = true;
  EXPECT_NE(report_text(e, judge(e)).find("tokens were allowed to differ"), std::string::npos);
}

}  // namespace
}  // namespace weir::lab::ab
