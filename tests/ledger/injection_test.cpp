// Delay injection: the instrument's own check. A known delay must show in its role, whole, and nowhere else.
#include <gtest/gtest.h>

#include <vector>

#include "base/stats.h"
#include "ledger/fake_clock.h"
#include "ledger/ledger.h"

namespace weir {
namespace {

TEST(LedgerInjection, TheRoleGrowsByTheSpinInTheChosenRoundsAndNoOtherDoes) {
  LedgerOptions options = on_fake_clock();
  options.inject_role = Role::router;
  options.inject_ns = 5'000;
  options.inject_seed = 42;
  Ledger ledger(options);
  ledger.begin_generation(Role::schedule);
  FakeClock::step = 1;  // so that the spin ends
  int injected = 0;
  for (uint64_t i = 0; i < 200; ++i) {
    ledger.begin_round(Phase::decode);
    for (int layer = 0; layer < 3; ++layer) {
      spend(ledger, Role::attention, 700);
      spend(ledger, Role::router, 50);
    }
    const RoundReport& round = ledger.end_round(1, 1);
    EXPECT_EQ(round.injected, ledger.injects(i));
    injected += round.injected;
    const auto router = static_cast<double>(round.role_ns[static_cast<int>(Role::router)]);
    EXPECT_NEAR(router, round.injected ? 5'150 : 150, 5) << "once a round, not once a layer";
    EXPECT_NEAR(static_cast<double>(round.injected_ns), round.injected ? 5'000 : 0, 5);
    EXPECT_NEAR(static_cast<double>(round.role_ns[static_cast<int>(Role::attention)]), 2'100, 5);
  }
  EXPECT_GT(injected, 70);
  EXPECT_LT(injected, 130);
  EXPECT_EQ(ledger.phase(Phase::decode).injected_rounds, static_cast<uint64_t>(injected));
}

TEST(LedgerInjection, ARoleThatIsNotEnteredInTheRoundGetsNothing) {
  LedgerOptions options = on_fake_clock();
  options.inject_role = Role::reply;
  options.inject_ns = 5'000;
  Ledger ledger(options);
  ledger.begin_generation(Role::tokenize);
  FakeClock::step = 1;
  for (int i = 0; i < 20; ++i) {
    ledger.begin_round(Phase::decode);
    spend(ledger, Role::head, 10);
    EXPECT_FALSE(ledger.end_round(1, 1).injected);
    ledger.enter(Role::reply);  // outside a round
  }
  ledger.end_generation();
  EXPECT_LT(ledger.generation_wall_ns(), 1'000u);
}

TEST(LedgerInjection, CanBeChangedBetweenRounds) {
  Ledger ledger(on_fake_clock());
  ledger.begin_generation(Role::schedule);
  FakeClock::step = 1;
  ledger.inject(Role::head, 3'000, 7);
  uint64_t head = 0, injected = 0;
  for (uint64_t i = 0; i < 40; ++i) {
    if (i == 20) ledger.inject(Role::unattributed, 0, 0);
    ledger.begin_round(Phase::decode);
    spend(ledger, Role::head, 10);
    const RoundReport& round = ledger.end_round(1, 1);
    head += round.role_ns[static_cast<int>(Role::head)];
    injected += round.injected;
    EXPECT_FALSE(round.injected && i >= 20);
  }
  EXPECT_GT(injected, 0u);
  EXPECT_NEAR(static_cast<double>(head), 3'000.0 * static_cast<double>(injected) + 400, 200);
}

TEST(LedgerInjection, IsOffByDefaultAndChosenBySeed) {
  const Ledger plain{LedgerOptions{}};
  LedgerOptions options;
  options.inject_ns = 1;
  const Ledger seed0(options);
  options.inject_seed = 1;
  const Ledger seed1(options);
  int differ = 0;
  for (uint64_t i = 0; i < 100; ++i) {
    EXPECT_FALSE(plain.injects(i));
    differ += seed0.injects(i) != seed1.injects(i);
  }
  EXPECT_GT(differ, 20);
}

TEST(LedgerInjection, OnTheRealClockTheRoleGrowsByTheSpinWithinFivePercent) {
  LedgerOptions options;
  options.inject_role = Role::router;
  options.inject_ns = 400'000;
  Ledger ledger(options);
  auto work = [&](Role role) {
    ledger.enter(role);
    for (const uint64_t begin = now_ns(); now_ns() - begin < 20'000;) {
    }
  };
  ledger.begin_generation();
  std::vector<double> router[2], attention[2];
  for (int i = 0; i < 120; ++i) {
    ledger.begin_round(Phase::decode);
    work(Role::attention);
    work(Role::router);
    const RoundReport& round = ledger.end_round(1, 1);
    router[round.injected].push_back(static_cast<double>(round.role_ns[static_cast<int>(Role::router)]));
    attention[round.injected].push_back(
        static_cast<double>(round.role_ns[static_cast<int>(Role::attention)]));
  }
  // The quarter point, not the median: on a shared machine half of the rounds may be interrupted.
  EXPECT_NEAR(quantile(router[1], 0.25) - quantile(router[0], 0.25), 400'000, 20'000);
  EXPECT_NEAR(quantile(attention[1], 0.25) - quantile(attention[0], 0.25), 0, 20'000);
}

}  // namespace
}  // namespace weir
