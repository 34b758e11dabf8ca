// Memory of two arms in one process, told apart.
#include "lab/ab/memory_meter.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstring>

#include "experts/plan.h"
#include "support/sanitized.h"

namespace weir::lab::ab {
namespace {

constexpr size_t mib = 1 << 20;

/// Pages that are touched, so that they count as resident.
class Pages {
 public:
  explicit Pages(size_t bytes) : bytes_(bytes) {
    data_ = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    std::memset(data_, 1, bytes);
  }
  ~Pages() { munmap(data_, bytes_); }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;

 private:
  void* data_;
  size_t bytes_;
};

/// In MiB above the process at its start.
double above(uint64_t peak, uint64_t start) {
  return (static_cast<double>(peak) - static_cast<double>(start)) / mib;
}

TEST(AbMemoryMeter, AnArmIsChargedWhatItAddsAndNotTheOther) {
  if (test::sanitized) GTEST_SKIP() << "a sanitizer's own memory counts";
  const uint64_t start = read_memory_use({}).rss;
  MemoryMeter meter;
  meter.begin(Side::a);
  const Pages of_a(64 * mib);
  EXPECT_NEAR(above(meter.end(), start), 64, 8);
  meter.begin(Side::b);
  const Pages of_b(24 * mib);
  EXPECT_NEAR(above(meter.end(), start), 24, 8) << "without A's 64 MiB";
  meter.begin(Side::a);
  EXPECT_NEAR(above(meter.end(), start), 64, 8) << "what it still holds";
  meter.begin(Side::b);
  const Pages more_of_b(32 * mib);
  EXPECT_NEAR(above(meter.end(), start), 56, 8) << "it grows on its own";
}

TEST(AbMemoryMeter, APeakThatIsGoneAgainCounts) {
  if (test::sanitized) GTEST_SKIP() << "a sanitizer's own memory counts";
  const uint64_t start = read_memory_use({}).rss;
  MemoryMeter meter;
  meter.begin(Side::a);
  { const Pages for_a_while(64 * mib); }
  EXPECT_NEAR(above(meter.end(), start), 64, 8);
  meter.begin(Side::a);
  EXPECT_NEAR(above(meter.end(), start), 0, 8) << "the peak of this run";
}

}  // namespace
}  // namespace weir::lab::ab
