// tools/install_deps.sh: what it says to someone it cannot help. Stubs stand in for dpkg-query, id, sudo and
// apt-get; nothing is installed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "support/paths.h"
#include "support/process.h"
#include "support/temp_dir.h"

namespace weir::test {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

/// The script, with the stubs and these programs alone in its PATH.
class InstallDeps : public ::testing::Test {
 protected:
  InstallDeps() {
    for (const char* name : {"mktemp", "rm", "tail", "env"})
      std::filesystem::create_symlink(std::string("/usr/bin/") + name, dir_.path() / name);
    stub("id", "if [ \"$1\" = -un ]; then echo somebody; else echo 1000; fi");
    stub("dpkg-query", "case \"$*\" in *ninja-build*) exit 1 ;; esac; echo 'install ok installed'");
    stub("apt-get", "echo \"$@\" >>\"${0%/*}/calls\"");
  }

  void stub(const std::string& name, const std::string& script) {
    write_file(dir_.file(name), "#!/bin/sh\n" + script + "\n");
    std::filesystem::permissions(dir_.path() / name, std::filesystem::perms::owner_all);
  }

  ProcessResult run() const {
    ProcessOptions options;
    options.command = {"/bin/sh", testing::source_path("tools/install_deps.sh")};
    options.environment = {{"PATH", dir_.path().string()}};
    return run_process(options);
  }

  std::string calls() const { return read_file(dir_.file("calls")); }

  TempDir dir_;
};

TEST_F(InstallDeps, SaysNothingWhereAllIsThere) {
  stub("dpkg-query", "echo 'install ok installed'");
  const ProcessResult result = run();
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.out + result.err, "");
}

TEST_F(InstallDeps, GivesTheCommandToThoseWhoCannotBecomeRoot) {
  const ProcessResult result = run();
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_EQ(result.out, "");
  EXPECT_EQ(result.err,
            "weir: cannot install packages as somebody without sudo; as root run: apt-get update && "
            "apt-get install -y --no-install-recommends ninja-build\n");
}

TEST_F(InstallDeps, RootInstallsWhatIsMissingAfterAnUpdate) {
  stub("id", "echo 0");
  const ProcessResult result = run();
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.err, "weir: installing ninja-build\n");
  EXPECT_EQ(calls(), "update -q\ninstall -y -q --no-install-recommends ninja-build\n");
}

TEST_F(InstallDeps, ShowsWhatAptSaidWhereItFails) {
  stub("sudo", "exec \"$@\"");
  stub("apt-get", "echo \"E: $1 failed\" >&2; exit 100");
  const ProcessResult result = run();
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, StartsWith("weir: installing ninja-build\n"));
  EXPECT_THAT(result.err, HasSubstr("E: update failed\n"));
  EXPECT_THAT(result.err,
              EndsWith("weir: apt-get could not install ninja-build (its last lines are above)\n"));
}

}  // namespace
}  // namespace weir::test
