// Words of each pre-tokenizer row, the two matching engines against each other, and long runs.
#include "text/pretokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/clock.h"
#include "support/sanitized.h"
#include "vocabularies.h"

namespace weir {
namespace {

using testing::ElementsAre;

std::vector<std::string_view> split(const Pretokenizer& pretokenizer, std::string_view text) {
  std::vector<std::string_view> words;
  pretokenizer.split(text, [&](std::string_view word) { words.push_back(word); });
  return words;
}

std::vector<std::string> words(std::string_view row, std::string_view text) {
  const PretokenizerRow* found = find_pretokenizer(row);
  if (found == nullptr) return {"(no such row)"};
  std::vector<std::string> result;
  for (const std::string_view word : split(Pretokenizer(*found), text)) result.emplace_back(word);
  return result;
}

TEST(Pretokenizer, Qwen2SplitsContractionsDigitsAndSpaces) {
  EXPECT_THAT(words("qwen2", "I'm HE'LL 123 x"),
              ElementsAre("I", "'m", " HE", "'LL", " ", "1", "2", "3", " x"));
  EXPECT_THAT(words("qwen2", "a   b"), ElementsAre("a", "  ", " b"));
  EXPECT_THAT(words("qwen2", "x \n y \n\n"), ElementsAre("x", " \n", " y", " \n\n"));
  EXPECT_THAT(words("qwen2", "end.\n\nNext"), ElementsAre("end", ".\n\n", "Next"));
  EXPECT_THAT(words("qwen2", "(foo"), ElementsAre("(foo"));
}

TEST(Pretokenizer, Qwen35KeepsMarksWithTheirLetters) {
  EXPECT_THAT(words("qwen2", "e\u0301a"), ElementsAre("e", "\u0301a"));
  EXPECT_THAT(words("qwen35", "e\u0301a"), ElementsAre("e\u0301a"));
}

TEST(Pretokenizer, Gpt4oSplitsAtCaseAndKeepsContractionsOnTheWord) {
  EXPECT_THAT(words("gpt-4o", "helloWorld don't 12345/\n"),
              ElementsAre("hello", "World", " don't", " ", "123", "45", "/\n"));
  EXPECT_THAT(words("gpt-4o", "HTTPServer"), ElementsAre("HTTPServer"));
}

TEST(Pretokenizer, LlamaGroupsThreeDigits) {
  EXPECT_THAT(words("llama-bpe", "1234567 a"), ElementsAre("123", "456", "7", " a"));
  EXPECT_TRUE(find_pretokenizer("llama-bpe")->ignore_merges);
  EXPECT_TRUE(find_pretokenizer("llama-bpe")->adds_bos);
}

TEST(Pretokenizer, Gpt2KeepsDigitRunsAndWhatItsExpressionSkips) {
  EXPECT_THAT(words("gpt-2", "it's 1234!? x"), ElementsAre("it", "'s", " 1234", "!?", " x"));
  // Nothing in the expression matches a newline before a letter: it is a word of its own.
  EXPECT_THAT(words("olmo", "a\n\nb\nc"), ElementsAre("a", "\n", "\n", "b", "\n", "c"));
  EXPECT_THAT(words("gpt-2", "IT'S"), ElementsAre("IT", "'", "S"));
}

TEST(Pretokenizer, OtherNamesOfARowFindIt) {
  for (const char* name :
       {"deepseek-r1-qwen", "kormo", "f2llmv2", "megrez", "hunyuan", "solar-open", "stablelm2", "grok-2"}) {
    ASSERT_NE(find_pretokenizer(name), nullptr) << name;
    EXPECT_EQ(find_pretokenizer(name)->name, "qwen2");
  }
  EXPECT_EQ(find_pretokenizer("llama3")->name, "llama-bpe");
  EXPECT_EQ(find_pretokenizer("llama4")->name, "gpt-4o");
  EXPECT_EQ(find_pretokenizer("phi-2")->name, "gpt-2");
  // The expression of llama-bpe, without its flags.
  EXPECT_EQ(find_pretokenizer("smaug-bpe")->expression, find_pretokenizer("llama-bpe")->expression);
  EXPECT_FALSE(find_pretokenizer("smaug-bpe")->ignore_merges);
  EXPECT_FALSE(find_pretokenizer("smaug-bpe")->adds_bos);
  // Other expressions, or more than an expression.
  for (const char* name : {"", "qwen", "seed-coder", "bailingmoe", "jais-2", "tekken", "smollm", "laguna",
                           "jina-v2-es", "roberta-bpe", "minicpm5", "hunyuan-dense", "ufakzeka"})
    EXPECT_EQ(find_pretokenizer(name), nullptr) << name;
}

TEST(Pretokenizer, WhiteSpaceIsUnicodesAndNotTheMongolianVowelSeparator) {
  EXPECT_THAT(words("qwen2", "a\u0085\u3000"), ElementsAre("a", "\u0085\u3000"));
  EXPECT_THAT(words("qwen2", ".\u180e"), ElementsAre(".\u180e"));
  EXPECT_EQ(Pretokenizer::expand_white_space(R"([^\s\p{L}]+|\s+(?!\S)|\[)"),
            R"([^\t-\r\x{85}\p{Z}\p{L}]+|[\t-\r\x{85}\p{Z}]+(?![^\t-\r\x{85}\p{Z}])|\[)");
}

TEST(Pretokenizer, EmptyTextHasNoWords) { EXPECT_TRUE(words("qwen2", "").empty()); }

TEST(Pretokenizer, EveryRowJoinsToItsTextInBothEngines) {
  for (const PretokenizerRow& row : pretokenizer_rows()) {
    const Pretokenizer compiled(row), interpreted(row, Pretokenizer::Engine::interpreted);
    for (uint64_t seed = 0; seed < 400; ++seed) {
      const std::string text = random_text(seed);
      const std::vector<std::string_view> found = split(compiled, text);
      std::string joined;
      for (const std::string_view word : found) {
        ASSERT_FALSE(word.empty());
        joined += word;
      }
      ASSERT_EQ(joined, text) << row.name << " " << seed;
      ASSERT_EQ(found, split(interpreted, text)) << row.name << " " << seed;
    }
  }
}

TEST(Pretokenizer, LongRunsAreSplitInBothEngines) {
  constexpr int count = 1'000'000;
  struct Case {
    std::string unit, tail;
    size_t words;  ///< at most
  };
  // Lower case, upper case (where gpt-4o's first alternative gives all back), spaces before a word, letters
  // of three bytes, punctuation.
  const std::vector<Case> cases = {
      {"a", "", 1}, {"A", "", 1}, {" ", "x", 2}, {"\u4e2d", "", 1}, {"!", "\n", 1}};
  for (const PretokenizerRow& row : pretokenizer_rows()) {
    const Pretokenizer compiled(row), interpreted(row, Pretokenizer::Engine::interpreted);
    for (const Case& run : cases) {
      std::string text;
      for (int i = 0; i < count; ++i) text += run.unit;
      text += run.tail;
      const uint64_t begin = now_ns();
      // The gpt-2 expressions leave the newline after punctuation to a word of its own.
      EXPECT_LE(split(compiled, text).size(), run.words + 1) << row.name << run.unit;
      EXPECT_EQ(split(compiled, text), split(interpreted, text)) << row.name << run.unit;
      EXPECT_LT(now_ns() - begin, test::sanitized ? 60'000'000'000u : 5'000'000'000u) << row.name << run.unit;
    }
  }
}

}  // namespace
}  // namespace weir
