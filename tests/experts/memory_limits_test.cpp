// Limits read below made-up roots, the default budget, sizes on the command line, and what the process used.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "base/control_groups.h"
#include "base/error.h"
#include "experts/plan.h"

namespace weir {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
constexpr uint64_t gib = uint64_t{1} << 30;

class FakeRoot : public testing::Test {
 protected:
  void SetUp() override {
    root_ = fs::temp_directory_path() /
            fmt::format("weir-root-{}-{}", getpid(),
                        testing::UnitTest::GetInstance()->current_test_info()->name());
    fs::remove_all(root_);
    put("proc/meminfo",
        "MemTotal:       24000000 kB\nMemFree:         1000000 kB\nMemAvailable:   20000000 kB\n");
  }
  void TearDown() override { fs::remove_all(root_); }
  void put(const std::string& path, const std::string& text) {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }
  MemoryLimits limits() { return read_memory_limits(root_.string()); }
  fs::path root_;
};

TEST_F(FakeRoot, WithoutGroupsOnlyTheMachineLimits) {
  EXPECT_EQ(limits().total, uint64_t{24'000'000} * 1024);
  EXPECT_EQ(limits().available, uint64_t{20'000'000} * 1024);
  EXPECT_FALSE(limits().cgroup_limit);
}

TEST_F(FakeRoot, VersionOneTakesTheSmallestLimitOnTheWayUp) {
  put("proc/self/cgroup", "9:name=systemd:/\n4:memory:/a/b/c\n0::/\n");
  const std::string base = "sys/fs/cgroup/memory/";
  put(base + "memory.limit_in_bytes", "9223372036854771712\n");
  put(base + "a/memory.limit_in_bytes", "3221225472\n");
  put(base + "a/memory.usage_in_bytes", "1000\n");
  put(base + "a/b/memory.limit_in_bytes", "4294967296\n");
  put(base + "a/b/c/memory.limit_in_bytes", "9223372036854771712\n");
  EXPECT_EQ(limits().cgroup_limit, 3 * gib);
  EXPECT_EQ(limits().group->used, 1000u);
  EXPECT_EQ(limits().group->name, "memory.limit_in_bytes");
}

TEST_F(FakeRoot, VersionOneWithJoinedControllersAndAPathThatIsNotMountedHere) {
  put("proc/self/cgroup", "4:cpuset,memory,pids:/docker/0123abcd\n");
  put("sys/fs/cgroup/memory/memory.limit_in_bytes", "536870912\n");
  EXPECT_EQ(limits().cgroup_limit, 512u << 20);
  EXPECT_EQ(limits().group->used, 0u);
}

TEST_F(FakeRoot, VersionOneUnlimitedIsNoLimit) {
  put("proc/self/cgroup", "4:memory:/\n");
  put("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  EXPECT_FALSE(limits().cgroup_limit);
}

TEST_F(FakeRoot, VersionTwoWalksUpAndSkipsMax) {
  put("proc/self/cgroup", "0::/user.slice/weir.scope\n");
  put("sys/fs/cgroup/user.slice/memory.max", "2147483648\n");
  put("sys/fs/cgroup/user.slice/memory.current", "77\n");
  put("sys/fs/cgroup/user.slice/weir.scope/memory.max", "max\n");
  EXPECT_EQ(limits().cgroup_limit, 2 * gib);
  EXPECT_EQ(limits().group->used, 77u);
}

TEST_F(FakeRoot, VersionTwoCountsMemoryHighAndWhatCanBeReclaimed) {
  put("proc/self/cgroup", "0::/a/b\n");
  put("sys/fs/cgroup/a/memory.max", "8000\n");
  put("sys/fs/cgroup/a/memory.high", "6000\n");
  put("sys/fs/cgroup/a/memory.current", "3000\n");
  put("sys/fs/cgroup/a/memory.stat",
      "anon 1500\nfile 1400\nfile_dirty 30\nfile_writeback 20\ninactive_anon 700\nactive_anon 800\n"
      "inactive_file 900\nactive_file 200\nunevictable 300\nslab_reclaimable 50\nslab 60\n");
  put("sys/fs/cgroup/a/b/memory.max", "5900\n");
  put("sys/fs/cgroup/a/b/memory.current", "100\n");
  const MemoryLimits found = limits();
  EXPECT_EQ(found.cgroup_limit, 5900u) << "the smallest hard limit";
  ASSERT_TRUE(found.group);
  EXPECT_EQ(found.group->name, "memory.high") << "leaves least";
  EXPECT_EQ(found.group->limit, 6000u);
  EXPECT_EQ(found.group->used, 3000u);
  EXPECT_EQ(found.group->reclaimable, 900u + 200 + 50 - 30 - 20);
  EXPECT_EQ(found.group->left(), 6000u - 3000 + 1100);
}

TEST_F(FakeRoot, VersionOneCountsWhatCanBeReclaimed) {
  put("proc/self/cgroup", "4:memory:/a\n");
  put("sys/fs/cgroup/memory/a/memory.limit_in_bytes", "6000\n");
  put("sys/fs/cgroup/memory/a/memory.usage_in_bytes", "3000\n");
  put("sys/fs/cgroup/memory/a/memory.stat",
      "cache 1\ninactive_file 7\ntotal_inactive_file 900\ntotal_active_file 200\ntotal_dirty 30\n"
      "total_writeback 20\n");
  EXPECT_EQ(limits().group->left(), 6000u - 3000 + 1050);
}

TEST_F(FakeRoot, NoMoreIsReclaimedThanIsUsedAndNoLessThanNothingIsLeft) {
  put("proc/self/cgroup", "0::/\n");
  put("sys/fs/cgroup/memory.max", "1000\n");
  put("sys/fs/cgroup/memory.current", "3000\n");
  put("sys/fs/cgroup/memory.stat", "inactive_file 5000\n");
  EXPECT_EQ(limits().group->left(), 1000u);
  put("sys/fs/cgroup/memory.stat", "inactive_file 10\nfile_dirty 20\n");
  EXPECT_EQ(limits().group->left(), 0u);
}

TEST_F(FakeRoot, TheQuotaOfProcessorsIsTheSmallestOnTheWayUp) {
  const std::string root = root_.string();
  EXPECT_FALSE(cpu_quota(root));
  put("proc/self/cgroup", "0::/a/b\n");
  put("sys/fs/cgroup/a/cpu.max", "150000 100000\n");
  put("sys/fs/cgroup/a/b/cpu.max", "max 100000\n");
  EXPECT_EQ(cpu_quota(root), 1.5);
  put("sys/fs/cgroup/a/b/cpu.max", "50000 100000\n");
  EXPECT_EQ(cpu_quota(root), 0.5);
  put("proc/self/cgroup", "3:cpu,cpuacct:/x\n0::/y\n");
  put("sys/fs/cgroup/cpu,cpuacct/x/cpu.cfs_quota_us", "-1\n");
  put("sys/fs/cgroup/cpu,cpuacct/x/cpu.cfs_period_us", "100000\n");
  EXPECT_FALSE(cpu_quota(root));
  put("sys/fs/cgroup/cpu,cpuacct/x/cpu.cfs_quota_us", "300000\n");
  EXPECT_EQ(cpu_quota(root), 3.0);
  put("sys/fs/cgroup/cpu,cpuacct/x/cpu.cfs_period_us", "0\n");
  EXPECT_FALSE(cpu_quota(root));
}

TEST_F(FakeRoot, VersionTwoBesideVersionOne) {
  put("proc/self/cgroup", "4:memory:/x\n0::/y\n");
  put("sys/fs/cgroup/memory/x/memory.limit_in_bytes", "5000000000\n");
  put("sys/fs/cgroup/unified/y/memory.max", "4000000000\n");
  EXPECT_EQ(limits().cgroup_limit, 4'000'000'000u);
}

TEST_F(FakeRoot, DamagedFilesMeanNoLimit) {
  put("proc/self/cgroup", "nonsense\n4:memory\n:::\n4:memory:/x\n");
  put("sys/fs/cgroup/memory/x/memory.limit_in_bytes", "12 apples\n");
  EXPECT_FALSE(limits().cgroup_limit);
}

TEST(MemoryLimits, ThisMachineHasMemory) {
  EXPECT_GT(read_memory_limits().total, 0u);
  EXPECT_GT(read_memory_limits().available, 0u);
  EXPECT_LE(read_memory_limits().available, read_memory_limits().total);
}

TEST(Threads, AreThoseThatTheQuotaPaysForMostOfTheTime) {
  EXPECT_EQ(threads_within_quota(8, std::nullopt), 8);
  EXPECT_EQ(threads_within_quota(8, 16.0), 8);
  EXPECT_EQ(threads_within_quota(8, 3.0), 3);
  EXPECT_EQ(threads_within_quota(8, 2.6), 3);
  EXPECT_EQ(threads_within_quota(8, 2.4), 2);
  EXPECT_EQ(threads_within_quota(8, 0.1), 1);
}

TEST(Budget, DefaultIsTheSmallerLimitLessTheReserve) {
  MemoryLimits limits;
  limits.available = 30 * gib;
  EXPECT_EQ(choose_budget(std::nullopt, limits).bytes, 27 * gib);
  EXPECT_THAT(choose_budget(std::nullopt, limits).source, HasSubstr("MemAvailable"));
  limits.group = GroupRoom{"memory.max", 8 * gib, 0, 0};
  EXPECT_EQ(choose_budget(std::nullopt, limits).bytes, 7 * gib);
  EXPECT_EQ(choose_budget(std::nullopt, limits).source, "cgroup memory.max less 1.00 GiB");
  limits.group = GroupRoom{"memory.high", 8 * gib, 3 * gib, gib};
  EXPECT_EQ(choose_budget(std::nullopt, limits).bytes, 5 * gib);
  EXPECT_EQ(choose_budget(std::nullopt, limits).source, "cgroup memory.high less 2.00 GiB used and 1.00 GiB");
  limits.group = GroupRoom{"memory.max", gib, 0, 0};
  EXPECT_EQ(choose_budget(std::nullopt, limits).bytes, gib / 2);
  limits.group = GroupRoom{"memory.max", gib, gib, 0};
  EXPECT_THROW(choose_budget(std::nullopt, limits), Error);
  EXPECT_THROW(choose_budget(std::nullopt, MemoryLimits{}), Error);
}

TEST(Budget, AboveTheGroupsLimitIsRefusedAboveWhatIsLeftWarns) {
  MemoryLimits limits;
  limits.available = 4 * gib;
  limits.cgroup_limit = 6 * gib;
  EXPECT_EQ(choose_budget(3 * gib, limits).bytes, 3 * gib);
  EXPECT_TRUE(choose_budget(3 * gib, limits).warnings.empty());
  EXPECT_EQ(choose_budget(5 * gib, limits).warnings.size(), 1u);
  EXPECT_EQ(choose_budget(6 * gib, limits).bytes, 6 * gib);
  try {
    choose_budget(6 * gib + 1, limits);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), Error::Kind::input);
    EXPECT_THAT(e.what(), HasSubstr("limit is 6.00 GiB (6442450944 bytes)"));
  }
  limits.group = GroupRoom{"memory.high", 5 * gib, 3 * gib, gib};
  const auto warnings = choose_budget(7 * gib / 2, limits).warnings;
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_THAT(warnings[0],
              HasSubstr("above the 3.00 GiB that the memory control group leaves now (memory.high "
                        "5.00 GiB, 3.00 GiB used of which 1.00 GiB can be reclaimed)"));
}

TEST(ParseBytes, UnderstandsBinaryAndDecimalUnits) {
  EXPECT_EQ(parse_bytes("--memory", "3GiB"), 3 * gib);
  EXPECT_EQ(parse_bytes("--memory", "512MiB"), 512u << 20);
  EXPECT_EQ(parse_bytes("--memory", "1.5G"), gib + gib / 2);
  EXPECT_EQ(parse_bytes("--memory", "2k"), 2048u);
  EXPECT_EQ(parse_bytes("--memory", "1T"), 1024 * gib);
  EXPECT_EQ(parse_bytes("--memory", "2000000"), 2'000'000u);
  EXPECT_EQ(parse_bytes("--memory", "77B"), 77u);
  EXPECT_EQ(parse_bytes("--memory", "20G"), 20 * gib);
  EXPECT_EQ(parse_bytes("--memory", "20MB"), 20'000'000u);
  EXPECT_EQ(parse_bytes("--memory", "1.5gb"), 1'500'000'000u);
  EXPECT_EQ(parse_bytes("--memory", "2KB"), 2000u);
  EXPECT_EQ(parse_bytes("--memory", "1TB"), 1'000'000'000'000u);
}

TEST(ParseBytes, RefusesAnythingElseNamingOptionAndText) {
  for (const char* text : {"", "GiB", "3PB", "3BB", "3Gi", "3 GiB", "-3G", "0", "0.0M", "1.5", "nan", "inf",
                           "1e9", "3GiBx", "9999999999T", "0x10", "+1G", "1,5G"}) {
    try {
      parse_bytes("--memory", text);
      ADD_FAILURE() << text;
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), Error::Kind::input) << text;
      EXPECT_THAT(e.what(), HasSubstr(fmt::format("--memory '{}': ", text)));
      EXPECT_THAT(e.what(), AllOf(HasSubstr("3GiB"), HasSubstr("20MB")));
    }
  }
}

TEST(MemoryUse, SeesThisProcessAndTheCacheOfAFile) {
  const fs::path path = fs::temp_directory_path() / fmt::format("weir-cached-{}", getpid());
  std::ofstream(path) << std::string(100'000, 'x');
  const MemoryUse use = read_memory_use({path.string()});
  EXPECT_GT(use.rss, 1u << 20);
  EXPECT_GE(use.peak_rss, use.rss);
  if (use.page_cache) {
    EXPECT_GE(*use.page_cache, 100'000u);
    EXPECT_LT(*use.page_cache, 200'000u);
  }
  fs::remove(path);
  EXPECT_FALSE(read_memory_use({path.string()}).page_cache)
      << "a file that cannot be asked is unknown, not 0";
}

}  // namespace
}  // namespace weir
