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

}  // namespace
}  // namespace weir
