// The plan of a device's own memory: pure arithmetic, and refusals whose numbers can be passed back.
#include "experts/device_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/quantity.h"
#include "experts/plan.h"

namespace weir {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t mib = uint64_t{1} << 20, gib = uint64_t{1} << 30;

DevicePlanRequest request() {
  DevicePlanRequest r;
  r.device = "cuda:0";
  r.memory = {100 * gib, 90 * gib, gib};
  r.context = 1000;
  r.model_context = 8000;
  r.lanes = 2;
  r.weight_bytes = 2 * gib;
  r.expert_bytes = 14 * gib;
  r.kv_bytes_per_position = mib;
  r.table_bytes_per_position = 512;
  r.overhead_bytes = 96 * mib;
  r.scratch_bytes = [](int context) { return 64 * mib + static_cast<uint64_t>(context) * 1024; };
  return r;
}

std::string refusal(const DevicePlanRequest& r) {
  try {
    make_device_plan(r, r);
  } catch (const Error& e) {
    EXPECT_EQ(e.exit_code(), 2);
    return e.what();
  }
  return "fits";
}

TEST(DevicePlan, ItemsAddUpToTheBudget) {
  const DevicePlan plan = make_device_plan(request(), request());
  EXPECT_EQ(plan.kv_bytes, 2000 * mib);
  EXPECT_EQ(plan.table_bytes, 512'000u);
  EXPECT_EQ(plan.scratch_bytes, 64 * mib + 1'024'000);
  EXPECT_EQ(plan.total_bytes, 16 * gib + 2000 * mib + 512'000 + 64 * mib + 1'024'000 + 96 * mib);
  EXPECT_EQ(plan.total_bytes + plan.headroom_bytes, plan.budget_bytes);
  EXPECT_EQ(plan.minimum_budget, plan.total_bytes);
}

TEST(DevicePlan, TheBudgetIsWhatIsFreeLessAReserve) {
  DevicePlanRequest r = request();
  EXPECT_EQ(device_budget(r), 90 * gib - 90 * gib / 100 * 3);
  r.memory.free = 4 * gib;
  EXPECT_EQ(device_budget(r), 4 * gib - 512 * mib);
  r.memory.free = 600 * mib;
  EXPECT_EQ(device_budget(r), 300 * mib) << "never more than half is kept back";
  r.vram = 5 * gib;
  EXPECT_EQ(device_budget(r), 5 * gib);
}

TEST(DevicePlan, ABudgetOverTheDeviceIsRefusedWithItsSize) {
  DevicePlanRequest r = request();
  r.vram = 100 * gib + 1;
  EXPECT_THAT(refusal(r), HasSubstr("cuda:0 has 100 GiB (107374182400 bytes)"));
  r.vram = 95 * gib;
  const DevicePlan plan = make_device_plan(r, r);
  ASSERT_EQ(plan.warnings.size(), 1u);
  EXPECT_THAT(plan.warnings[0], HasSubstr("above the 90.0 GiB that are free on cuda:0"));
}

TEST(DevicePlan, WhatIsNotFreeIsRefusedWhateverTheBudget) {
  DevicePlanRequest r = request();
  r.vram = 95 * gib;
  const uint64_t needed = device_bytes(r, 1000);
  r.memory.free = needed;
  EXPECT_EQ(make_device_plan(r, r).warnings.size(), 1u) << "it fits, though the budget does not";
  r.memory.free = needed - 1;
  const std::string text = refusal(r), bytes = std::to_string(needed);
  EXPECT_THAT(text, HasSubstr("(" + bytes + " bytes) of its memory, 14.0 GiB of them routed experts"));
  EXPECT_THAT(text, HasSubstr("the budget (--vram) is 95.0 GiB (102005473280 bytes), and 18.1 GiB (" +
                              std::to_string(needed - 1) + " bytes) are free"));
  EXPECT_THAT(
      text, HasSubstr("(" + bytes +
                      " bytes), more than is free; the largest context in what is free is 999; try -c 999"));
  r.context = 999;
  EXPECT_EQ(refusal(r), "fits");
  r.memory.free = 10 * gib;
  EXPECT_THAT(refusal(r), HasSubstr("no context fits in what is free: streaming to a GPU is not available"));
  r.vram = 5 * gib;
  EXPECT_THAT(refusal(r), HasSubstr("no context fits in this budget"));
}

TEST(DevicePlan, ARefusalsNumbersFitAndOneLessOrMoreDoesNot) {
  DevicePlanRequest r = request();
  r.vram = 17 * gib;
  const std::string text = refusal(r);
  EXPECT_THAT(text, HasSubstr("a context of 1000 needs"));
  EXPECT_THAT(text, HasSubstr("14.0 GiB of them routed experts"));
  const int largest = largest_device_context(r);
  ASSERT_GT(largest, 0);
  EXPECT_THAT(text,
              HasSubstr(fmt::format("the largest context in this budget is {0}; try -c {0} or --vram {1}",
                                    largest, typed_bytes(device_bytes(r, 1000)))));
  r.context = largest;
  EXPECT_EQ(refusal(r), "fits");
  r.context = largest + 1;
  EXPECT_NE(refusal(r), "fits");
  r.context = 1000;
  r.vram = device_bytes(r, 1000);
  EXPECT_EQ(refusal(r), "fits");
  *r.vram -= 1;
  EXPECT_NE(refusal(r), "fits");
}

TEST(DevicePlan, WhereNoContextFitsTheCpuIsNamed) {
  DevicePlanRequest r = request();
  r.vram = 10 * gib;
  EXPECT_THAT(refusal(r), HasSubstr("no context fits in this budget: streaming to a GPU is not available"));
  r.memory.free = 11 * gib;
  EXPECT_THAT(refusal(r), ::testing::EndsWith("; try --device cpu"));
  r.memory.free = 90 * gib;
  r.expert_bytes = 0;
  r.vram = gib;
  EXPECT_THAT(refusal(r), HasSubstr("no context fits in this budget; try --vram "));
}

TEST(DevicePlan, BothMemoriesAreShown) {
  PlanRequest host;
  host.budget_bytes = 8 * gib;
  host.budget_source = "--memory";
  host.context = 1000, host.model_context = 8000, host.lanes = 2;
  host.scratch_bytes = 30 * mib, host.overhead_bytes = 600 * mib;
  host.top_k = 2;
  host.experts = {8, 8}, host.slot_bytes = {0, 0};
  ResidencyPlan plan = make_plan(host);
  plan.device = make_device_plan(request(), request());
  const std::string text = describe_plan(plan);
  EXPECT_THAT(text, HasSubstr("cuda:0 budget 87.3 GiB (free memory less 2.70 GiB) of 100 GiB"));
  EXPECT_THAT(text, HasSubstr("experts             14.0 GiB"));
  EXPECT_THAT(text, HasSubstr("context 1000, 2 lanes"));
  EXPECT_THAT(text, HasSubstr("host budget 8.00 GiB (--memory)"));
  const auto json = nlohmann::json::parse(plan_json(plan));
  EXPECT_EQ(json["device"]["device"], "cuda:0");
  EXPECT_EQ(json["device"]["bytes"]["experts"], 14 * gib);
  uint64_t sum = 0;
  for (const auto& [key, bytes] : json["device"]["bytes"].items()) sum += bytes.get<uint64_t>();
  EXPECT_EQ(sum, json["device"]["budget_bytes"].get<uint64_t>());
  EXPECT_EQ(json["bytes"]["expert_slots"], 0);
  EXPECT_TRUE(json["all_resident"].get<bool>());
}

}  // namespace
}  // namespace weir
