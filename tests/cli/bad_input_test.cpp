// Whatever a user can type or hand in: one line that says what is wrong, exit code 2, never a crash or a
// hang.
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <functional>

#include "cli/weir.h"
#include "gguf/reader.h"

namespace weir::test {
namespace {

class CliBadInput : public Cli {
 protected:
  ProcessResult run(const std::string& model, const Arguments& more = {}) {
    return weir(Arguments{"run", "-m", model, "-p", "the", "-n", "4", "--greedy", "--memory", "1GiB"} + more);
  }
};

TEST_F(CliBadInput, NoCommandShowsTheUsage) {
  const ProcessResult result = weir({});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_EQ(result.out, "");
  EXPECT_NE(result.err.find("usage: weir"), std::string::npos);
}

TEST_F(CliBadInput, UnknownCommandIsNamed) { expect_refused(weir({"frobnicate"}), {"frobnicate"}); }
TEST_F(CliBadInput, GreedyTakesNoOptionThatItWouldIgnore) {
  for (const auto& option :
       {Arguments{"--temp", "0.5"}, {"--top-k", "3"}, {"--top-p", "0.5"}, {"--min-p", "0.1"}})
    expect_refused(run(tiny(), option), {option[0], "no effect with --greedy"});
  EXPECT_EQ(run(tiny(), {"--repeat-penalty", "1.3", "--seed", "1"}).exit_code, 0) << "these are not ignored";
}

TEST_F(CliBadInput, UnknownFlagIsNamed) { expect_refused(run(tiny(), {"--frobnicate"}), {"--frobnicate"}); }
TEST_F(CliBadInput, MissingModelFlagIsNamed) { expect_refused(weir({"run", "-p", "the"}), {"-m"}); }
TEST_F(CliBadInput, MissingModelFileIsNamed) { expect_refused(run(dir_.file("none.gguf")), {"none.gguf"}); }
TEST_F(CliBadInput, FolderAsModelIsNamed) {
  expect_refused(run(dir_.path().string()), {dir_.path().string()});
}

// --- damaged files

struct Damage {
  const char* name;
  std::function<void(std::string& bytes)> apply;
  std::vector<std::string> words;
};
void PrintTo(const Damage& damage, std::ostream* out) { *out << damage.name; }

class CliDamagedModel : public CliBadInput, public testing::WithParamInterface<Damage> {};

TEST_P(CliDamagedModel, IsRefusedInOneLine) {
  const std::string path = tiny();
  std::string bytes = read_file(path);
  GetParam().apply(bytes);
  write_file(path, bytes);
  expect_refused(run(path), GetParam().words);
  expect_refused(weir({"info", "-m", path}), GetParam().words);
}

template <typename T>
void overwrite(std::string& bytes, size_t at, T value) {
  std::memcpy(bytes.data() + at, &value, sizeof value);
}

INSTANTIATE_TEST_SUITE_P(
    , CliDamagedModel,
    testing::Values(
        Damage{"Empty", [](std::string& b) { b.clear(); }, {"tiny.gguf"}},
        Damage{"CutInTheMagic", [](std::string& b) { b.resize(3); }, {"tiny.gguf"}},
        Damage{"CutInTheHeader", [](std::string& b) { b.resize(1000); }, {"tiny.gguf"}},
        Damage{"CutInTheTensors", [](std::string& b) { b.resize(b.size() - 4096); }, {"tiny.gguf"}},
        Damage{"NotGguf", [](std::string& b) { b[0] = 'X'; }, {"tiny.gguf", "GGUF"}},
        Damage{"BigEndian", [](std::string& b) { overwrite(b, 4, 0x03000000u); }, {"endian"}},
        Damage{"VersionOne", [](std::string& b) { overwrite(b, 4, 1u); }, {"version", "1"}},
        Damage{"VersionFromTheFuture", [](std::string& b) { overwrite(b, 4, 99u); }, {"version", "99"}},
        Damage{"TensorCountBeyondTheFile", [](std::string& b) { overwrite(b, 8, ~uint64_t{0}); }, {"tensor"}},
        Damage{"KeyCountBeyondTheFile",
               [](std::string& b) { overwrite(b, 16, uint64_t{1} << 40); },
               {"tiny.gguf"}},
        Damage{"KeyLengthBeyondTheFile",
               [](std::string& b) { overwrite(b, 24, uint64_t{1} << 62); },
               {"tiny.gguf"}}),
    [](const auto& test) { return test.param.name; });

TEST_F(CliBadInput, MissingSplitPartIsNamed) {
  const std::vector<std::string> parts = tiny_model().write_split(dir_.file("split"), 3);
  ASSERT_EQ(unlink(parts[1].c_str()), 0);
  expect_refused(run(parts[0]), {"split-00002-of-00003.gguf"});
}

TEST_F(CliBadInput, SplitModelMustBeOpenedByItsFirstPart) {
  const std::vector<std::string> parts = tiny_model().write_split(dir_.file("split"), 2);
  expect_refused(run(parts[1]), {"00001-of-00002"});
}

// --- models that are whole, but not for us

TEST_F(CliBadInput, UnsupportedArchitectureIsNamed) {
  TinyModelOptions options;
  options.architecture = "gargantua";
  expect_refused(run(tiny(options)), {"gargantua", "qwen3moe"});
}

TEST_F(CliBadInput, UnsupportedTypeIsNamedWithItsTensor) {
  TinyModelOptions options;
  options.down_types = {Type::Q8_0, Type::Q8_1};
  expect_refused(run(tiny(options)), {"Q8_1", "blk.1.ffn_down_exps.weight"});
}

TEST_F(CliBadInput, UnsupportedPreTokenizerIsNamed) {
  TinyModelOptions options;
  options.pretokenizer = "klingon-bpe";
  expect_refused(run(tiny(options)), {"klingon-bpe"});
}

TEST_F(CliBadInput, UnsupportedTokenizerModelIsNamed) {
  TinyModelOptions options;
  options.tokenizer_model = "runes";
  expect_refused(run(tiny(options)), {"runes"});
}

TEST_F(CliBadInput, NanWeightsAreReportedAndNotSampled) {
  const std::string path = tiny();
  const uint64_t offset = gguf::Model::open(path).tensor("output_norm.weight").offset;
  std::string bytes = read_file(path);
  overwrite(bytes, offset, std::nanf(""));
  write_file(path, bytes);
  const ProcessResult result = run(path);
  expect_failed(result, {"finite"});
  EXPECT_EQ(result.out, "");
}

TEST_F(CliBadInput, FileThatShrinksWhileExpertsAreReadFailsTheRequestWithFileAndOffset) {
  const std::string path = tiny();
  ProcessOptions options;
  options.on_first_output = [&](pid_t) { ASSERT_EQ(truncate(path.c_str(), 8192), 0); };
  const Arguments arguments{"run",
                            "-m",
                            path,
                            "-p",
                            "the",
                            "-n",
                            "480",
                            "--ignore-eos",
                            "--seed",
                            "1",
                            "--memory",
                            "1GiB",
                            "--expert-slots",
                            "2"};
  expect_failed(weir(arguments, options), {"tiny.gguf", "offset"});
}

// --- requests that cannot be served

TEST_F(CliBadInput, BudgetBelowTheFloorIsRefusedWithTheSmallestThatWouldDo) {
  const Arguments arguments{"run", "-m", pocket_model(), "-p", "the", "--memory", "1MiB"};
  expect_refused(weir(arguments), {"1.00 MiB", "smallest"});
}

TEST_F(CliBadInput, DevicesAndArithmeticsThatAreNotThereAreNamed) {
  expect_refused(run(tiny(), {"--device", "tpu"}), {"--device", "tpu", "cpu", "cuda:N"});
  expect_refused(run(tiny(), {"--device", "cuda:99"}), {"--device cuda:99"});
  expect_refused(run(tiny(), {"--arithmetic", "sloppy"}), {"--arithmetic", "sloppy", "portable", "fast"});
  expect_refused(run(tiny(), {"--arithmetic", "fast"}), {"--arithmetic fast", "CPU"});
  expect_refused(run(tiny(), {"--vram", "1GiB"}), {"--vram", "--memory"});
  expect_refused(run(tiny(), {"--vram", "many"}), {"--vram", "many"});
  expect_refused(run(tiny(), {"--no-graphs"}), {"--no-graphs", "the CPU records no rounds", "leave it out"});
}

TEST_F(CliBadInput, ContextOverTheModelsIsRefusedWithTheModels) {
  expect_refused(run(tiny(), {"-c", "100000"}), {"100000", "512"});
}

TEST_F(CliBadInput, PromptLongerThanTheContextIsRefused) {
  const std::string prompt(200, 'x');
  expect_refused(weir({"run", "-m", tiny(), "-p", prompt, "-c", "64", "--memory", "1GiB"}), {"200", "64"});
}

TEST_F(CliBadInput, EmptyPromptIsRefused) {
  expect_refused(weir({"run", "-m", tiny(), "-p", "", "--memory", "1GiB"}), {"prompt"});
}

TEST_F(CliBadInput, InvalidUtf8InThePromptIsRefused) {
  expect_refused(weir({"run", "-m", tiny(), "-p", "ab\xff", "--memory", "1GiB"}), {"UTF-8", "2"});
}

TEST_F(CliBadInput, InvalidUtf8InAPromptFileIsRefused) {
  write_file(dir_.file("prompt.txt"), std::string("abc\xc3("));
  const Arguments arguments{"run", "-m", tiny(), "-f", dir_.file("prompt.txt"), "--memory", "1GiB"};
  expect_refused(weir(arguments), {"prompt.txt is not valid UTF-8 at byte 3"});
}

TEST_F(CliBadInput, MissingPromptFileIsNamed) {
  const Arguments arguments{"run", "-m", tiny(), "-f", dir_.file("none.txt"), "--memory", "1GiB"};
  expect_refused(weir(arguments), {"none.txt"});
}

TEST_F(CliBadInput, UnwritableOutputIsNamed) {
  for (const char* flag : {"--ledger-json", "--trace", "--route-trace", "--logits"}) {
    SCOPED_TRACE(flag);
    expect_failed(run(tiny(), {flag, dir_.file("no/such/folder/out")}), {"no/such/folder/out"});
  }
}

struct BadValue {
  const char *name, *flag, *value;
};
void PrintTo(const BadValue& bad, std::ostream* out) { *out << bad.flag << " " << bad.value; }

class CliBadValue : public CliBadInput, public testing::WithParamInterface<BadValue> {};

TEST_P(CliBadValue, IsRefusedWithFlagAndValue) {
  const BadValue& bad = GetParam();
  const Arguments arguments{"run", "-m", tiny(), "-p", "the", "-n", "4", bad.flag, bad.value};
  expect_refused(weir(arguments), {bad.flag, bad.value});
}

INSTANTIATE_TEST_SUITE_P(
    , CliBadValue,
    testing::Values(
        BadValue{"MemoryText", "--memory", "banana"}, BadValue{"MemoryNegative", "--memory", "-1GiB"},
        BadValue{"SlotsZero", "--expert-slots", "0"}, BadValue{"SlotsBelowTheFloor", "--expert-slots", "1"},
        BadValue{"Policy", "--expert-policy", "fifo"}, BadValue{"Io", "--io", "telepathy"},
        BadValue{"Advice", "--read-advice", "unbounded"}, BadValue{"LedgerText", "--ledger", "often"},
        BadValue{"LedgerNegative", "--ledger", "-3"}, BadValue{"ThreadsNegative", "-t", "-1"},
        BadValue{"ThreadsText", "-t", "two"}, BadValue{"CountText", "-n", "many"},
        BadValue{"ChunkNegative", "--prefill-chunk", "-1"}, BadValue{"TempNegative", "--temp", "-1"},
        BadValue{"TempNan", "--temp", "nan"}, BadValue{"TopPAboveOne", "--top-p", "1.5"},
        BadValue{"MinPNegative", "--min-p", "-0.1"}, BadValue{"PenaltyZero", "--repeat-penalty", "0"},
        BadValue{"SeedText", "--seed", "lucky"}),
    [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace weir::test
