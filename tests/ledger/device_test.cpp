// Time that a device spent by its own clock, charged after the fact.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <vector>

#include "base/random.h"
#include "ledger/fake_clock.h"
#include "ledger/ledger.h"
#include "ledger/report.h"

namespace weir {
namespace {

uint64_t round_ns(const RoundReport& round, Role role) { return round.role_ns[static_cast<int>(role)]; }

TEST(LedgerDevice, SpansAreChargedToTheirRolesAndTheRestIsGap) {
  LedgerOptions options = on_fake_clock();
  options.trace = true;
  Ledger ledger(options);
  ledger.begin_generation(Role::schedule);
  FakeClock::now += 40;
  ledger.begin_round(Phase::decode);
  ledger.enter(Role::gap);
  const uint64_t t = FakeClock::now;
  FakeClock::now += 1'000;
  const DeviceSpan spans[] = {
      {Role::embed, t + 100, t + 150}, {Role::attention, t + 150, t + 400}, {Role::head, t + 500, t + 900}};
  ledger.charge_device(spans);
  spend(ledger, Role::sample, 7);
  const RoundReport round = ledger.end_round(1, 1);
  EXPECT_EQ(round_ns(round, Role::embed), 50u);
  EXPECT_EQ(round_ns(round, Role::attention), 250u);
  EXPECT_EQ(round_ns(round, Role::head), 400u);
  EXPECT_EQ(round_ns(round, Role::gap), 300u) << "before, between and after";
  EXPECT_EQ(round_ns(round, Role::schedule), 40u);
  EXPECT_EQ(round_ns(round, Role::sample), 7u);
  EXPECT_EQ(round.end_ns - round.begin_ns, 1'047u);
  EXPECT_EQ(ledger.phase(Phase::decode).roles[static_cast<int>(Role::attention)].switches, 1u);

  std::vector<std::pair<Role, uint64_t>> traced;
  for (const Span& span : ledger.spans())
    traced.push_back({static_cast<Role>(span.name), span.end_ns - span.begin_ns});
  const std::vector<std::pair<Role, uint64_t>> expected = {
      {Role::schedule, 40}, {Role::gap, 100},  {Role::embed, 50}, {Role::attention, 250},
      {Role::gap, 100},     {Role::head, 400}, {Role::gap, 100},  {Role::sample, 7}};
  EXPECT_EQ(traced, expected);
}

TEST(LedgerDevice, SpansAreCutToTheStretchThatIsNotChargedYet) {
  Ledger ledger(on_fake_clock());
  ledger.begin_generation(Role::schedule);
  ledger.begin_round(Phase::decode);
  FakeClock::now += 500;
  ledger.enter(Role::gap);
  const uint64_t t = FakeClock::now;
  FakeClock::now += 1'000;
  const DeviceSpan spans[] = {{Role::embed, t - 300, t - 200},  // all before
                              {Role::attention, t - 100, t + 200},
                              {Role::router, t + 150, t + 300},  // overlaps the one before
                              {Role::head, t + 900, t + 5'000}};
  ledger.charge_device(spans);
  const RoundReport round = ledger.end_round(1, 1);
  EXPECT_EQ(round_ns(round, Role::embed), 0u);
  EXPECT_EQ(round_ns(round, Role::attention), 200u);
  EXPECT_EQ(round_ns(round, Role::router), 100u);
  EXPECT_EQ(round_ns(round, Role::head), 100u);
  EXPECT_EQ(round_ns(round, Role::gap), 600u);
  EXPECT_EQ(round_ns(round, Role::schedule), 500u);
}

TEST(LedgerDevice, AnySpansLeaveTheAccountAdditive) {
  Ledger ledger(on_fake_clock());
  ledger.begin_generation(Role::schedule);
  uint64_t draw = 0;
  const auto pick = [&](uint64_t n) { return random_u64(7, draw++) % n; };
  for (int i = 0; i < 500; ++i) {
    ledger.begin_round(Phase::decode);
    ledger.enter(Role::gap);
    const uint64_t begin = FakeClock::now;
    FakeClock::now += pick(1'000);
    std::vector<DeviceSpan> spans;
    for (uint64_t n = pick(6); n > 0; --n) {
      const uint64_t at = begin + pick(1'200) - 100;
      spans.push_back({static_cast<Role>(pick(role_count)), at, at + pick(300)});
    }
    ledger.charge_device(spans);
    ledger.enter(Role::sample);
    FakeClock::now += pick(50);
    const RoundReport round = ledger.end_round(1, 1);
    uint64_t sum = 0;
    for (const uint64_t ns : round.role_ns) sum += ns;
    EXPECT_EQ(sum, round.end_ns - round.begin_ns) << i;
  }
  ledger.end_generation();
  EXPECT_EQ(sum_of_roles(ledger.phase(Phase::decode)), ledger.phase(Phase::decode).wall_ns);
  EXPECT_EQ(ledger.generation_wall_ns(), ledger.phase(Phase::decode).wall_ns);
}

TEST(LedgerDevice, SpansInAnotherRoleThanGapAreABug) {
  Ledger ledger(on_fake_clock());
  ledger.begin_generation(Role::schedule);
  EXPECT_DEATH(ledger.charge_device({}), "device spans in schedule");
}

TEST(LedgerDevice, BytesGoToTheRoleThatIsNamed) {
  Ledger ledger(on_fake_clock());
  ledger.begin_generation(Role::schedule);
  ledger.begin_round(Phase::decode);
  ledger.enter(Role::gap);
  ledger.bytes_for(Role::attention, 100);
  ledger.end_round(1, 1);
  EXPECT_EQ(ledger.phase(Phase::decode).roles[static_cast<int>(Role::attention)].bytes, 100u);
  EXPECT_EQ(ledger.phase(Phase::decode).roles[static_cast<int>(Role::gap)].bytes, 0u);
}

TEST(LedgerDevice, ADelayIsHandedToTheDeviceOnceInARoundThatInjects) {
  LedgerOptions options = on_fake_clock();
  options.inject_role = Role::router;
  options.inject_ns = 5'000;
  Ledger ledger(options);
  ledger.begin_generation(Role::schedule);
  Role role = Role::unattributed;
  EXPECT_EQ(ledger.device_delay_pending(&role), 0u) << "no round is open";
  int injected = 0;
  for (uint64_t i = 0; i < 40; ++i) {
    ledger.begin_round(Phase::decode);
    role = Role::unattributed;
    EXPECT_EQ(ledger.device_delay_pending(&role), ledger.injects(i) ? 5'000u : 0u);
    EXPECT_EQ(role, ledger.injects(i) ? Role::router : Role::unattributed);
    EXPECT_EQ(ledger.take_device_delay(Role::attention), 0u);
    EXPECT_EQ(ledger.take_device_delay(Role::router), ledger.injects(i) ? 5'000u : 0u);
    EXPECT_EQ(ledger.take_device_delay(Role::router), 0u) << "once a round";
    EXPECT_EQ(ledger.device_delay_pending(&role), 0u);
    const RoundReport& round = ledger.end_round(1, 1);
    EXPECT_EQ(round.injected, ledger.injects(i));
    EXPECT_EQ(round.injected_ns, ledger.injects(i) ? 5'000u : 0u);
    injected += round.injected;
  }
  EXPECT_GT(injected, 0);
}

TEST(LedgerDevice, ADelayInAHostRoleIsNotTheDevices) {
  for (const Role role : {Role::sample, Role::gap, Role::expert_wait}) {
    LedgerOptions options = on_fake_clock();
    options.inject_role = role;
    options.inject_ns = 5'000;
    Ledger ledger(options);
    ledger.begin_generation(Role::schedule);
    for (int i = 0; i < 20; ++i) {
      ledger.begin_round(Phase::decode);
      Role pending = Role::unattributed;
      EXPECT_EQ(ledger.device_delay_pending(&pending), 0u);
      EXPECT_EQ(ledger.take_device_delay(role), 0u);
      ledger.end_round(1, 1);
    }
  }
}

TEST(LedgerDevice, TheReportsSayHowTheClocksAreTied) {
  Ledger ledger(on_fake_clock());
  ledger.begin_generation(Role::schedule);
  ledger.end_generation();
  EXPECT_EQ(report_text(ledger).find("device clock"), std::string::npos);
  EXPECT_FALSE(ledger_json(ledger).contains("device_clock"));
  ledger.set_device_clock({32, 1'500});
  EXPECT_NE(report_text(ledger).find("device clock: steps of 0.032 us, tied to the host's within 1.500 us\n"),
            std::string::npos);
  EXPECT_EQ(ledger_json(ledger)["device_clock"]["tick_ns"], 32);
  EXPECT_EQ(ledger_json(ledger)["device_clock"]["bound_ns"], 1'500);
}

}  // namespace
}  // namespace weir
