// The environment as the project reads it.
#include "base/args.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace weir {
namespace {

TEST(Environment, TellsUnsetFromEmpty) {
  ::unsetenv("WEIR_TEST_VARIABLE");
  EXPECT_EQ(environment("WEIR_TEST_VARIABLE"), std::nullopt);
  ::setenv("WEIR_TEST_VARIABLE", "", 1);
  EXPECT_EQ(environment("WEIR_TEST_VARIABLE"), "");
  ::setenv("WEIR_TEST_VARIABLE", "a b", 1);
  EXPECT_EQ(environment("WEIR_TEST_VARIABLE"), "a b");
  ::unsetenv("WEIR_TEST_VARIABLE");
}

TEST(Environment, ScopedSettingsLeaveNoTrace) {
  ::setenv("WEIR_TEST_VARIABLE", "before", 1);
  ::unsetenv("WEIR_TEST_OTHER");
  {
    const ScopedEnvironment scope(
        {{"WEIR_TEST_VARIABLE", "1"}, {"WEIR_TEST_OTHER", ""}, {"WEIR_TEST_VARIABLE", "2"}});
    EXPECT_EQ(environment("WEIR_TEST_VARIABLE"), "2");
    EXPECT_EQ(environment("WEIR_TEST_OTHER"), "");
  }
  EXPECT_EQ(environment("WEIR_TEST_VARIABLE"), "before");
  EXPECT_EQ(environment("WEIR_TEST_OTHER"), std::nullopt);
  ::unsetenv("WEIR_TEST_VARIABLE");
}

TEST(Environment, ADefaultLeavesWhatTheUserSet) {
  ::unsetenv("WEIR_TEST_VARIABLE");
  set_environment_default("WEIR_TEST_VARIABLE", "default");
  EXPECT_EQ(environment("WEIR_TEST_VARIABLE"), "default");
  ::setenv("WEIR_TEST_VARIABLE", "user", 1);
  set_environment_default("WEIR_TEST_VARIABLE", "default");
  EXPECT_EQ(environment("WEIR_TEST_VARIABLE"), "user");
  ::unsetenv("WEIR_TEST_VARIABLE");
}

}  // namespace
}  // namespace weir
