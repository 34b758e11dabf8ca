// The additive rule, phases, reset and the rings.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "base/random.h"
#include "ledger/fake_clock.h"
#include "ledger/ledger.h"

namespace weir {
namespace {

constexpr Phase phases[] = {Phase::prefill, Phase::decode, Phase::verify};

uint64_t sum_of_walls(const Ledger& ledger) {
  uint64_t sum = 0;
  for (const Phase phase : phases) sum += ledger.phase(phase).wall_ns;
  return sum;
}

/// A random walk over every way to move time: roles, scopes, rounds, time outside rounds.
void random_generation(Ledger& ledger, uint64_t seed, bool fake) {
  uint64_t draw = 0;
  auto pick = [&](uint64_t n) { return random_u64(seed, draw++) % n; };
  auto move = [&] {
    if (fake) FakeClock::now += pick(5) == 0 ? 0 : pick(100'000);
  };
  auto switches = [&](uint64_t n) {
    for (uint64_t i = 0; i < n; ++i) {
      RoleScope scope(&ledger, static_cast<Role>(pick(role_count)));
      move();
      ledger.enter(static_cast<Role>(pick(role_count)));
      move();
    }
  };
  ledger.begin_generation(static_cast<Role>(pick(role_count)));
  for (uint64_t round = pick(12); round > 0; --round) {
    move();
    switches(pick(3));
    ledger.begin_round(phases[pick(3)]);
    switches(pick(20));
    ledger.end_round(static_cast<int>(pick(9)) + 1, 1);
  }
  switches(pick(3));
  move();
  ledger.end_generation();
}

void expect_additive(const Ledger& ledger) {
  for (const Phase phase : phases) {
    for (const PhaseAccount* account : {&ledger.phase(phase), &ledger.cumulative(phase)}) {
      EXPECT_EQ(sum_of_roles(*account), account->wall_ns) << phase_name(phase);
      EXPECT_EQ(account->rounds.sum_ns + account->tail_ns, account->wall_ns) << phase_name(phase);
    }
  }
  for (const RoundReport& round : ledger.ring()) {
    uint64_t sum = 0;
    for (const uint64_t ns : round.role_ns) sum += ns;
    EXPECT_EQ(sum, round.end_ns - round.begin_ns);
  }
}

TEST(LedgerAccount, RolesAddUpToWallExactlyUnderRandomSequences) {
  Ledger ledger(on_fake_clock());
  uint64_t all = 0;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    FakeClock::now += 12'345;  // between generations: charged to nothing
    const uint64_t begin = FakeClock::now;
    random_generation(ledger, seed, true);
    all += FakeClock::now - begin;
    EXPECT_EQ(sum_of_walls(ledger), FakeClock::now - begin) << "seed " << seed;
    EXPECT_EQ(ledger.generation_wall_ns(), FakeClock::now - begin);
    expect_additive(ledger);
  }
  uint64_t cumulative = 0;
  for (const Phase phase : phases) cumulative += ledger.cumulative(phase).wall_ns;
  EXPECT_EQ(cumulative, all);
}

TEST(LedgerAccount, RolesAddUpToWallExactlyOnTheRealClock) {
  Ledger ledger{LedgerOptions{}};
  for (uint64_t seed = 0; seed < 50; ++seed) {
    const uint64_t before = now_ns();
    random_generation(ledger, seed, false);
    const uint64_t after = now_ns();
    EXPECT_GT(ledger.generation_wall_ns(), 0u);
    EXPECT_LE(ledger.generation_wall_ns(), after - before);
    EXPECT_EQ(sum_of_walls(ledger), ledger.generation_wall_ns());
    expect_additive(ledger);
  }
}

TEST(LedgerAccount, ASwitchReadsTheClockOnceAndChargesTheRoleBefore) {
  Ledger ledger(on_fake_clock());
  ledger.begin_generation(Role::tokenize);
  FakeClock::now += 7;
  ledger.begin_round(Phase::decode);
  const uint64_t readings = FakeClock::readings;
  spend(ledger, Role::attention, 100);
  EXPECT_EQ(FakeClock::readings, readings + 1);
  {
    RoleScope scope(&ledger, Role::router);
    FakeClock::now += 20;
    EXPECT_EQ(ledger.current(), Role::router);
  }
  EXPECT_EQ(ledger.current(), Role::attention);
  FakeClock::now += 3;
  const RoundReport& round = ledger.end_round(2, 1);
  EXPECT_EQ(round.role_ns[static_cast<int>(Role::tokenize)], 7u);
  EXPECT_EQ(round.role_ns[static_cast<int>(Role::attention)], 103u);
  EXPECT_EQ(round.role_ns[static_cast<int>(Role::router)], 20u);
  EXPECT_EQ(round.end_ns - round.begin_ns, 130u);
}

TEST(LedgerAccount, ANullLedgerIsOff) {
  enter_role(nullptr, Role::head);
  { RoleScope scope(nullptr, Role::head); }
  Ledger ledger(on_fake_clock());
  enter_role(&ledger, Role::head);
  EXPECT_EQ(ledger.current(), Role::head);
}

TEST(LedgerAccount, TimeBetweenRoundsBelongsToTheNextRoundAndTheTailToTheLast) {
  Ledger ledger(on_fake_clock());
  ledger.begin_generation(Role::tokenize);
  FakeClock::now += 10;
  ledger.begin_round(Phase::prefill);
  spend(ledger, Role::attention, 100);
  ledger.end_round(5, 1);
  spend(ledger, Role::reply, 30);  // before a decode round: decode's
  ledger.begin_round(Phase::decode);
  spend(ledger, Role::attention, 200);
  ledger.end_round(1, 1);
  spend(ledger, Role::tokenize, 40);
  ledger.end_generation();
  EXPECT_EQ(ledger.phase(Phase::prefill).wall_ns, 110u);
  EXPECT_EQ(ledger.phase(Phase::prefill).tail_ns, 0u);
  const PhaseAccount& decode = ledger.phase(Phase::decode);
  EXPECT_EQ(decode.wall_ns, 270u);
  EXPECT_EQ(decode.tail_ns, 40u);
  EXPECT_EQ(decode.rounds.max_ns, 230u);
  EXPECT_EQ(role_ns(decode, Role::reply), 30u);
  EXPECT_EQ(role_ns(decode, Role::tokenize), 40u);
  EXPECT_EQ(decode.roles[static_cast<int>(Role::tokenize)].per_round.count, 0u);
  EXPECT_EQ(ledger.phase(Phase::verify).wall_ns, 0u);
}

TEST(LedgerAccount, AnAbandonedRoundIsATailOfItsPhaseAndUncounted) {
  Ledger ledger(on_fake_clock());
  ledger.begin_generation();
  ledger.begin_round(Phase::prefill);
  spend(ledger, Role::attention, 100);
  ledger.end_round(5, 1);
  ledger.begin_round(Phase::verify);
  spend(ledger, Role::draft, 60);
  ledger.begin_generation(Role::tokenize);  // ends the one before
  EXPECT_EQ(ledger.cumulative(Phase::verify).wall_ns, 60u);
  EXPECT_EQ(ledger.cumulative(Phase::verify).rounds.count, 0u);
  EXPECT_EQ(ledger.phase(Phase::verify).wall_ns, 0u);
  FakeClock::now += 9;
  ledger.end_generation();  // no round at all: prefill's
  EXPECT_EQ(ledger.phase(Phase::prefill).tail_ns, 9u);
  FakeClock::now += 1000;
  ledger.end_generation();  // already ended
  ledger.enter(Role::head);
  EXPECT_EQ(ledger.generation_wall_ns(), 9u);
}

TEST(LedgerAccount, PhasesDoNotMix) {
  Ledger ledger(on_fake_clock());
  ledger.begin_generation(Role::schedule);
  uint64_t each = 1;
  for (const Phase phase : phases) {
    ledger.begin_round(phase);
    spend(ledger, Role::head, each);
    ledger.bytes(each * 10);
    ledger.hidden(Role::upload, each * 100);
    ledger.expert_traffic({each, each + 1, each + 2, each + 3, each + 4});
    ledger.imbalance(each, each * 2, each * 3);
    ledger.tokens(each * 7);
    ledger.end_round(static_cast<int>(each) * 4, 2);
    each *= 1000;
  }
  ledger.end_generation();
  each = 1;
  for (const Phase phase : phases) {
    const PhaseAccount& account = ledger.phase(phase);
    EXPECT_EQ(role_ns(account, Role::head), each);
    EXPECT_EQ(account.roles[static_cast<int>(Role::head)].bytes, each * 10);
    EXPECT_EQ(account.roles[static_cast<int>(Role::upload)].hidden_ns, each * 100);
    EXPECT_EQ(account.wall_ns, each) << "hidden time is never added";
    EXPECT_EQ(account.experts.hits, each);
    EXPECT_EQ(account.experts.misses, each + 1);
    EXPECT_EQ(account.experts.bytes_read, each + 2);
    EXPECT_EQ(account.experts.reads, each + 3);
    EXPECT_EQ(account.experts.read_busy_ns, each + 4);
    EXPECT_EQ(account.worker_busy_ns, each);
    EXPECT_EQ(account.worker_barrier_ns, each * 2);
    EXPECT_EQ(account.tasks, each * 3);
    EXPECT_EQ(account.rows, each * 4);
    EXPECT_EQ(account.tokens, phase == Phase::prefill ? each * 4 : each * 7);
    each *= 1000;
  }
}

TEST(LedgerAccount, TokensFollowFromTheBatchUnlessSaid) {
  Ledger ledger(on_fake_clock());
  ledger.begin_generation();
  for (const Phase phase : phases) {
    ledger.begin_round(phase);
    ledger.end_round(12, 3);
  }
  EXPECT_EQ(ledger.phase(Phase::prefill).tokens, 12u);
  EXPECT_EQ(ledger.phase(Phase::decode).tokens, 12u);
  EXPECT_EQ(ledger.phase(Phase::verify).tokens, 3u);
}

TEST(LedgerAccount, BeginClearsTheGenerationAndKeepsTheCumulative) {
  LedgerOptions options = on_fake_clock();
  options.ring_rounds = 2;
  options.ring_spans = 3;
  options.trace = true;
  Ledger ledger(options);
  auto generate = [&] {
    ledger.begin_generation(Role::tokenize);
    for (int i = 0; i < 5; ++i) {
      ledger.begin_round(Phase::decode);
      spend(ledger, Role::head, 10);
      ledger.end_round(1, 1);
    }
    ledger.end_generation();
  };
  generate();
  generate();
  EXPECT_EQ(ledger.phase(Phase::decode).rounds.count, 5u);
  EXPECT_EQ(ledger.cumulative(Phase::decode).rounds.count, 10u);
  EXPECT_EQ(ledger.cumulative(Phase::decode).wall_ns, 100u);
  EXPECT_EQ(ledger.rounds_dropped(), 3u);
  EXPECT_EQ(ledger.cumulative_rounds_dropped(), 6u);
  EXPECT_EQ(ledger.spans_dropped(), 2u);
  EXPECT_EQ(ledger.ring().back().index, 9u) << "the index goes on";
  ledger.begin_generation();
  EXPECT_TRUE(ledger.phase(Phase::decode).empty());
  EXPECT_TRUE(ledger.ring().empty());
  EXPECT_TRUE(ledger.spans().empty());
  EXPECT_EQ(ledger.rounds_dropped(), 0u);
  EXPECT_EQ(ledger.spans_dropped(), 0u);
}

TEST(LedgerAccount, TheRingsKeepTheLastInOrderAndCountDrops) {
  LedgerOptions options = on_fake_clock();
  options.ring_rounds = 3;
  options.ring_spans = 4;
  options.trace = true;
  Ledger ledger(options);
  ledger.begin_generation();
  for (int i = 0; i < 7; ++i) {
    ledger.begin_round(Phase::decode);
    spend(ledger, Role::head, 10);
    ledger.end_round(i, 1);
    EXPECT_EQ(ledger.ring().size(), static_cast<size_t>(std::min(i + 1, 3)));
    EXPECT_EQ(ledger.ring().back().rows, i);
  }
  EXPECT_EQ(ledger.ring().front().rows, 4);
  EXPECT_EQ(ledger.rounds_dropped(), 4u);
  ledger.read_span(1, 2, 9, 0, 4096);
  const std::vector<Span> spans = ledger.spans();
  ASSERT_EQ(spans.size(), 4u);
  EXPECT_EQ(spans.back().track, 1);
  EXPECT_EQ(spans.back().name, 9);
  EXPECT_EQ(spans.back().value, 4096u);
  EXPECT_EQ(spans[1].end_ns, spans[2].begin_ns);
  EXPECT_EQ(ledger.spans_dropped(), 4u);
}

TEST(LedgerAccount, TheHistogramCountsPowersOfTwo) {
  Tally tally;
  for (const uint64_t ns : {0ull, 1ull, 2ull, 3ull, 4ull, 1023ull, 1024ull, ~0ull >> 1}) tally.add(ns);
  EXPECT_EQ(tally.histogram[0], 2u);
  EXPECT_EQ(tally.histogram[1], 2u);
  EXPECT_EQ(tally.histogram[2], 1u);
  EXPECT_EQ(tally.histogram[9], 1u);
  EXPECT_EQ(tally.histogram[10], 1u);
  EXPECT_EQ(tally.histogram[39], 1u) << "beyond the last bucket";
  EXPECT_EQ(tally.count, 8u);
  EXPECT_EQ(tally.min_ns, 0u);
  EXPECT_EQ(tally.max_ns, ~0ull >> 1);
}

TEST(LedgerAccount, ALineIsDueEveryNRoundsOfATokenPhase) {
  LedgerOptions options = on_fake_clock();
  options.log_every = 2;
  Ledger ledger(options);
  ledger.begin_generation();
  auto round = [&](Phase phase) {
    ledger.begin_round(phase);
    ledger.end_round(1, 1);
    return ledger.line_due();
  };
  EXPECT_FALSE(round(Phase::prefill));
  EXPECT_FALSE(round(Phase::prefill));
  EXPECT_FALSE(round(Phase::decode));
  EXPECT_FALSE(round(Phase::verify));
  EXPECT_TRUE(round(Phase::decode));
  EXPECT_TRUE(round(Phase::verify));
  ledger.begin_round(Phase::decode);
  EXPECT_FALSE(ledger.line_due());
}

}  // namespace
}  // namespace weir
