// Validity, boundaries and repair of UTF-8, over hand-made sequences and random bytes.
#include <gtest/gtest.h>

#include "base/random.h"
#include "text/tokenizer.h"
#include "vocabularies.h"

namespace weir {
namespace {

constexpr size_t none = std::string_view::npos;

TEST(Utf8, AcceptsEveryScalarValue) {
  for (uint32_t code = 0; code < 0x110000; ++code) {
    if (code >= 0xd800 && code <= 0xdfff) continue;
    const std::string text = utf8_of(code);
    ASSERT_EQ(invalid_utf8_at(text), none) << code;
    ASSERT_EQ(complete_utf8_prefix(text), text.size()) << code;
  }
}

TEST(Utf8, RefusesOverlongFormsSurrogatesAndValuesAboveTheLast) {
  for (const char* text : {"\xc0\x80", "\xc1\xbf", "\xe0\x9f\xbf", "\xf0\x8f\xbf\xbf", "\xed\xa0\x80",
                           "\xed\xbf\xbf", "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\x80", "\xff"}) {
    EXPECT_EQ(invalid_utf8_at(std::string("ab") + text), 2u);
  }
}

TEST(Utf8, NamesTheFirstByteOfTheSequenceThatIsInvalid) {
  EXPECT_EQ(invalid_utf8_at("caf\xc3"), 3u);
  EXPECT_EQ(invalid_utf8_at("\xe4\xb8\xad\xe4\xb8"
                            "a"),
            3u);
  EXPECT_EQ(invalid_utf8_at(""), none);
}

TEST(Utf8, HoldsBackOnlyWhatCouldStillBecomeACharacter) {
  EXPECT_EQ(complete_utf8_prefix("a\xe4\xb8"), 1u);
  EXPECT_EQ(complete_utf8_prefix("a\xf0\x9f\x98"), 1u);
  EXPECT_EQ(complete_utf8_prefix("a\xe4"
                                 "b"),
            3u);
  EXPECT_EQ(complete_utf8_prefix("a\x80"), 2u);
  EXPECT_EQ(complete_utf8_prefix("a\xed\xa0"), 3u);  // the beginning of a surrogate: no character follows
}

TEST(Utf8, RepairsEachInvalidSequenceWithOneReplacement) {
  EXPECT_EQ(replace_invalid_utf8("a\xe4\xb8"), "a\ufffd");
  EXPECT_EQ(replace_invalid_utf8("\xe4\xb8z"), "\ufffdz");
  EXPECT_EQ(replace_invalid_utf8("\xff\xfe"), "\ufffd\ufffd");
  EXPECT_EQ(replace_invalid_utf8("\xe4\xb8\xad"), "\u4e2d");
}

TEST(Utf8, RepairInPiecesEqualsRepairAtOnce) {
  // Lead bytes and continuations are drawn often, so that sequences are cut in every place.
  for (uint64_t seed = 0; seed < 3000; ++seed) {
    std::string bytes;
    for (uint64_t i = 0; i < 24; ++i) {
      const uint64_t draw = random_u64(seed, i);
      static constexpr std::string_view leads = "\xc3\xe0\xe4\xed\xf0\xf4\xff";
      const uint64_t kind = draw % 4;
      if (kind == 0) bytes += leads[draw / 4 % leads.size()];
      if (kind == 1 || kind == 2) bytes += static_cast<char>(0x80 + draw / 4 % 64);
      if (kind == 3) bytes += static_cast<char>(draw / 4 % 256);
    }
    std::string held, shown;
    for (const char byte : bytes) {
      held += byte;
      const size_t whole = complete_utf8_prefix(held);
      shown += replace_invalid_utf8(held.substr(0, whole));
      held.erase(0, whole);
      ASSERT_LT(held.size(), 4u);
    }
    shown += replace_invalid_utf8(held);
    ASSERT_EQ(shown, replace_invalid_utf8(bytes)) << seed;
    ASSERT_EQ(invalid_utf8_at(shown), none) << seed;
  }
}

}  // namespace
}  // namespace weir
