// A context that nobody asked for: the default, or as much of it as the budget holds, on either device.
#include "engine/device_cases.h"

namespace weir {
namespace {

constexpr int model_context = 2048;  // the pocket model's own, below the default of 4096

EngineOptions unasked() {
  EngineOptions o = options();
  o.context = 0;
  return o;
}

/// The smallest budget that holds a context.
uint64_t budget_for(int context) {
  EngineOptions o = options();
  o.context = context;
  return Engine(o).plan().minimum_budget;
}

TEST(Context, NotAskedForIsWhatTheBudgetHolds) {
  EngineOptions o = unasked();
  EXPECT_EQ(Engine(o).context(), model_context);
  EXPECT_EQ(Engine(o).plan().wanted_context, 0);
  o.memory = budget_for(model_context);
  EXPECT_EQ(Engine(o).context(), model_context);
  for (const int context : {1000, 512, 256}) {
    o.memory = budget_for(context);
    const auto engine = open(o);
    EXPECT_EQ(engine->context(), context);
    EXPECT_EQ(engine->plan().request.context, context);
    EXPECT_EQ(engine->plan().wanted_context, model_context);
    EXPECT_THAT(describe_plan(engine->plan()),
                HasSubstr("context " + std::to_string(context) +
                          " instead of 2048: what the budget holds; -c N asks for N\n"));
    EXPECT_EQ(engine->run(request(3)).tokens.size(), 3u);
    *o.memory -= 1;
    if (context > 256) {
      EXPECT_EQ(Engine(o).context(), context - 1);
    }
  }
}

TEST(Context, AskedForIsADemand) {
  EngineOptions o = unasked();
  o.memory = budget_for(1000);
  o.context = 1001;
  EXPECT_THAT(refusal(o), HasSubstr("a context of 1001"));
  o.context = 1000;
  EXPECT_EQ(refusal(o), "opened");
}

TEST(Context, IsNotShrunkToNothing) {
  EngineOptions o = unasked();
  o.memory = budget_for(256) - 1;
  EXPECT_THAT(refusal(o), ::testing::AllOf(HasSubstr("a context of 256"), HasSubstr("smallest budget")));
}

TEST(Context, ShrinksForTheSlotsAndTheChunkThatWereAskedFor) {
  EngineOptions o = options();
  o.context = 600;
  o.expert_slots = 16;
  o.prefill_chunk = 64;
  const uint64_t needed = Engine(o).plan().total_bytes;
  o.context = 0;
  o.memory = needed;
  const Engine engine(o);
  EXPECT_EQ(engine.context(), 600);
  EXPECT_EQ(engine.plan().slots, 16);
  EXPECT_EQ(engine.options().prefill_chunk, 64);
}

TEST(Context, OfADeviceIsWhatItsMemoryHolds) {
  EngineOptions o = options();
  const Deferred deferred;
  deferred.put_into(o);
  o.context = 700;
  const uint64_t needed = Engine(o).plan().device->minimum_budget;
  o.context = 0;
  EXPECT_EQ(Engine(o).context(), model_context);
  o.vram = needed;
  const auto engine = open(o);
  EXPECT_EQ(engine->context(), 700);
  EXPECT_EQ(engine->plan().wanted_context, model_context);
  EXPECT_EQ(engine->run(request(3)).tokens.size(), 3u);
  EXPECT_THAT(describe_plan(engine->plan()), HasSubstr("context 700 instead of 2048"));
  o.context = 701;
  EXPECT_THAT(refusal(o), HasSubstr("a context of 701"));
}

}  // namespace
}  // namespace weir
