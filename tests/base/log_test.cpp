// Sizes and times as people read them.
#include "base/log.h"

#include <gtest/gtest.h>

namespace weir {
namespace {

TEST(Log, DurationsKeepTwoUnits) {
  EXPECT_EQ(human_duration(0.2), "0 s");
  EXPECT_EQ(human_duration(59.4), "59 s");
  EXPECT_EQ(human_duration(59.6), "1 min 0 s");
  EXPECT_EQ(human_duration(200), "3 min 20 s");
  EXPECT_EQ(human_duration(3599.9), "1 h 0 min");
  EXPECT_EQ(human_duration(2 * 3600 + 5 * 60 + 59), "2 h 5 min");
}

}  // namespace
}  // namespace weir
