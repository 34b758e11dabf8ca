#include "base/quantity.h"

#include <gtest/gtest.h>

namespace weir {
namespace {

TEST(Quantity, OneHasNoPlural) {
  EXPECT_EQ(quantity(1, "token"), "1 token");
  EXPECT_EQ(quantity(0, "token"), "0 tokens");
  EXPECT_EQ(quantity(12, "token"), "12 tokens");
  EXPECT_EQ(quantity(1, "miss", "misses"), "1 miss");
  EXPECT_EQ(quantity(2, "miss", "misses"), "2 misses");
}

TEST(TypedBytes, HoldWhatWasAskedFor) {
  EXPECT_EQ(typed_bytes(1), "0.1MiB");
  EXPECT_EQ(typed_bytes(uint64_t{1} << 20), "1.0MiB");
  EXPECT_EQ(typed_bytes((uint64_t{1} << 20) + 1), "1.1MiB");
  EXPECT_EQ(typed_bytes(uint64_t{10} << 30), "10.00GiB");
  EXPECT_EQ(typed_bytes((uint64_t{10} << 30) + 1), "10.01GiB");
}

}  // namespace
}  // namespace weir
