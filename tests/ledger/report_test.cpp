// The text report word for word, the line every N rounds, the derived figures and the JSON's shape.
#include "ledger/report.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "ledger/fake_clock.h"

namespace weir {
namespace {

/// Eight prompt rows in one round, then four decode rounds that read experts, then a reply.
void generate(Ledger& ledger) {
  ledger.begin_generation(Role::tokenize);
  FakeClock::now += 250'000;
  ledger.begin_round(Phase::prefill);
  spend(ledger, Role::attention, 40'000'000);
  ledger.bytes(800'000'000);
  ledger.end_round(8, 1);
  for (uint64_t i = 1; i <= 4; ++i) {
    ledger.begin_round(Phase::decode);
    spend(ledger, Role::schedule, 20'000);
    spend(ledger, Role::attention, 4'000'000);
    ledger.bytes(100'000'000);
    spend(ledger, Role::experts_hit, 3'000'000);
    ledger.bytes(60'000'000);
    spend(ledger, Role::expert_wait, i * 500'000);
    spend(ledger, Role::experts_miss, 1'000'000);
    ledger.hidden(Role::upload, 125'000);
    ledger.expert_traffic({30, 2, 8'000'000, 2, 1'500'000});
    ledger.imbalance(7'000'000, 1'000'000, 12);
    spend(ledger, Role::unattributed, 1'000);
    ledger.end_round(1, 1);
  }
  spend(ledger, Role::reply, 79'000);
  ledger.end_generation();
}

constexpr const char* golden_text =
    R"(ledger: 0.077 s wall = prefill 0.040 s + decode 0.037 s; 99.99 % attributed
prefill: 1 round, 8 rows, 8 tokens, 0.040 s, 198.76 tok/s
  round ms: min 40.250, max 40.250 (no quantiles: these rounds left the ring)
  role                   ms   % wall    us/round        GB     GB/s   hidden ms
  attention          40.000    99.38     40000.0     0.800    20.00           -
  tokenize            0.250     0.62       250.0         -        -           -
  unattributed        0.000     0.00         0.0         -        -           -
  total              40.250   100.00     40250.0
decode: 4 rounds, 4 rows, 4 tokens, 0.037 s, 107.63 tok/s
  round ms: min 8.521, p50 9.521, p90 9.921, p99 10.011, max 10.021 (quantiles of the last 3)
  role                   ms   % wall    us/round        GB     GB/s   hidden ms
  attention          16.000    43.05      4000.0     0.400    25.00           -
  experts_hit        12.000    32.29      3000.0     0.240    20.00           -
  experts_miss        4.000    10.76      1000.0         -        -           -
  upload              0.000     0.00         0.0         -        -       0.500
  expert_wait         5.000    13.45      1250.0         -        -           -
  schedule            0.080     0.22        20.0         -        -           -
  reply               0.079     0.21        19.8         -        -           -
  unattributed        0.004     0.01         1.0         -        -           -
  total              37.163   100.00      9290.8
  experts: 120 hits, 8 misses, hit rate 93.75 %
  reads: 8, 0.032 GB, 8.000 MB a token, 5.333 GB/s over 6.000 ms busy; 1.000 ms hidden, 5.000 ms exposed
  workers: 48 tasks, 28.000 ms busy, 4.000 ms at barriers (12.50 % of worker time)
dropped: 2 rounds from the ring of 3, 0 spans from the trace
Each instant is charged to one role, so ms and % wall add up to the total; GB are declared bytes; hidden ms
ran behind other work and is in no sum.
)";

TEST(LedgerReport, TheTextIsThisWordForWord) {
  LedgerOptions options = on_fake_clock();
  options.ring_rounds = 3;
  Ledger ledger(options);
  generate(ledger);
  EXPECT_EQ(report_text(ledger), golden_text);
  generate(ledger);
  EXPECT_EQ(report_text(ledger), golden_text) << "a second generation, the same report";
}

TEST(LedgerReport, AnEmptyLedgerReportsNothing) {
  const Ledger ledger(on_fake_clock());
  EXPECT_EQ(
      report_text(ledger).rfind("ledger: 0.000 s wall = nothing; 0.00 % attributed\ndropped: 0 rounds", 0),
      0u);
  EXPECT_EQ(round_line(ledger), "");
  EXPECT_TRUE(nlohmann::json::parse(report_json(ledger))["phases"].empty());
}

TEST(LedgerReport, InjectionIsShownInCapitals) {
  LedgerOptions options = on_fake_clock();
  options.inject_role = Role::attention;
  options.inject_ns = 50'000;
  Ledger ledger(options);
  FakeClock::step = 1'000;
  generate(ledger);
  const uint64_t injected = ledger.phase(Phase::decode).injected_rounds;
  ASSERT_GT(injected, 0u);
  EXPECT_NE(report_text(ledger).find("  DELAY INJECTED: 50.0 us into attention in " +
                                     std::to_string(injected) + " of 4 rounds\n"),
            std::string::npos);
  const auto json = nlohmann::json::parse(report_json(ledger));
  EXPECT_EQ(json["injection"]["role"], "attention");
  EXPECT_EQ(json["phases"]["decode"]["injected_rounds"], injected);
}

TEST(LedgerReport, TheLineCoversTheLastRoundsOfItsPhase) {
  LedgerOptions options = on_fake_clock();
  options.log_every = 2;
  Ledger ledger(options);
  generate(ledger);
  EXPECT_EQ(
      round_line(ledger),
      "ledger: decode round 4, last 2: 9.771 ms a round, 102.34 tok/s; attention 40.9 %, experts_hit 30.7 %, "
      "expert_wait 17.9 %, experts_miss 10.2 %, unattributed 0.0 %; hit rate 93.8 %, 8.000 MB read a round");
}

TEST(LedgerReport, TheLineIsWrittenOnlyWhenDue) {
  LedgerOptions options = on_fake_clock();
  options.log_every = 2;
  Ledger ledger(options);
  ledger.begin_generation();
  auto round = [&] {
    ledger.begin_round(Phase::decode);
    spend(ledger, Role::head, 1'000'000);
    ledger.end_round(1, 1);
    testing::internal::CaptureStderr();
    log_round_line(&ledger);
    return testing::internal::GetCapturedStderr();
  };
  EXPECT_EQ(round(), "");
  EXPECT_EQ(
      round(),
      "ledger: decode round 2, last 2: 1.000 ms a round, 1000.00 tok/s; head 100.0 %, unattributed 0.0 %\n");
  log_round_line(nullptr);
}

TEST(LedgerReport, HiddenReadTimeHasAFloorOfZero) {
  PhaseAccount account;
  account.experts.read_busy_ns = 100;
  account.roles[static_cast<int>(Role::expert_wait)].per_round.sum_ns = 40;
  EXPECT_EQ(phase_figures(account).hidden_read_ns, 60u);
  account.roles[static_cast<int>(Role::expert_wait)].per_round.sum_ns = 140;
  EXPECT_EQ(phase_figures(account).hidden_read_ns, 0u);
  EXPECT_EQ(phase_figures(account).exposed_read_ns, 140u);
}

TEST(LedgerReport, FiguresAreSharesAndRates) {
  Ledger ledger(on_fake_clock());
  generate(ledger);
  const PhaseFigures f = phase_figures(ledger.phase(Phase::decode));
  EXPECT_DOUBLE_EQ(f.hit_rate, 120.0 / 128);
  EXPECT_DOUBLE_EQ(f.bytes_per_token, 8e6);
  EXPECT_DOUBLE_EQ(f.read_bytes_per_second, 32e6 / 6e-3);
  EXPECT_DOUBLE_EQ(f.barrier_share, 0.125);
  EXPECT_DOUBLE_EQ(f.coverage, 1 - 4'000 / 37'163'000.0);
  EXPECT_DOUBLE_EQ(f.tokens_per_second, 4 / 37.163e-3);
  const PhaseFigures none = phase_figures(PhaseAccount{});
  EXPECT_EQ(none.hit_rate + none.coverage + none.tokens_per_second + none.read_bytes_per_second, 0);
}

std::string documentation() {
  std::stringstream text;
  text << std::ifstream(WEIR_SOURCE_DIR "/docs/ledger.md").rdbuf();
  return text.str();
}

TEST(LedgerDocs, TheSampleIsWhatTheReportPrints) {
  EXPECT_NE(documentation().find(std::string("```\n") + golden_text + "```\n"), std::string::npos);
}

TEST(LedgerDocs, EveryRoleIsDescribedAsInTheTable) {
  const std::string text = documentation();
  for (int r = 0; r < role_count; ++r) {
    const auto role = static_cast<Role>(r);
    const char* lane = role_lane(role) == LaneKind::device ? "device"
                       : role_lane(role) == LaneKind::side ? "side"
                                                           : "host";
    const std::string row =
        std::string("| `") + role_name(role) + "` | " + lane + " | " + role_description(role) + " |\n";
    EXPECT_NE(text.find(row), std::string::npos) << row;
  }
}

std::vector<std::string> keys(const nlohmann::ordered_json& json) {
  std::vector<std::string> names;
  for (const auto& [key, value] : json.items()) names.push_back(key);
  return names;
}

using Names = std::vector<std::string>;

TEST(LedgerJson, KeysAndTheirOrderAreTheSchema) {
  Ledger ledger(on_fake_clock());
  generate(ledger);
  const auto json = nlohmann::ordered_json::parse(report_json(ledger));
  EXPECT_EQ(keys(json), (Names{"schema", "wall_ns", "coverage", "phases", "dropped", "cumulative"}));
  EXPECT_EQ(json["schema"], "weir-ledger-1");
  EXPECT_EQ(keys(json["phases"]), (Names{"prefill", "decode"}));
  const auto& decode = json["phases"]["decode"];
  EXPECT_EQ(keys(decode), (Names{"rounds", "rows", "tokens", "wall_ns", "tail_ns", "tokens_per_second",
                                 "coverage", "round_ns", "roles", "experts", "workers", "injected_rounds"}));
  EXPECT_EQ(keys(decode["round_ns"]),
            (Names{"min", "mean", "max", "p50", "p90", "p99", "quantile_rounds", "histogram"}));
  EXPECT_EQ(keys(decode["roles"]), (Names{"attention", "experts_hit", "experts_miss", "upload", "expert_wait",
                                          "schedule", "reply", "unattributed"}));
  EXPECT_EQ(keys(decode["roles"]["attention"]),
            (Names{"lane", "ns", "share", "us_per_round", "rounds", "min_ns", "max_ns", "switches", "bytes",
                   "gb_per_second", "hidden_ns", "histogram"}));
  EXPECT_EQ(keys(decode["experts"]),
            (Names{"hits", "misses", "hit_rate", "reads", "bytes_read", "bytes_per_token", "read_busy_ns",
                   "read_gb_per_second", "read_exposed_ns", "read_hidden_ns"}));
  EXPECT_EQ(keys(decode["workers"]), (Names{"tasks", "busy_ns", "barrier_ns", "barrier_share"}));
  EXPECT_EQ(keys(json["dropped"]), (Names{"ring_rounds", "rounds", "spans"}));
  EXPECT_EQ(keys(json["cumulative"]["decode"]), (Names{"rounds", "rows", "tokens", "wall_ns", "role_ns"}));
}

TEST(LedgerJson, RolesAddUpToWallExactly) {
  Ledger ledger(on_fake_clock());
  generate(ledger);
  const auto json = nlohmann::ordered_json::parse(report_json(ledger));
  uint64_t wall = 0;
  for (const auto& [name, phase] : json["phases"].items()) {
    uint64_t sum = 0;
    for (const auto& [role, account] : phase["roles"].items()) sum += account["ns"].get<uint64_t>();
    EXPECT_EQ(sum, phase["wall_ns"].get<uint64_t>()) << name;
    wall += sum;
  }
  EXPECT_EQ(json["wall_ns"], wall);
  EXPECT_EQ(json["phases"]["decode"]["tail_ns"], 79'000);
  EXPECT_EQ(json["phases"]["decode"]["round_ns"]["p50"], 9'271'000.0);
  EXPECT_EQ(json["phases"]["decode"]["round_ns"]["histogram"],
            nlohmann::ordered_json::parse("[[8388608,4]]"));
  EXPECT_EQ(json["phases"]["decode"]["roles"]["attention"]["gb_per_second"], 25.0);
  EXPECT_EQ(json["phases"]["decode"]["roles"]["upload"]["hidden_ns"], 500'000);
}

/// Every key below `json`, names of phases and roles among them.
void expect_documented(const nlohmann::ordered_json& json, const std::string& text) {
  for (const auto& [key, value] : json.items()) {
    if (json.is_object()) {
      EXPECT_NE(text.find("`" + key + "`"), std::string::npos) << key;
    }
    if (value.is_structured()) expect_documented(value, text);
  }
}

TEST(LedgerDocs, EveryJsonKeyIsDocumented) {
  LedgerOptions options = on_fake_clock();
  options.inject_role = Role::attention;
  options.inject_ns = 1;
  FakeClock::step = 1;
  Ledger ledger(options);
  generate(ledger);
  expect_documented(nlohmann::ordered_json::parse(report_json(ledger)), documentation());
}

}  // namespace
}  // namespace weir
