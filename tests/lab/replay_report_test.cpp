// What is read of a replay: tables, JSON, the curve, the advice for a budget, and the ledger it predicts
// with.
#include "lab/replay_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "lab/read_cost.h"
#include "lab/replay_trace.h"
#include "lab/slot_advice.h"
#include "support/temp_dir.h"

namespace weir::lab {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

ReplayReport report_of(const RouteTrace& trace, const WaitModel& wait = {}) {
  const Demand demand = make_demand(trace);
  ReplayReport report;
  report.trace = "some/<my> & trace";
  report.header = trace.header;
  report.phase = Phase::decode;
  report.tokens = demand.tokens;
  report.rounds = demand.rounds;
  report.wait = wait;
  if (wait.bytes_per_second > 0) report.rate_source = "as given";
  ReplayOptions options;
  options.slots = {2, 4, 8};
  options.phase = report.phase;
  options.wait = wait;
  report.rows = replay(demand, options);
  report.routing = routing_profile(trace, report.phase);
  return report;
}

int occurrences(const std::string& text, const std::string& what) {
  int n = 0;
  for (size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += what.size()) ++n;
  return n;
}

TEST(ReplayReport, TextHoldsEveryRowAndSaysWhyNoWaitIsPredicted) {
  const ReplayReport report = report_of(test::random_trace({}));
  const std::string text = replay_text(report);
  EXPECT_THAT(text, HasSubstr("2 layers of 8 experts, 2 for each token"));
  EXPECT_THAT(text, HasSubstr("no waits are predicted"));
  EXPECT_THAT(text, Not(HasSubstr("us/token")));
  EXPECT_EQ(occurrences(text, "  belady "), 3);
  for (const ReplayRow& row : report.rows)
    EXPECT_THAT(text, HasSubstr(fmt::format("{:.2f} %", 100 * row.total.hit_rate())));
  WaitModel wait;
  wait.bytes_per_second = 2e9;
  EXPECT_THAT(replay_text(report_of(test::random_trace({}), wait)), HasSubstr("waits are upper bounds"));
}

TEST(ReplayReport, JsonHoldsTheFigures) {
  WaitModel wait;
  wait.bytes_per_second = 2e9;
  const ReplayReport report = report_of(test::random_trace({}), wait);
  const auto json = replay_json(report);
  EXPECT_EQ(json["phase"], "decode");
  EXPECT_EQ(json["tokens"], 200);
  ASSERT_EQ(json["rows"].size(), 9u);
  const auto& row = json["rows"][1];
  EXPECT_EQ(row["policy"], "lru");
  EXPECT_EQ(row["hits"], report.rows[1].total.hits);
  EXPECT_DOUBLE_EQ(row["bytes_per_token"].get<double>(),
                   static_cast<double>(report.rows[1].total.bytes) / 200);
  EXPECT_DOUBLE_EQ(row["exposed_ns_per_token"].get<double>(), row["bytes_per_token"].get<double>() / 2);
  EXPECT_EQ(row["layer_hit_rates"].size(), 2u);
  uint64_t uses = json["reuse"]["first_uses"];
  for (const auto& bucket : json["reuse"]["histogram"]) uses += bucket[1].get<uint64_t>();
  EXPECT_EQ(uses, 200u * 2 * 2);
}

TEST(ReplayReport, CurveHasALineForEachContenderAndEscapesItsTitle) {
  const std::string svg = replay_svg(report_of(test::random_trace({})));
  EXPECT_EQ(svg.rfind("<svg ", 0), 0u);
  EXPECT_EQ(occurrences(svg, "<polyline "), 3);
  EXPECT_EQ(occurrences(svg, "<circle "), 9 + 2) << "and where the curve reaches 80 and 90 %";
  EXPECT_THAT(svg, HasSubstr("&lt;my&gt; &amp; trace"));
  EXPECT_THAT(svg, HasSubstr("slots, KiB"));
  for (const char* label : {"LFU with ageing", "Belady bound", "hit rate", "100 %"})
    EXPECT_THAT(svg, HasSubstr(label));
  EXPECT_THAT(svg, Not(HasSubstr("nan")));
}

TEST(ReplayReport, CurveNamesTheModelAndMarksWhereTheFirstPolicyReaches80And90Percent) {
  ReplayReport report = report_of(test::random_trace({}));
  report.model_name = "A & B 30B";
  for (ReplayRow& row : report.rows) {
    row.total = {};
    row.total.hits = row.slots == 2 ? 50 : row.slots == 4 ? 85 : 99;
    row.total.misses = 100 - row.total.hits;
    if (row.contender.name() == std::string("belady")) row.total.hits = 100, row.total.misses = 0;
  }
  const std::string svg = replay_svg(report);
  EXPECT_THAT(svg, HasSubstr("A &amp; B 30B, "));
  EXPECT_THAT(svg, HasSubstr("80 %: 4 slots, "));
  EXPECT_THAT(svg, HasSubstr("90 %: 8 slots, "));
  report.rows.resize(6);  // 2 and 4 slots: 90 % is not reached
  EXPECT_THAT(replay_svg(report), Not(HasSubstr("90 %: ")));
}

// --- advice

ResidencyPlan small_plan(int slots) {
  PlanRequest r;
  r.budget_bytes = 1 << 20;
  r.budget_source = "--memory";
  r.expert_slots = slots;
  r.context = r.model_context = 64;
  r.weight_bytes = 10'000;
  r.top_k = 2;
  r.experts = {8, 8};
  r.slot_bytes = {2000, 2500};
  return make_plan(r);
}

/// Rounds are wider where the budget is worth them, as in an engine; scratch grows with them.
ResidencyPlan plan_of_budget(uint64_t budget) {
  ResidencyPlan plan = small_plan(3);
  PlanRequest r = plan.request;
  r.expert_slots.reset();
  r.budget_bytes = budget;
  const bool wide = budget >= 30'000;
  r.scratch_bytes = wide ? 9000 : 500;
  plan = make_plan(r);
  plan.prefill_chunk = wide ? 64 : 8;
  return plan;
}

TEST(BudgetAdvice, TheSmallestBudgetIsFoundThoughWiderRoundsTakeSlots) {
  constexpr uint64_t least = 10'500 + 2 * 4500;
  EXPECT_LT(plan_of_budget(30'000).slots, plan_of_budget(29'999).slots);
  for (int slots = 2; slots <= 8; ++slots) {
    uint64_t budget = least;
    while (plan_of_budget(budget).slots < slots) budget += 100;  // of which every item is a multiple
    const ResidencyPlan found = smallest_plan(plan_of_budget, least, slots);
    EXPECT_EQ(found.request.budget_bytes, budget) << slots;
    EXPECT_GE(found.slots, slots);
    if (slots > 2) {
      EXPECT_LT(plan_of_budget(budget - 1).slots, slots);
    }
  }
}

AdviceRequest advice_request(ExpertPolicy policy) { return {"t", "weir run -m x", policy}; }

/// The engine's, with rounds of one width.
ResidencyPlan one_width(uint64_t budget) {
  PlanRequest r = small_plan(3).request;
  r.expert_slots.reset();
  r.budget_bytes = budget;
  return make_plan(r);
}

TEST(BudgetAdvice, NamesTheFewestSlotsThatReachATarget) {
  test::TraceShape shape;
  shape.rounds = 2000;
  const RouteTrace trace = test::random_trace(shape);
  const BudgetAdvice advice =
      advise_budget(small_plan(3), one_width, trace, advice_request(ExpertPolicy::lfu));
  const Demand demand = make_demand(trace);
  EXPECT_EQ(advice.current.slots, 3);
  EXPECT_EQ(advice.current.budget_bytes, 10'000u + 3 * 4500);
  EXPECT_EQ(advice.resident.slots, 8);
  ASSERT_EQ(advice.targets.size(), 4u);
  for (const auto& target : advice.targets) {
    ASSERT_TRUE(target.choice) << target.hit_rate;
    const int slots = target.choice->slots;
    const auto rate = [&](int s) {
      return replay_total(demand, s, {ExpertPolicy::lfu}, Phase::decode).hit_rate();
    };
    EXPECT_GE(rate(slots), target.hit_rate);
    EXPECT_LT(rate(slots - 1), target.hit_rate);
    EXPECT_EQ(target.choice->budget_bytes, 10'000u + static_cast<unsigned>(slots) * 4500);
    EXPECT_DOUBLE_EQ(target.choice->traffic.hit_rate(), rate(slots));
  }
  EXPECT_THAT(advice_text(advice), HasSubstr("\n    weir run -m x --memory 23500 -p PROMPT\n"));
  EXPECT_EQ(advice_json(advice)["targets"].size(), 4u);
}

TEST(BudgetAdvice, SaysWhereATargetIsOutOfReach) {
  test::TraceShape shape;
  shape.rounds = 20;  // first uses weigh too much
  const BudgetAdvice advice =
      advise_budget(small_plan(8), one_width, test::random_trace(shape), advice_request(ExpertPolicy::lru));
  EXPECT_FALSE(advice.targets.back().choice);
  EXPECT_THAT(advice_text(advice), HasSubstr("for 99 %      not reached by this trace"));
  EXPECT_EQ(advice_json(advice)["targets"][3]["reached"], false);
}

// --- the ledger's figures

class LedgerFile : public ::testing::Test {
 protected:
  std::string file(const std::string& text) {
    test::write_file(path_, text);
    return path_;
  }
  std::string refusal(const std::string& text, PhaseChoice choice = Phase::decode) {
    try {
      read_ledger_figures(file(text), choice);
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), Error::Kind::input);
      EXPECT_THAT(e.what(), HasSubstr(path_));
      return e.what();
    }
    return "accepted";
  }
  test::TempDir dir_;
  std::string path_ = dir_.file("ledger.json");
  static constexpr const char* good_ =
      R"({"schema":"weir-ledger-1","phases":{"decode":{"roles":{"experts_hit":{"ns":5000}},)"
      R"("experts":{"hits":10,"bytes_read":3000,"read_busy_ns":1500}}}})";
};

TEST_F(LedgerFile, GivesTimeAHitAndTheRate) {
  const LedgerFigures figures = read_ledger_figures(file(good_), Phase::decode);
  EXPECT_DOUBLE_EQ(figures.hidden_ns_per_hit[static_cast<size_t>(Phase::decode)], 500);
  EXPECT_DOUBLE_EQ(figures.hidden_ns_per_hit[static_cast<size_t>(Phase::prefill)], 0);
  EXPECT_DOUBLE_EQ(figures.bytes_per_second, 2e9);
}

TEST_F(LedgerFile, ThatIsNoneIsNamed) {
  EXPECT_THAT(refusal("{"), HasSubstr("not a ledger"));
  EXPECT_THAT(refusal("[1]"), HasSubstr("not a ledger"));
  EXPECT_THAT(refusal(R"({"schema":"other"})"), HasSubstr("not a ledger"));
  EXPECT_THAT(refusal(R"({"schema":"weir-ledger-1"})"), HasSubstr("a damaged ledger"));
  EXPECT_THAT(refusal(R"({"schema":"weir-ledger-1","phases":{"decode":{"experts":7}}})"),
              HasSubstr("a damaged ledger"));
  EXPECT_THAT(refusal(good_, Phase::prefill), HasSubstr("no phase prefill"));
}

}  // namespace
}  // namespace weir::lab
