// The values of --ledger and WEIR_LEDGER, and the tables of roles and phases.
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "base/error.h"
#include "ledger/ledger.h"

namespace weir {
namespace {

TEST(LedgerSwitch, TheFlagTakesACountOrZero) {
  EXPECT_EQ(parse_ledger_flag("0"), 0);
  EXPECT_EQ(parse_ledger_flag("1"), 1);
  EXPECT_EQ(parse_ledger_flag("256"), 256);
  EXPECT_EQ(parse_ledger_flag("2147483647"), 2147483647);
}

constexpr const char* bad_values[] = {"-1",  "-0", "+1",   " 1",  "1 ",         "1.5",
                                      "1e3", "on", "0x10", "yes", "2147483648", "99999999999999999999"};

TEST(LedgerSwitch, TheFlagRefusesAnythingElseAndNamesIt) {
  for (const std::string value : bad_values) {
    try {
      parse_ledger_flag(value);
      ADD_FAILURE() << value << " was taken";
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("'" + value + "'"), std::string::npos) << error.what();
      EXPECT_EQ(error.kind(), Error::Kind::input);
    }
  }
  EXPECT_THROW(parse_ledger_flag(""), Error);
}

TEST(LedgerSwitch, TheEnvironmentIsOffOrOnWithoutAWord) {
  testing::internal::CaptureStderr();
  EXPECT_EQ(parse_ledger_environment(nullptr), 0);
  EXPECT_EQ(parse_ledger_environment(""), 0);
  EXPECT_EQ(parse_ledger_environment("0"), 0);
  EXPECT_EQ(parse_ledger_environment("1"), 1);
  EXPECT_EQ(parse_ledger_environment("40"), 40);
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

TEST(LedgerSwitch, TheEnvironmentIsOffWithOneWarningForAnythingElse) {
  for (const char* value : bad_values) {
    testing::internal::CaptureStderr();
    EXPECT_EQ(parse_ledger_environment(value), 0) << value;
    EXPECT_EQ(testing::internal::GetCapturedStderr(),
              std::string("weir: warning: WEIR_LEDGER='") + value +
                  "': not a positive integer or 0; the ledger stays off\n");
  }
}

TEST(LedgerRoles, EveryRoleHasANameOfItsOwnADescriptionAndALane) {
  std::set<std::string> names;
  for (int r = 0; r < role_count; ++r) {
    const auto role = static_cast<Role>(r);
    EXPECT_TRUE(names.insert(role_name(role)).second) << role_name(role);
    EXPECT_GT(std::string(role_description(role)).size(), 5u);
  }
  EXPECT_STREQ(role_name(Role::experts_miss), "experts_miss");
  EXPECT_STREQ(role_name(Role::unattributed), "unattributed");
  EXPECT_EQ(role_lane(Role::attention), LaneKind::device);
  EXPECT_EQ(role_lane(Role::expert_wait), LaneKind::side);
  EXPECT_EQ(role_lane(Role::unattributed), LaneKind::host);
  EXPECT_STREQ(phase_name(Phase::prefill), "prefill");
  EXPECT_STREQ(phase_name(Phase::decode), "decode");
  EXPECT_STREQ(phase_name(Phase::verify), "verify");
}

}  // namespace
}  // namespace weir
