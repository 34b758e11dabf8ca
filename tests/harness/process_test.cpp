// The process runner that the command-line tests stand on.
#include "support/process.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <system_error>

#include "support/temp_dir.h"

namespace weir::test {
namespace {

ProcessResult shell(const std::string& script, ProcessOptions options = {}) {
  options.command = {"/bin/sh", "-c", script};
  return run_process(options);
}

TEST(Process, KeepsStreamsApartAndTheExitCode) {
  const ProcessResult result = shell("echo out; echo err >&2; exit 3");
  EXPECT_EQ(result.out, "out\n");
  EXPECT_EQ(result.err, "err\n");
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_EQ(result.signal, 0);
}

TEST(Process, TellsASignalFromAnExit) {
  const ProcessResult result = shell("kill -SEGV $$");
  EXPECT_EQ(result.signal, SIGSEGV);
  EXPECT_EQ(result.exit_code, -1);
}

TEST(Process, PassesInputLargerThanAPipe) {
  ProcessOptions options;
  options.input = std::string(1 << 20, 'x');
  EXPECT_EQ(shell("cat", options).out, options.input);
}

TEST(Process, SurvivesAProgramThatReadsNoInput) {
  ProcessOptions options;
  options.input = std::string(1 << 20, 'x');
  EXPECT_EQ(shell("exec true", options).exit_code, 0);
}

TEST(Process, ReplacesVariablesAndKeepsTheOthers) {
  ProcessOptions options;
  options.environment = {{"WEIR_TEST_VARIABLE", "a b"}};
  EXPECT_EQ(shell("echo \"$WEIR_TEST_VARIABLE\"; test -n \"$PATH\"", options).out, "a b\n");
}

TEST(Process, KillsWhatOutlivesItsTime) {
  ProcessOptions options;
  options.timeout_seconds = 0.2;
  const ProcessResult result = shell("exec sleep 60", options);
  EXPECT_TRUE(result.timed_out);
  EXPECT_EQ(result.signal, SIGKILL);
}

TEST(Process, CallsBackInTheMidstOfTheOutput) {
  ProcessOptions options;
  options.on_first_output = [](pid_t pid) { kill(pid, SIGTERM); };
  const ProcessResult result = shell("echo first; exec sleep 60", options);
  EXPECT_EQ(result.signal, SIGTERM);
  EXPECT_EQ(result.out, "first\n");
}

TEST(Process, ThrowsWhereTheProgramIsMissing) {
  ProcessOptions options;
  options.command = {"/no/such/program"};
  EXPECT_THROW(run_process(options), std::system_error);
}

TEST(TempDir, IsGoneAfterwards) {
  std::string path;
  {
    TempDir dir;
    path = dir.file("x");
    write_file(path, std::string("a\0b", 3));
    EXPECT_EQ(read_file(path), std::string("a\0b", 3));
  }
  EXPECT_THROW(read_file(path), std::runtime_error);
}

}  // namespace
}  // namespace weir::test
