// What a hand trained by other programs types: options of llama.cpp, typing errors, grown-together words; and
// help that shows first what is needed first.
#include "cli/hints.h"

#include <gmock/gmock.h>

#include <regex>
#include <set>

#include "base/error.h"
#include "cli/command_line.h"
#include "cli/weir.h"

namespace weir::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

constexpr const char* commands[] = {"run",    "info", "plan",   "bench",    "profile",
                                    "verify", "ab",   "replay", "tokenize", "perplexity"};

/// Every option that is listed by some command's help.
std::set<std::string> all_options() {
  static const std::regex names("(^|[ ,])(--?[a-z][a-z0-9-]*)");
  std::set<std::string> all;
  for (const char* command : commands)
    for (const std::string& line : lines_of(weir({command, "--help"}).out)) {
      if (line.rfind("  -", 0) != 0) continue;
      for (std::sregex_iterator it(line.begin(), line.end(), names), end; it != end; ++it)
        all.insert((*it)[2]);
    }
  return all;
}

/// What a command line with the options of `weir run` says to these words, or "" where it takes them.
std::string answer(const Arguments& words) {
  cli::CommandLine line("run", "");
  std::string model, prompt, place;
  std::optional<std::string> memory;
  std::optional<uint64_t> seed;
  int n = 0, context = 0;
  bool greedy = false;
  line.option("-m,--model", &model, "");
  line.option("-p,--prompt", &prompt, "");
  line.option("-n,--predict,--n-predict", &n, -1, 100, "");
  line.option("-c,--ctx-size", &context, 0, 100'000, "");
  line.option("--memory", &memory, "");
  line.option_or_minus_one("-s,--seed", &seed, "");
  line.flag("--greedy", &greedy, "");
  line.positional("MODEL", &place, "");
  try {
    line.parse(words);
    return {};
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), Error::Kind::input);
    return e.what();
  }
}

std::vector<std::string> names_of(const cli::Hint& hint) {
  std::vector<std::string> names;
  std::istringstream in(hint.names);
  for (std::string name; std::getline(in, name, ',');) names.push_back(name);
  return names;
}

class CliHints : public Cli {};

TEST_F(CliHints, EveryOptionOfLlamaCppGetsItsOwnLine) {
  int count = 0;
  std::set<std::string> seen;
  for (const cli::Hint& hint : cli::llama_hints()) {
    for (const std::string& name : names_of(hint)) {
      EXPECT_TRUE(seen.insert(name).second) << name << " has two hints";
      const std::string expected = name + " is llama.cpp's: weir " + hint.advice;
      EXPECT_EQ(answer({"-m", "x", name, "99"}), expected);
      EXPECT_EQ(answer({name}), expected);
      EXPECT_TRUE(name.rfind("--", 0) != 0 || answer({name + "=99"}) == expected) << name;
      EXPECT_EQ(expected.find('\n'), std::string::npos);
      ++count;
    }
  }
  EXPECT_GT(count, 250);
  for (const char* name : {"-ngl",
                           "--gpu-layers",
                           "--n-gpu-layers",
                           "-fa",
                           "-ctk",
                           "-ctv",
                           "-cnv",
                           "-sys",
                           "-mg",
                           "-sm",
                           "-ts",
                           "-hf",
                           "-hfr",
                           "-b",
                           "-ub",
                           "--mlock",
                           "--no-mmap",
                           "-nkvo",
                           "-ot",
                           "-ncmoe",
                           "--n-cpu-moe",
                           "-np",
                           "-md",
                           "--jinja",
                           "-tb",
                           "-i",
                           "-no-cnv",
                           "--samplers",
                           "--mirostat",
                           "--grammar",
                           "--lora",
                           "--rope-scaling",
                           "--rope-freq-base",
                           "--yarn-orig-ctx",
                           "--numa",
                           "-e",
                           "-dev"})
    EXPECT_TRUE(seen.count(name)) << name;
}

TEST_F(CliHints, AdviceNamesOnlyOptionsThatWeirHasAndNoHintHidesOne) {
  const std::set<std::string> options = all_options();
  ASSERT_TRUE(options.count("--memory") && options.count("-p") && options.count("--lanes"));
  static const std::regex named("(^|[ (])(--?[a-z][a-z-]*)");
  const std::set<std::string> of_other_programs = {"--cpunodebind", "--membind", "--version", "--help"};
  for (const cli::Hint& hint : cli::llama_hints()) {
    const std::string advice = hint.advice;
    for (std::sregex_iterator it(advice.begin(), advice.end(), named), end; it != end; ++it)
      EXPECT_TRUE(of_other_programs.count((*it)[2]) || options.count((*it)[2])) << (*it)[2] << ": " << advice;
  }
  const std::string run = weir({"run", "--help"}).out;
  for (const cli::Hint& hint : cli::llama_hints())
    for (const std::string& name : names_of(hint))
      EXPECT_FALSE(std::regex_search(run, std::regex("(^|\\n)  ([^\\n]*, )?" + name + "[ ,\\n]"))) << name;
}

TEST_F(CliHints, TheBinaryRefusesThemWithExitCodeTwo) {
  const std::string model = tiny();
  expect_refused(weir({"run", "-m", model, "-p", "the", "-ngl", "99"}),
                 {"-ngl is llama.cpp's: weir ", "--device cuda:0", "--vram"});
  expect_refused(weir({"bench", "-m", model, "-fa", "1"}), {"-fa is llama.cpp's: weir "});
  expect_refused(weir({"plan", model, "--n_cpu_moe", "3"}),
                 {"--n_cpu_moe is llama.cpp's: weir ", "--memory"});
  expect_refused(weir({"ab", "-m", model, "--a", "-ngl 9", "--b", ""}), {"arm A", "-ngl is llama.cpp's"});
}

TEST_F(CliHints, LettersAreNeverSplitOff) {
  EXPECT_THAT(answer({"-n5"}), HasSubstr("'-n5' is not an option: a value is a word of its own, as in -n 5"));
  EXPECT_THAT(answer({"-n=5"}), HasSubstr("as in -n 5"));
  EXPECT_THAT(answer({"-mfile.gguf"}), HasSubstr("as in -m file.gguf"));
  EXPECT_THAT(answer({"-ngx", "3"}), AllOf(HasSubstr("'-ngx' is not an option"), Not(HasSubstr("as in"))));
  EXPECT_THAT(answer({"-5"}), HasSubstr("'-5' is not an option"));
  EXPECT_EQ(answer({"-n", "5"}), "");
  EXPECT_EQ(answer({"--predict=5"}), "");
  // What stands after an option is its value, whatever it looks like; and after -- nothing is an option.
  EXPECT_EQ(answer({"-p", "-ngl"}), "");
  EXPECT_EQ(answer({"-n", "-1", "--prompt", "--memroy"}), "");
  EXPECT_EQ(answer({"--", "-ngl"}), "");
}

TEST_F(CliHints, TypingErrorsAreAnsweredWithTheNameThatWasMeant) {
  const std::pair<const char*, const char*> cases[] = {
      {"--memroy", "--memory"},       {"--mem", "--memory"},
      {"--Memory", "--memory"},       {"-memory", "--memory"},
      {"--promt", "--prompt"},        {"--ctxsize", "--ctx-size"},
      {"--n_predict", "--n-predict"}, {"--size", "--ctx-size"},
      {"--gredy", "--greedy"},        {"--sed", "--seed"}};
  for (const auto& [typed, meant] : cases)
    EXPECT_THAT(answer({typed, "1"}),
                HasSubstr(fmt::format("'{}' is not an option: did you mean {}?", typed, meant)));
  EXPECT_THAT(answer({"--frobnicate"}), AllOf(HasSubstr("'--frobnicate'"), Not(HasSubstr("did you mean"))));
  EXPECT_THAT(answer({"--" + std::string(100'000, 'x')}), Not(HasSubstr("did you mean")));

  expect_refused(weir({"rnu"}), {"'rnu': did you mean weir run?"});
  expect_refused(weir({"Perplexity"}), {"did you mean weir perplexity?"});
  expect_refused(weir({"serve"}), {"weir has no server"});
  expect_refused(weir({"help", "benhc"}), {"did you mean weir bench?"});
  expect_refused(weir({"-m", "x.gguf"}), {"'-m' stands before a command", "weir run -m FILE"});
  expect_refused(weir({"x.gguf"}), {"weir run x.gguf"});
}

TEST(Hints, EditDistanceCountsSwapsOnce) {
  EXPECT_EQ(cli::edit_distance("", "abc"), 3);
  EXPECT_EQ(cli::edit_distance("run", "run"), 0);
  EXPECT_EQ(cli::edit_distance("rnu", "run"), 1);
  EXPECT_EQ(cli::edit_distance("memroy", "memory"), 1);
  EXPECT_EQ(cli::edit_distance("kitten", "sitting"), 3);
}

TEST_F(CliHints, ASeedOfMinusOneIsRandom) {
  const Arguments run{"run", "-m", tiny(), "-p", "the", "-n", "2", "--memory", "1GiB", "--seed"};
  const ProcessResult first = weir(run + Arguments{"-1"}), second = weir(run + Arguments{"-1"});
  EXPECT_EQ(first.exit_code, 0) << first.err;
  const auto seed = [](const ProcessResult& result) {
    for (const std::string& line : lines_of(result.err))
      if (line.rfind("seed: ", 0) == 0) return line;
    return std::string();
  };
  EXPECT_NE(seed(first), "") << first.err;
  EXPECT_NE(seed(first), seed(second));
  expect_refused(weir(run + Arguments{"-2"}), {"-2", "--seed", "-1"});
}

TEST_F(CliHints, HelpShowsWhatIsNeededFirstAndTestOptionsLast) {
  const std::string help = weir({"run", "--help"}).out;
  size_t last = 0;
  for (const char* words :
       {"usage: weir run", "examples:\n  weir run -m", "\noptions:\n  -m, --model TEXT",
        "  -p, --prompt TEXT", "  -n, --predict, --n-predict N\n", "  --memory TEXT", "\nsampling:\n",
        "  --temp X", "\nmemory, device and experts:\n", "  --expert-slots N", "\noutput:\n", "  --json",
        "\nfor tests of weir itself:\n", "  --inject-role TEXT"}) {
    const size_t at = help.find(words);
    ASSERT_NE(at, std::string::npos) << words << " is not in:\n" << help;
    EXPECT_GT(at, last) << words;
    last = at;
  }
  EXPECT_THAT(help, HasSubstr("(default 0.8)"));
  for (const std::string& line : lines_of(help)) EXPECT_LE(line.size(), 110u) << line;
  for (const char* command : commands) {
    const ProcessResult asked = weir({"help", command}), given = weir({command, "--help"});
    EXPECT_EQ(asked.exit_code, 0) << asked.err;
    EXPECT_EQ(asked.out, given.out);
    EXPECT_THAT(given.out, HasSubstr(std::string("examples:\n  weir ") + command));
    EXPECT_EQ(weir({command, "-h"}).out, given.out);
  }
}

}  // namespace
}  // namespace weir::test
