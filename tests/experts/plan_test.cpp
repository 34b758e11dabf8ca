// The budget's arithmetic against hand-computed plans, and every refusal's numbers against the planner
// itself.
#include "experts/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/error.h"

namespace weir {
namespace {

using testing::HasSubstr;

/// 4 layers, one of them dense; the layers' strides differ.
PlanRequest example() {
  PlanRequest r;
  r.budget_bytes = 100'000;
  r.budget_source = "--memory";
  r.context = 10;
  r.model_context = 64;
  r.lanes = 2;
  r.weight_bytes = 20'000;
  r.kv_bytes_per_position = 100;  // 2 lanes x 10 positions: 2,000
  r.table_bytes = 500;            // of which 10 x 20 grow with the context
  r.table_bytes_per_position = 20;
  r.scratch_bytes = 4'000;
  r.overhead_bytes = 3'500;
  r.top_k = 4;
  r.experts = {32, 0, 32, 16};
  r.slot_bytes = {1'000, 0, 2'000, 500};
  return r;
}

std::string refusal(const PlanRequest& request) {
  try {
    make_plan(request);
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), Error::Kind::input);
    EXPECT_EQ(std::string(e.what()).find('\n'), std::string::npos);
    return e.what();
  }
  return "";
}

TEST(Plan, SlotsAreTheRemainderOverTheSumOfRealStrides) {
  // fixed 20,000 + 2,000 + 500 + 4,000 + 3,500 = 30,000; 70,000 / 3,500 = 20 slots, but the layer of 16 is
  // full at 16: 16 x 3,500 = 56,000, then (14,000) / 3,000 = 4 more with 2,000 left.
  const ResidencyPlan p = make_plan(example());
  EXPECT_EQ(p.slots, 20);
  EXPECT_EQ(p.slot_total_bytes, 20u * 3'000 + 16 * 500);
  EXPECT_EQ(p.total_bytes, 30'000u + 68'000);
  EXPECT_EQ(p.headroom_bytes, 2'000u);
  EXPECT_EQ(p.kv_bytes, 2'000u);
  EXPECT_FALSE(p.all_resident);
  EXPECT_TRUE(p.warnings.empty());
}

TEST(Plan, InstrumentsHaveALineOfTheirOwn) {
  PlanRequest r = example();
  EXPECT_EQ(describe_plan(make_plan(r)).find("instruments"), std::string::npos) << "none: no line";
  r.instrument_bytes = 2'001;  // one more than the headroom
  r.instruments = "ledger of the last 16 rounds";
  const ResidencyPlan p = make_plan(r);
  EXPECT_EQ(p.slots, 19);
  EXPECT_EQ(p.total_bytes, 30'000u + 2'001 + 65'000);
  EXPECT_THAT(describe_plan(p),
              testing::ContainsRegex("instruments +1.95 KiB +2.0 %  ledger of the last 16"));
  const auto json = nlohmann::json::parse(plan_json(p));
  EXPECT_EQ(json["bytes"]["instruments"], 2'001);
  r.budget_bytes = 44'000;
  EXPECT_THAT(refusal(r),
              HasSubstr("the instruments (ledger of the last 16 rounds) take 1.95 KiB (2001 bytes) of it"));
}

TEST(Plan, OneByteLessIsOneSlotLess) {
  PlanRequest r = example();
  r.experts = {32, 32};
  r.slot_bytes = {1'000, 2'500};
  r.budget_bytes = 30'000 + 9 * 3'500;
  EXPECT_EQ(make_plan(r).slots, 9);
  EXPECT_EQ(make_plan(r).headroom_bytes, 0u);
  r.budget_bytes -= 1;
  EXPECT_EQ(make_plan(r).slots, 8);
  EXPECT_EQ(make_plan(r).headroom_bytes, 3'499u);
}

TEST(Plan, SlotsStopAtTheExpertsOfALayer) {
  PlanRequest r = example();
  r.budget_bytes = 1'000'000;
  const ResidencyPlan p = make_plan(r);
  EXPECT_EQ(p.slots, 32);
  EXPECT_TRUE(p.all_resident);
  EXPECT_EQ(p.slot_total_bytes, 32u * 3'000 + 16 * 500);
  EXPECT_TRUE(p.warnings.empty());
}

TEST(Plan, AskedForSlotsAreGivenExactly) {
  PlanRequest r = example();
  r.expert_slots = 9;
  const ResidencyPlan p = make_plan(r);
  EXPECT_EQ(p.slots, 9);
  EXPECT_EQ(p.slot_total_bytes, 9u * 3'500);
  r.expert_slots = 400;  // more than there are, which it says
  r.budget_bytes = 1'000'000;
  EXPECT_EQ(make_plan(r).slots, 32);
  EXPECT_THAT(make_plan(r).warnings.at(0),
              HasSubstr("--expert-slots 400: the model has 32 experts a layer: 32 slots, all resident"));
}

TEST(Plan, SmallestBudgetAndLargestContextAreTight) {
  const ResidencyPlan p = make_plan(example());
  EXPECT_EQ(p.minimum_budget, 30'000u + 4 * 3'500);
  PlanRequest r = example();
  r.budget_bytes = p.minimum_budget;
  EXPECT_EQ(make_plan(r).slots, 4);
  r.budget_bytes -= 1;
  EXPECT_NE(refusal(r), "");

  // At the floor a position costs 2 x 100 + 20 = 220 over a base of 27,800 + 14,000.
  r = example();
  r.budget_bytes = 41'800 + 17 * 220 + 219;
  EXPECT_EQ(make_plan(r).largest_context, 17);
  r.context = 17, r.table_bytes = 500 + 7 * 20;
  EXPECT_EQ(make_plan(r).slots, 4);
  r.context = 18, r.table_bytes = 500 + 8 * 20;
  EXPECT_NE(refusal(r), "");
  r = example();
  r.budget_bytes = 10'000'000;
  EXPECT_EQ(make_plan(r).largest_context, 64);
}

TEST(Plan, BelowTheFloorIsRefusedWithTheNumbersThatFit) {
  PlanRequest r = example();
  r.budget_bytes = 43'000;
  EXPECT_EQ(
      refusal(r),
      "a context of 10 with 4 expert slots a layer needs 43.0 KiB (44000 bytes); the budget (--memory) is "
      "42.0 KiB (43000 bytes); the smallest budget for this context is 43.0 KiB (44000 bytes) with 4 expert "
      "slots; the largest context in this budget is 5; try -c 5 or --memory 0.1MiB");
  r.budget_bytes = 41'000;
  EXPECT_THAT(refusal(r), HasSubstr("no context fits in this budget"));
  r.budget_bytes = 0;
  EXPECT_THAT(refusal(r), HasSubstr("(44000 bytes)"));
}

TEST(Plan, TooManyAskedForSlotsAreRefusedWithThoseThatFit) {
  PlanRequest r = example();
  r.expert_slots = 30;
  EXPECT_THAT(refusal(r), HasSubstr("with 30 expert slots a layer needs"));
  EXPECT_THAT(refusal(r), HasSubstr("; 20 expert slots would fit;"));
  EXPECT_THAT(refusal(r), HasSubstr("; try --expert-slots 20 or --memory 0.2MiB"));
  r.expert_slots = 3;
  EXPECT_EQ(refusal(r), "--expert-slots 3: a token uses 4 experts of a layer at once; use at least 4");
}

TEST(Plan, ContextBeyondTheModelIsRefused) {
  PlanRequest r = example();
  r.context = 65;
  EXPECT_EQ(refusal(r), "-c 65: the model's context is 64; use at most that");
  r.context = 0;
  EXPECT_THAT(refusal(r), HasSubstr("-c 0"));
}

TEST(Plan, MoreExpertsARowThanTheLayerHasIsRefused) {
  PlanRequest r = example();
  r.top_k = 33;
  EXPECT_THAT(refusal(r), HasSubstr("33 experts of 32"));
  r.top_k = 0;
  EXPECT_THAT(refusal(r), HasSubstr("0 experts of 32"));
}

TEST(Plan, WarnsBelowTwiceTheFloorAndNotFromThere) {
  PlanRequest r = example();
  r.budget_bytes = 30'000 + 7 * 3'500;
  ASSERT_EQ(make_plan(r).slots, 7);
  ASSERT_EQ(make_plan(r).warnings.size(), 1u);
  EXPECT_THAT(make_plan(r).warnings[0], HasSubstr("under twice the 4 experts"));
  EXPECT_THAT(make_plan(r).warnings[0], HasSubstr("7 expert slots"));
  r.budget_bytes = 30'000 + 8 * 3'500;
  EXPECT_TRUE(make_plan(r).warnings.empty());
  r.experts = {6, 0, 6, 6};
  r.budget_bytes = 1'000'000;
  EXPECT_TRUE(make_plan(r).warnings.empty()) << "all experts are resident";
}

TEST(Plan, DenseModelsHaveNoSlots) {
  PlanRequest r = example();
  r.experts = {0, 0};
  r.slot_bytes = {0, 0};
  r.top_k = 0;
  const ResidencyPlan p = make_plan(r);
  EXPECT_EQ(p.slots, 0);
  EXPECT_TRUE(p.all_resident);
  EXPECT_EQ(p.total_bytes, 30'000u);
  r.budget_bytes = 29'999;
  EXPECT_THAT(refusal(r), HasSubstr("a context of 10 needs 29.3 KiB (30000 bytes)"));
}

TEST(Plan, SizesThatOverflowAreRefusedAndNotWrapped) {
  PlanRequest r = example();
  r.kv_bytes_per_position = UINT64_MAX / 4;
  EXPECT_NE(refusal(r), "");
  r = example();
  r.slot_bytes[0] = UINT64_MAX / 2;
  EXPECT_NE(refusal(r), "");
}

TEST(Plan, TheTableAndTheJsonAddUpToTheBudget) {
  const ResidencyPlan p = make_plan(example());
  const auto json = nlohmann::json::parse(plan_json(p));
  EXPECT_EQ(plan_json(p).find('\n'), std::string::npos);
  uint64_t total = 0;
  for (const auto& [key, bytes] : json["bytes"].items()) total += bytes.get<uint64_t>();
  EXPECT_EQ(total, 100'000u);
  EXPECT_EQ(json["expert_slots"], 20);
  EXPECT_EQ(json["layer_slot_bytes"][2], 2'000);
  const std::string table = describe_plan(p);
  EXPECT_THAT(table, HasSubstr("budget 97.7 KiB (--memory)"));
  EXPECT_THAT(table, HasSubstr("20 of 32 experts on each of 3 layers"));
  EXPECT_THAT(table, HasSubstr("context 10, 2 lanes"));
}

}  // namespace
}  // namespace weir
