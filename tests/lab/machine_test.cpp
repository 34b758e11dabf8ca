// What the machine says of itself.
#include "lab/machine.h"

#include <gtest/gtest.h>

#include "base/file.h"
#include "support/temp_dir.h"

namespace weir::lab {
namespace {

TEST(Machine, KnowsWhatAHypervisorTook) {
  const test::TempDir dir;
  const auto of = [&](const std::string& text) {
    write_file_atomically(dir.file("stat"), text);
    return stolen_ns(dir.file("stat"));
  };
  EXPECT_EQ(of("cpu  1 2 3 4 5 6 7 81 0 0\ncpu0 1 2 3 4 5 6 7 9 0 0\n"), 810'000'000u);
  EXPECT_EQ(of("cpu  1 2 3 4 5 6 7\n"), std::nullopt) << "kernels before 2.6.11";
  EXPECT_EQ(of("intr 1 2 3 4 5 6 7 8\n"), std::nullopt);
  EXPECT_EQ(stolen_ns(dir.file("none")), std::nullopt);
  const auto before = stolen_ns();
  EXPECT_GE(stolen_ns(), before) << "it only grows; nothing is below any number";
}

}  // namespace
}  // namespace weir::lab
