// An arm's text as words and settings.
#include "lab/ab/words.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace weir::lab::ab {
namespace {

using Words = std::vector<std::string>;

TEST(AbWords, SplitsAsAShellDoes) {
  EXPECT_EQ(split_words(""), Words{});
  EXPECT_EQ(split_words("  \t\n "), Words{});
  EXPECT_EQ(split_words(" --expert-slots  16 "), (Words{"--expert-slots", "16"}));
  EXPECT_EQ(split_words("-m 'a b.gguf' -c \"1 2\""), (Words{"-m", "a b.gguf", "-c", "1 2"}));
  EXPECT_EQ(split_words("a\\ b 'c\\d' \"e\\\"f\\g\""), (Words{"a b", "c\\d", "e\"f\\g"}));
  EXPECT_EQ(split_words("'' \"\" x''y"), (Words{"", "", "xy"}));
  EXPECT_EQ(split_words("'a\"b' \"c'd\""), (Words{"a\"b", "c'd"}));
}

TEST(AbWords, WhatIsNotClosedIsRefused) {
  for (const char* text : {"'a", "\"a", "a\\", "\"a\\"}) EXPECT_THROW(split_words(text), Error) << text;
}

TEST(AbWords, SettingsOfTheEnvironmentAreToldFromOptions) {
  const ArmWords arm =
      parse_arm("WEIR_LEDGER=4 --expert-slots 16 EMPTY= A_1='x y' --key=value lower=1 1A=2 =3");
  EXPECT_EQ(arm.options, (Words{"--expert-slots", "16", "--key=value", "lower=1", "1A=2", "=3"}));
  const std::vector<std::pair<std::string, std::string>> settings{
      {"WEIR_LEDGER", "4"}, {"EMPTY", ""}, {"A_1", "x y"}};
  EXPECT_EQ(arm.environment, settings);
}

TEST(AbWords, NamesThatARunningProcessNoLongerReadsAreRefused) {
  for (const char* text : {"LD_PRELOAD=x.so", "MALLOC_ARENA_MAX=1", "GLIBC_TUNABLES=a"})
    EXPECT_THROW(parse_arm(text), Error) << text;
}

TEST(AbWords, QuotedWordsComeBackWhole) {
  for (const std::string text : {"", "a b", "it's", "'", "$HOME `x` \\ \"q\""})
    EXPECT_EQ(split_words(shell_quote(text)), Words{text});
}

}  // namespace
}  // namespace weir::lab::ab
