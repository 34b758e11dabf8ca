// Damaged headers through the commands that read them: exit code 0 or 2, and one line where it is 2. The
// library's part, with 5,000 headers, is tests/engine/mutated_headers_test.cpp.
#include "cli/weir.h"
#include "support/mutate.h"

namespace weir::test {
namespace {

class CliMutatedHeaders : public Cli {};

TEST_F(CliMutatedHeaders, GiveExitCodesZeroOrTwo) {
  const std::vector<uint8_t> good = tiny_model().bytes();
  const uint64_t header_bytes = gguf::Model::parse(good, "tiny").files()[0].data_offset;
  const std::string path = dir_.file("mutant.gguf");
  const Arguments commands[] = {{"info", "-m", path},
                                {"info", "-m", path, "--json"},
                                {"plan", "-m", path, "--memory", "1GiB"},
                                {"run", "-m", path, "-p", "the", "-n", "1", "--memory", "1GiB", "-t", "1"}};
  for (uint64_t seed = 10'000; seed < 10'040; ++seed) {
    const std::vector<uint8_t> bytes = mutated_bytes(good, header_bytes, seed);
    write_file(path, bytes.data(), bytes.size());
    const Arguments& command = commands[seed % std::size(commands)];
    const ProcessResult result = weir(command);
    EXPECT_FALSE(result.timed_out) << seed;
    EXPECT_TRUE(result.exit_code == 0 || result.exit_code == 2) << seed << ": " << result.err;
    if (result.exit_code == 2) expect_refused(result, {"mutant.gguf"});
  }
}

}  // namespace
}  // namespace weir::test
