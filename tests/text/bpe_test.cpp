// Merge order on hand-made vocabularies, and against a plain quadratic merge on random ones.
#include "text/bpe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/clock.h"
#include "support/sanitized.h"
#include "vocabularies.h"

namespace weir {
namespace {

using testing::ElementsAre;

std::vector<Token> tokens_of(const Vocabulary& vocabulary, std::string_view word,
                             Bpe::WholeWords whole_words = Bpe::WholeWords::merge) {
  const Bpe bpe(vocabulary, whole_words);
  Bpe::Scratch scratch;
  std::vector<Token> tokens;
  bpe.encode(word, scratch, tokens);
  return tokens;
}

TEST(Bpe, TheLowestRankMergesFirst) {
  // "b c" has the lower rank, so "a b" never gets its chance.
  EXPECT_THAT(tokens_of(byte_vocabulary({"b c", "a b"}), "abc"), ElementsAre('a', 256));
  EXPECT_THAT(tokens_of(byte_vocabulary({"a b", "b c"}), "abc"), ElementsAre(256, 'c'));
  EXPECT_THAT(tokens_of(byte_vocabulary({"b c", "a bc", "a b"}), "abc"), ElementsAre(257));
}

TEST(Bpe, TheLeftmostMergesFirstAmongEquals) {
  EXPECT_THAT(tokens_of(byte_vocabulary({"a a"}), "aaa"), ElementsAre(256, 'a'));
  EXPECT_THAT(tokens_of(byte_vocabulary({"a a", "a aa"}), "aaa"), ElementsAre(256, 'a'));
  EXPECT_THAT(tokens_of(byte_vocabulary({"a a", "aa a"}), "aaaaa"), ElementsAre(256, 257));
}

TEST(Bpe, TheFirstOfTwoEqualMergesCounts) {
  Vocabulary vocabulary = byte_vocabulary({"a b", "b c"});
  vocabulary.merges.push_back("a b");
  EXPECT_THAT(tokens_of(vocabulary, "abc"), ElementsAre(256, 'c'));
}

TEST(Bpe, ASpaceMayBeginTheLeftSide) {
  // The separator is the first space after the first byte; a raw space is outside the alphabet and matches
  // nothing.
  Vocabulary vocabulary = byte_vocabulary();
  vocabulary.merges = {"  a"};
  EXPECT_THAT(tokens_of(vocabulary, " a"), ElementsAre(' ', 'a'));
}

TEST(Bpe, ASymbolThatIsNoTokenIsWrittenByteByByte) {
  Vocabulary vocabulary = byte_vocabulary({"a b"});
  vocabulary.tokens.back() = "unrelated";
  EXPECT_THAT(tokens_of(vocabulary, "xab"), ElementsAre('x', 'a', 'b'));
}

TEST(Bpe, MergesPassThroughTextsThatAreNoTokens) {
  Vocabulary vocabulary = byte_vocabulary({"a b", "ab c"});
  vocabulary.tokens[256] = "unrelated";
  EXPECT_THAT(tokens_of(vocabulary, "abc"), ElementsAre(257));
}

TEST(Bpe, AMergeNeverMakesAControlToken) {
  Vocabulary vocabulary = byte_vocabulary({"< x"});
  vocabulary.types[256] = TokenType::control;
  EXPECT_THAT(tokens_of(vocabulary, "<x"), ElementsAre('<', 'x'));
  EXPECT_THAT(tokens_of(vocabulary, "<x", Bpe::WholeWords::take), ElementsAre('<', 'x'));
}

TEST(Bpe, AByteWithoutTokenIsUnknownOrRefused) {
  Vocabulary vocabulary = byte_vocabulary();
  vocabulary.tokens[0xe9] = "gone";
  EXPECT_EQ(message_of([&] { tokens_of(vocabulary, "a\xe9"); }),
            "tiny.gguf: the text has the byte 0xe9, for which the vocabulary has no token");
  vocabulary.unknown = 7;
  EXPECT_THAT(tokens_of(vocabulary, "a\xe9"), ElementsAre('a', 7));
}

TEST(Bpe, AWholeWordIsTakenOnlyWhereMergesAreIgnored) {
  Vocabulary vocabulary = byte_vocabulary({"a b"});
  const Token word = add_token(vocabulary, "\u0120abc", TokenType::normal);  // U+0120 is the space
  EXPECT_THAT(tokens_of(vocabulary, " abc"), ElementsAre(' ', 256, 'c'));
  EXPECT_THAT(tokens_of(vocabulary, " abc", Bpe::WholeWords::take), ElementsAre(word));
}

TEST(Bpe, AMergeThatDoesNotSplitInTwoIsRefused) {
  for (const char* merge : {"ab", "a ", " b", ""}) {
    Vocabulary vocabulary = byte_vocabulary({"x y"});
    vocabulary.merges.push_back(merge);
    EXPECT_EQ(
        message_of([&] { tokens_of(vocabulary, "a"); }),
        fmt::format("tiny.gguf: tokenizer.ggml.merges[1] is '{}': two texts with a space between are needed",
                    merge));
  }
}

/// Scans all pairs for the lowest rank, merges it, starts again.
std::vector<std::string> merge_plainly(std::string_view word, const std::vector<std::string>& merges) {
  std::vector<std::string> parts;
  for (const char c : word) parts.emplace_back(1, c);
  while (true) {
    size_t best_rank = merges.size(), best = 0;
    for (size_t i = 0; i + 1 < parts.size(); ++i) {
      const std::string pair = parts[i] + " " + parts[i + 1];
      const auto rank = static_cast<size_t>(std::find(merges.begin(), merges.end(), pair) - merges.begin());
      if (rank < best_rank) best_rank = rank, best = i;
    }
    if (best_rank == merges.size()) return parts;
    parts[best] += parts[best + 1];
    parts.erase(parts.begin() + static_cast<long>(best) + 1);
  }
}

TEST(Bpe, EqualsAPlainMergeOnRandomVocabularies) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    // Merges over three letters, of texts that earlier merges made: many overlap and compete.
    std::vector<std::string> texts = {"a", "b", "c"}, merges;
    uint64_t counter = 0;
    auto draw = [&](size_t below) { return static_cast<size_t>(random_u64(seed, counter++) % below); };
    while (merges.size() < 20) {
      const std::string left = texts[draw(texts.size())], right = texts[draw(texts.size())];
      if (std::find(texts.begin(), texts.end(), left + right) != texts.end()) continue;
      texts.push_back(left + right);
      merges.push_back(left + " " + right);
    }
    // Ranks in another order than that of construction.
    for (size_t i = merges.size(); i > 1; --i) std::swap(merges[i - 1], merges[draw(i)]);
    const Vocabulary vocabulary = byte_vocabulary(merges);
    const Bpe bpe(vocabulary, Bpe::WholeWords::merge);
    Bpe::Scratch scratch;
    for (int i = 0; i < 20; ++i) {
      std::string word;
      for (size_t n = draw(40); n > 0; --n) word += "abc"[draw(3)];
      std::vector<Token> tokens;
      bpe.encode(word, scratch, tokens);
      std::vector<std::string> parts;
      for (const Token token : tokens) parts.push_back(vocabulary.tokens[static_cast<size_t>(token)]);
      ASSERT_EQ(parts, merge_plainly(word, merges)) << seed << " " << word;
    }
  }
}

TEST(Bpe, AMebibyteInOneWordIsMergedInNLogN) {
  std::vector<std::string> merges;
  for (std::string text = "a"; text.size() < 512; text += text) merges.push_back(text + " " + text);
  const Vocabulary vocabulary = byte_vocabulary(merges);
  const Bpe bpe(vocabulary, Bpe::WholeWords::merge);
  Bpe::Scratch scratch;
  std::vector<Token> tokens;
  const uint64_t begin = now_ns();
  bpe.encode(std::string((1u << 20) + 7, 'a'), scratch, tokens);
  // Quadratic it would be hours; a sanitizer on a busy machine is given time.
  EXPECT_LT(now_ns() - begin, test::sanitized ? 60'000'000'000u : 20'000'000'000u);
  EXPECT_EQ(tokens.size(), 2048u + 3u) << "2048 of 512 letters, then 7 = 4 + 2 + 1";
}

TEST(Bpe, LongWordsMergeAsShortOnesDo) {
  // A part of a long word that no merge crosses has the tokens that it has alone, wherever it lies.
  const Vocabulary vocabulary = byte_vocabulary({"b c", "a b", "a bc", "bc bc", "c a"});
  const Bpe bpe(vocabulary, Bpe::WholeWords::merge);
  Bpe::Scratch scratch;
  std::vector<Token> whole, parts;
  std::string word;
  for (uint64_t i = 0; i < 20'000; ++i) {
    std::string part;
    for (uint64_t n = random_u64(1, i) % 9; n > 0; --n) part += "abc"[random_u64(i, n) % 3];
    part += "x";
    bpe.encode(part, scratch, parts);
    word += part;
  }
  bpe.encode(word, scratch, whole);
  EXPECT_EQ(whole, parts);
}

TEST(MergeTable, FindsWhatWasInsertedAndNothingElse) {
  MergeTable table(5000);
  for (Symbol i = 0; i < 5000; ++i) table.insert(i, i * 7 % 5000, {i, i + 1});
  for (Symbol i = 0; i < 5000; ++i) {
    const MergeTable::Merge* merge = table.find(i, i * 7 % 5000);
    ASSERT_NE(merge, nullptr);
    ASSERT_EQ(merge->rank, i);
    ASSERT_EQ(merge->result, i + 1);
    ASSERT_EQ(table.find(i, 5000 + i), nullptr);
  }
  EXPECT_EQ(MergeTable(0).find(0, 0), nullptr);
}

}  // namespace
}  // namespace weir
