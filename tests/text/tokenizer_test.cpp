// The tokenizer as a whole: special tokens, beginnings and ends, round trips, streaming, and what it refuses.
#include "text/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "text/pretokenizer.h"
#include "vocabularies.h"

namespace weir {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr Tokenizer::EncodeOptions parsing{.add_special = true, .parse_special = true};
constexpr Tokenizer::EncodeOptions plain{.add_special = false, .parse_special = false};

/// The 256 bytes, then control tokens "<s>" 256, "<sp>" 257, user-defined "<u>" 258.
Vocabulary special_vocabulary() {
  Vocabulary vocabulary = byte_vocabulary();
  add_token(vocabulary, "<s>", TokenType::control);
  add_token(vocabulary, "<sp>", TokenType::control);
  add_token(vocabulary, "<u>", TokenType::user_defined);
  return vocabulary;
}

TEST(Tokenizer, ControlTokensAreParsedOnlyWhereAsked) {
  const auto tokenizer = make_tokenizer(special_vocabulary());
  EXPECT_THAT(tokenizer->encode("a<s>b<sp>", parsing), ElementsAre('a', 256, 'b', 257));
  EXPECT_THAT(tokenizer->encode("<s>", plain), ElementsAre('<', 's', '>'));
}

TEST(Tokenizer, UserDefinedTokensAreAlwaysParsed) {
  const auto tokenizer = make_tokenizer(special_vocabulary());
  EXPECT_THAT(tokenizer->encode("<u><u>", plain), ElementsAre(258, 258));
  EXPECT_THAT(tokenizer->encode("x<u", plain), ElementsAre('x', '<', 'u'));
}

TEST(Tokenizer, TheLongestSpecialTokenClaimsItsPlacesFirst) {
  Vocabulary vocabulary = byte_vocabulary();
  const Token shorter = add_token(vocabulary, "[abc", TokenType::control);
  const Token longer = add_token(vocabulary, "bc]]]", TokenType::control);
  const Token prefix = add_token(vocabulary, "[a", TokenType::user_defined);
  const auto tokenizer = make_tokenizer(vocabulary);
  EXPECT_THAT(tokenizer->encode("[abc", parsing), ElementsAre(shorter));
  // The longer one starts later and still wins; what is left of the shorter is a special token of its own.
  EXPECT_THAT(tokenizer->encode("[abc]]]", parsing), ElementsAre(prefix, longer));
}

TEST(Tokenizer, OverlappingOccurrencesOfOneTokenGoLeftToRight) {
  Vocabulary vocabulary = byte_vocabulary();
  const Token token = add_token(vocabulary, "aba", TokenType::control);
  EXPECT_THAT(make_tokenizer(vocabulary)->encode("ababa", parsing), ElementsAre(token, 'b', 'a'));
}

TEST(Tokenizer, TheLowerIdClaimsFirstAmongEqualLengths) {
  Vocabulary vocabulary = byte_vocabulary();
  const Token later = add_token(vocabulary, "yz", TokenType::control);
  add_token(vocabulary, "xy", TokenType::control);
  EXPECT_THAT(make_tokenizer(vocabulary)->encode("xyz", parsing), ElementsAre('x', later));
}

TEST(Tokenizer, ASpecialTokenNeverCutsACharacter) {
  Vocabulary vocabulary = byte_vocabulary();
  add_token(vocabulary, "\xb8", TokenType::user_defined);
  add_token(vocabulary, "", TokenType::user_defined);
  EXPECT_THAT(make_tokenizer(vocabulary)->encode("\u4e2d", parsing), ElementsAre(0xe4, 0xb8, 0xad));
}

TEST(Tokenizer, TextAroundASpecialTokenIsSplitOnItsOwn) {
  Vocabulary vocabulary = byte_vocabulary({"\u0120 \u0120"});  // two spaces
  const Token special = add_token(vocabulary, "<s>", TokenType::control);
  // Spaces before a letter leave it one of theirs; before a special token they stay together.
  const auto tokenizer = make_tokenizer(vocabulary);
  EXPECT_THAT(tokenizer->encode("  x", parsing), ElementsAre(' ', ' ', 'x'));
  EXPECT_THAT(tokenizer->encode("  <s>", parsing), ElementsAre(256, special));
}

TEST(Tokenizer, BeginAndEndAreAddedWhereTheModelAsksAndTheEndWhereNothingFollows) {
  Vocabulary vocabulary = special_vocabulary();
  vocabulary.bos = 256;
  vocabulary.eos = 257;
  EXPECT_TRUE(make_tokenizer(vocabulary)->encode("", parsing).empty());
  vocabulary.add_bos = true;
  vocabulary.add_eos = true;
  const auto tokenizer = make_tokenizer(vocabulary);
  EXPECT_TRUE(tokenizer->adds_bos());
  EXPECT_THAT(tokenizer->encode("", parsing), ElementsAre(256));
  EXPECT_THAT(tokenizer->encode("<s>a", parsing), ElementsAre(256, 256, 'a'));
  EXPECT_THAT(tokenizer->encode("a", {.add_end = true}), ElementsAre(256, 'a', 257));
  EXPECT_TRUE(tokenizer->encode("", plain).empty());
}

TEST(Tokenizer, ThePretokenizersDefaultDecidesOnBosWhereTheFileDoesNot) {
  Vocabulary vocabulary = special_vocabulary();
  vocabulary.pre = "llama-bpe";
  EXPECT_FALSE(make_tokenizer(vocabulary)->adds_bos());
  vocabulary.bos = 256;
  EXPECT_TRUE(make_tokenizer(vocabulary)->adds_bos());
  vocabulary.add_bos = false;
  EXPECT_FALSE(make_tokenizer(vocabulary)->adds_bos());
}

TEST(Tokenizer, PiecesHideControlTokensUnlessAsked) {
  Vocabulary vocabulary = special_vocabulary();
  const Token unused = add_token(vocabulary, "[PAD9]", TokenType::unused);
  const Token unknown = add_token(vocabulary, "<unk>", TokenType::unknown);
  const auto tokenizer = make_tokenizer(vocabulary);
  EXPECT_EQ(tokenizer->piece(256, false), "");
  EXPECT_EQ(tokenizer->piece(256, true), "<s>");
  EXPECT_EQ(tokenizer->piece(258, false), "<u>");
  EXPECT_EQ(tokenizer->piece(' ', false), " ");
  EXPECT_EQ(tokenizer->piece(unused, true), "");
  EXPECT_EQ(tokenizer->piece(unknown, false), "");
  EXPECT_EQ(tokenizer->piece(unknown, true), "<unk>");
  EXPECT_EQ(tokenizer->decode({'a', 256, 0xe4, 'b'}, true), "a<s>\ufffdb");
  EXPECT_TRUE(tokenizer->is_control(257));
  EXPECT_FALSE(tokenizer->is_control(258));
  EXPECT_EQ(tokenizer->size(), 261);
}

std::vector<std::string> ends_of(std::initializer_list<const char*> texts) {
  Vocabulary vocabulary = byte_vocabulary();
  for (const char* text : texts) add_token(vocabulary, text, TokenType::user_defined);
  const auto tokenizer = make_tokenizer(vocabulary);
  std::vector<std::string> ends;
  for (Token token = 0; token < tokenizer->size(); ++token) {
    if (!tokenizer->is_end(token)) continue;
    EXPECT_TRUE(tokenizer->is_control(token));
    ends.push_back(tokenizer->piece(token, true));
  }
  return ends;
}

TEST(Tokenizer, WellKnownTextsEndAGeneration) {
  EXPECT_THAT(ends_of({"<|im_start|>", "<|im_end|>", "<|endoftext|>", "<|fim_pad|>", "<|file_sep|>"}),
              ElementsAre("<|im_end|>", "<|endoftext|>", "<|fim_pad|>", "<|file_sep|>"));
  EXPECT_THAT(ends_of({"<|end|>", "</s>"}), ElementsAre("<|end|>", "</s>"));
}

TEST(Tokenizer, HarmonysMessageEndGoesOn) {
  EXPECT_THAT(ends_of({"<|end|>", "<|return|>", "<|call|>", "<|channel|>"}),
              ElementsAre("<|return|>", "<|call|>"));
}

TEST(Tokenizer, MarkUpDoesNotEndWhereThereAreToolResponses) {
  EXPECT_THAT(ends_of({"</s>", "<|tool_response>"}), ElementsAre("<|tool_response>"));
}

TEST(Tokenizer, IdsThatTheFileNamesEndAGeneration) {
  Vocabulary vocabulary = special_vocabulary();
  vocabulary.eos = 256;
  vocabulary.ends = {258};
  const auto tokenizer = make_tokenizer(vocabulary);
  EXPECT_TRUE(tokenizer->is_end(256));
  EXPECT_FALSE(tokenizer->is_end(257));
  EXPECT_TRUE(tokenizer->is_end(258));
}

TEST(Tokenizer, InvalidTextIsRefusedWithItsByte) {
  const auto tokenizer = make_tokenizer(byte_vocabulary());
  EXPECT_EQ(message_of([&] { tokenizer->encode("ab\xff", parsing); }),
            "the text is not valid UTF-8 at byte 2 (0xff): expected UTF-8 text");
}

TEST(Tokenizer, BadVocabulariesAreRefusedByName) {
  auto refusal = [](auto&& change) {
    Vocabulary vocabulary = byte_vocabulary();
    change(vocabulary);
    return message_of([&] { make_tokenizer(vocabulary); });
  };
  EXPECT_EQ(
      refusal([](Vocabulary& v) { v.pre = "klingon"; }),
      "tiny.gguf: tokenizer.ggml.pre is 'klingon', which is not supported (supported: qwen2, qwen35, gpt-4o, "
      "llama-bpe, dbrx, olmo, gpt-2 and other names of these)");
  EXPECT_THAT(refusal([](Vocabulary& v) { v.types.pop_back(); }),
              HasSubstr("255 token types for 256 tokens"));
  EXPECT_THAT(refusal([](Vocabulary& v) { v.tokens.clear(), v.types.clear(); }),
              HasSubstr("tokens is empty"));
  EXPECT_THAT(refusal([](Vocabulary& v) { v.tokens[9] = "a"; }),
              HasSubstr("tokens[9] and [97] are both 'a'"));
  EXPECT_THAT(refusal([](Vocabulary& v) { v.eos = 256; }),
              HasSubstr("the eos token is 256, outside the 256"));
  EXPECT_THAT(refusal([](Vocabulary& v) { v.ends = {-2}; }), HasSubstr("end-of-generation token is -2"));
  EXPECT_THAT(refusal([](Vocabulary& v) { v.add_bos = true; }), HasSubstr("no tokenizer.ggml.bos_token_id"));
  EXPECT_THAT(refusal([](Vocabulary& v) { v.add_eos = true; }), HasSubstr("no tokenizer.ggml.eos_token_id"));
}

TEST(Tokenizer, TokensOutsideTheVocabularyAreRefused) {
  const auto tokenizer = make_tokenizer(byte_vocabulary());
  EXPECT_THAT(message_of([&] { tokenizer->piece(256, true); }), HasSubstr("token 256 is outside the 256"));
  EXPECT_THAT(message_of([&] { tokenizer->decode({-1}, true); }), HasSubstr("token -1"));
}

TEST(Tokenizer, DecodingWhatWasEncodedGivesTheText) {
  for (const PretokenizerRow& row : pretokenizer_rows()) {
    Vocabulary vocabulary = pocket_vocabulary();
    vocabulary.pre = row.name;
    const auto tokenizer = make_tokenizer(vocabulary);
    for (uint64_t seed = 0; seed < 300; ++seed) {
      const std::string text = random_text(seed);
      ASSERT_EQ(tokenizer->decode(tokenizer->encode(text, plain), false), text) << row.name << " " << seed;
    }
  }
}

/// Pushes `tokens` one by one; each piece shown must be whole characters.
std::string stream(const Tokenizer& tokenizer, const std::vector<Token>& tokens) {
  Detokenizer detokenizer(tokenizer);
  std::string shown;
  auto show = [&](const std::string& piece) {
    EXPECT_EQ(invalid_utf8_at(piece), std::string_view::npos);
    shown += piece;
  };
  for (const Token token : tokens) show(detokenizer.push(token));
  show(detokenizer.finish());
  EXPECT_EQ(detokenizer.finish(), "");
  return shown;
}

TEST(Detokenizer, HoldsBackUnfinishedCharacters) {
  const auto tokenizer = make_tokenizer(byte_vocabulary());
  Detokenizer detokenizer(*tokenizer);
  EXPECT_EQ(detokenizer.push('a'), "a");
  EXPECT_EQ(detokenizer.push(0xf0), "");
  EXPECT_EQ(detokenizer.push(0x9f), "");
  EXPECT_EQ(detokenizer.push(0x98), "");
  EXPECT_EQ(detokenizer.push(0x80), "\U0001f600");
  EXPECT_EQ(detokenizer.push(0xe4), "");
  EXPECT_EQ(detokenizer.push('b'),
            "\ufffd"
            "b");
  EXPECT_EQ(detokenizer.push(0xe4), "");
  EXPECT_EQ(detokenizer.finish(), "\ufffd");
}

TEST(Detokenizer, CharactersSplitOverTokensComeOutWhole) {
  // Byte by byte, and with the tokens' own cuts.
  const auto bytes = make_tokenizer(byte_vocabulary()), pocket = make_tokenizer(pocket_vocabulary());
  for (uint64_t seed = 0; seed < 500; ++seed) {
    const std::string text = random_text(seed);
    ASSERT_EQ(stream(*bytes, bytes->encode(text, plain)), text) << seed;
    ASSERT_EQ(stream(*pocket, pocket->encode(text, plain)), text) << seed;
  }
}

TEST(Detokenizer, EqualsDecodeOnRandomTokens) {
  // Two kinds of stream: any tokens at all, and mostly bytes that begin or go on with a character.
  const auto tokenizer = make_tokenizer(pocket_vocabulary());
  const std::vector<Token> ids = tokenizer->encode("\u00e9\u4e2d\U0001f600\U000e0041", plain);
  for (uint64_t seed = 0; seed < 1000; ++seed) {
    std::vector<Token> tokens;
    for (uint64_t i = 0; i < 40; ++i) {
      const uint64_t draw = random_u64(seed, i);
      const bool any = seed % 2 == 0 || draw % 8 == 0;
      tokens.push_back(any ? static_cast<Token>(draw / 8 % static_cast<uint64_t>(tokenizer->size()))
                           : ids[draw / 8 % ids.size()]);
    }
    ASSERT_EQ(stream(*tokenizer, tokens), tokenizer->decode(tokens, false)) << seed;
  }
}

}  // namespace
}  // namespace weir
