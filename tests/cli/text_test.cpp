// Where a text comes from, what it becomes, and that tokenising stays in the budget whatever it holds.
#include <fcntl.h>
#include <unistd.h>

#include <filesystem>
#include <regex>

#include "cli/weir.h"
#include "support/sanitized.h"

namespace weir::test {
namespace {

class CliText : public Cli {
 protected:
  ProcessResult piped(const Arguments& arguments, const std::string& input) {
    ProcessOptions options;
    options.input = input;
    return weir(arguments, options);
  }
  static ProcessResult shell(const std::string& line) {
    ProcessOptions options;
    options.command = {"/bin/sh", "-c", line};
    return run_process(options);
  }
  Arguments run(const Arguments& more = {}) {
    return Arguments{"run", "-m", pocket_model(), "-n", "4", "--greedy", "-c", "64", "--memory", "64MiB"} +
           more;
  }
};

TEST_F(CliText, StandardInputIsThePromptWhereNoOtherIsGiven) {
  const std::string given = weir(run({"-p", "the river"})).out;
  EXPECT_NE(given, "");
  EXPECT_EQ(piped(run(), "the river").out, given);
  EXPECT_EQ(piped(run({"-f", "-"}), "the river").out, given);
  EXPECT_EQ(piped(run({"-p", "the river"}), "not this").out, given);
  const std::string tokens = weir({"tokenize", "-m", pocket_model(), "-p", "the river"}).out;
  EXPECT_EQ(piped({"tokenize", "-m", pocket_model()}, "the river").out, tokens);
  EXPECT_EQ(piped({"tokenize", "-m", pocket_model(), "-f", "-"}, "the river").out, tokens);
  std::string text;
  while (text.size() < 2000) text += "a river runs by the mill; ";
  const Arguments perplexity{"perplexity", "-m", pocket_model(), "-c", "64", "--chunks", "1", "-f"};
  write_file(dir_.file("text"), text);
  const std::string scored = weir(perplexity + Arguments{dir_.file("text")}).out;
  EXPECT_NE(scored, "");
  EXPECT_EQ(piped(perplexity + Arguments{"-"}, text).out, scored);
}

TEST_F(CliText, AnEmptyStandardInputIsNoPrompt) {
  expect_refused(weir(run()), {"no prompt", "standard input is empty", "-p", "-f", "pipe"});
  expect_refused(weir(run({"-f", "-"})), {"standard input is empty"});
  expect_refused(weir({"tokenize", "-m", pocket_model()}), {"standard input is empty"});
  const std::string command = weir_binary() + " run -m " + pocket_model() + " --memory 64MiB";
  expect_refused(shell(command + " < /dev/null"), {"no prompt"});
  expect_refused(shell(command + " <&-"), {"standard input"});
  expect_refused(shell(command + " < /"), {"standard input", "directory"});
  expect_refused(piped(run(), "abc\xff"), {"standard input", "UTF-8", "3"});
}

TEST_F(CliText, AnEndlessTextIsRefusedAndNotHeld) {
  expect_refused(
      shell("yes 2> /dev/null | " + weir_binary() + " run -m " + pocket_model() + " --memory 64MiB"),
      {"standard input", "33554432 at most"});
  expect_refused(weir(run({"-f", "/dev/zero"})), {"/dev/zero", "33554432 at most"});
  const std::string large = dir_.file("large");
  write_file(large, "x");
  ASSERT_EQ(truncate(large.c_str(), 1 << 30), 0);
  expect_refused(weir(run({"-f", large})), {"large", "1073741824 bytes", "33554432 at most"});
}

TEST_F(CliText, APromptThatIsContinuedHasNoEnd) {
  gguf::Writer writer = tiny_model();
  writer.set("tokenizer.ggml.add_eos_token", true);
  const std::string model = dir_.file("ends.gguf");
  writer.write(model);
  const auto tokens = [&](const Arguments& more) {
    return json_answer(weir(Arguments{"tokenize", "-m", model, "-p", "xyz", "--json"} + more)).at("tokens");
  };
  EXPECT_EQ(tokens({}), nlohmann::json({'x', 'y', 'z'}));
  EXPECT_EQ(tokens({"--scored"}), nlohmann::json({'x', 'y', 'z', tiny_vocabulary_size() - 1}));
  const auto ran = json_answer(weir({"run", "-m", model, "-p", "xyz", "-n", "2", "--greedy", "--json"}));
  EXPECT_EQ(ran.at("timings").at("prompt_n"), 3);
}

TEST_F(CliText, ASpecialIdOutOfRangeIsAWarningAndAnotherNameOfQwen2IsNone) {
  gguf::Writer writer = tiny_model();
  writer.set("tokenizer.ggml.bos_token_id", 4294967295u);
  writer.set("tokenizer.ggml.pre", std::string("deepseek-r1-qwen"));
  const std::string model = dir_.file("odd.gguf");
  writer.write(model);
  const ProcessResult result = weir({"run", "-m", model, "-p", "xyz", "-n", "2", "--greedy"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  const size_t at = result.err.find("tokenizer.ggml.bos_token_id is 4294967295");
  EXPECT_NE(at, std::string::npos) << result.err;
  EXPECT_EQ(result.err.find("bos_token_id", at + 20), std::string::npos) << result.err;
}

TEST_F(CliText, AProfilesPromptThatTheBudgetCannotHoldIsRefused) {
  write_file(dir_.file("long.txt"), std::string(4 << 20, ','));
  expect_refused(
      weir({"profile", "-m", pocket_model(), "--memory", "32MiB", "--prompts", dir_.file("long.txt")}),
      {"the text takes 69."});
}

/// About a MiB of `unit`.
std::string much(const std::string& unit) {
  std::string text;
  while (text.size() < (1u << 20)) text += unit;
  return text;
}

/// The number of bytes that stands after `words` in a message.
std::string bytes_after(const std::string& message, const std::string& words) {
  std::smatch found;
  EXPECT_TRUE(std::regex_search(message, found, std::regex(words + "[^(]*\\((\\d+) bytes\\)"))) << message;
  return found.empty() ? "0" : found[1].str();
}

TEST_F(CliText, TokenisingStaysInTheSmallestBudgetWhateverTheText) {
  // The model in a file of this test alone, not in the page cache: what others read of a file counts too.
  const std::string model = dir_.file("own.gguf"), text = dir_.file("text");
  std::filesystem::copy_file(pocket_model(), model);
  const Arguments scored{"perplexity", "-m",       model, "-f",     text,      "-c",
                         "64",         "--chunks", "1",   "--json", "--memory"};
  const struct {
    const char* name;
    std::string text;
    bool one_word;
  } cases[] = {{"digits", much("0123456789"), false},
               {"short words", much("ab c de "), false},
               {"commas", much(","), true},
               {"one line of letters", much("abcdefghij"), true},
               {"three bytes a letter", much("\u4e2d"), true},
               {"spaces", much(" "), true},
               {"special tokens", much("<|im_end|>"), false}};
  uint64_t words_need = 0;
  for (const auto& c : cases) {
    SCOPED_TRACE(c.name);
    write_file(text, c.text);
    const ProcessResult refusal = weir(scored + Arguments{"4MiB"});
    expect_refused(refusal, {"smallest budget", "the text takes"});
    const std::string least = bytes_after(refusal.err, "smallest budget for this context is");
    const uint64_t text_takes = std::stoull(bytes_after(refusal.err, "the text takes"));
    if (!c.one_word) words_need = std::max(words_need, text_takes);
    if (c.one_word) {
      EXPECT_GT(text_takes, words_need + (10u << 20)) << "a word of a MiB is merged whole";
    }
    expect_refused(weir(scored + Arguments{std::to_string(std::stoull(least) - 1)}), {"smallest budget"});
    const int fd = open(model.c_str(), O_RDONLY | O_CLOEXEC);
    fsync(fd), posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED), close(fd);
    const auto memory = json_answer(weir(scored + Arguments{least})).at("memory");
    if (!sanitized) {
      EXPECT_LE(memory.at("peak_bytes").get<uint64_t>(), memory.at("budget_bytes").get<uint64_t>());
    }
  }
}

}  // namespace
}  // namespace weir::test
