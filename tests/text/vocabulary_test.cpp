// What the loader takes from a GGUF file's keys, and what it refuses.
#include "text/vocabulary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "gguf/reader.h"
#include "gguf/writer.h"
#include "vocabularies.h"

namespace weir {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

/// A file with `tokenizer` keys that are all right; tests then change some.
class VocabularyFile : public testing::Test {
 protected:
  VocabularyFile() {
    const Vocabulary vocabulary = byte_vocabulary({"a b", "ab c"});
    set("general.architecture", std::string("test"));
    set("tokenizer.ggml.model", std::string("gpt2"));
    set("tokenizer.ggml.pre", std::string("qwen2"));
    set("tokenizer.ggml.tokens", vocabulary.tokens);
    set("tokenizer.ggml.token_type", std::vector<int32_t>(vocabulary.tokens.size(), 1));
    set("tokenizer.ggml.merges", vocabulary.merges);
  }
  ~VocabularyFile() override { std::filesystem::remove(path_); }

  template <typename T>
  void set(const std::string& key, const T& value) {
    changes_[key] = [key, value](gguf::Writer& writer) { writer.set(key, value); };
  }
  void leave_out(const std::string& key) { changes_.erase(key); }

  gguf::Model model() const {
    gguf::Writer writer;
    for (const auto& [key, apply] : changes_) apply(writer);
    writer.write(path_);
    return gguf::Model::open(path_);
  }
  std::string refusal() const {
    return message_of([&] { load_vocabulary(model()); });
  }

  std::map<std::string, std::function<void(gguf::Writer&)>> changes_;
  std::string path_ = testing::TempDir() + "weir_vocabulary_test.gguf";
};

TEST_F(VocabularyFile, IsReadWhole) {
  set("tokenizer.ggml.bos_token_id", 3u);
  set("tokenizer.ggml.eos_token_id", 4u);
  set("tokenizer.ggml.unknown_token_id", 5u);
  set("tokenizer.ggml.eot_token_id", 6u);
  set("tokenizer.ggml.fim_sep_token_id", 7u);
  set("tokenizer.ggml.eos_token_ids", std::vector<int32_t>{4, 8});
  set("tokenizer.ggml.add_bos_token", true);
  set("tokenizer.ggml.add_eos_token", true);
  const Vocabulary vocabulary = load_vocabulary(model());
  EXPECT_EQ(vocabulary.source, path_);
  EXPECT_EQ(vocabulary.pre, "qwen2");
  EXPECT_EQ(vocabulary.tokens.size(), 258u);
  EXPECT_EQ(vocabulary.tokens[257], "abc");
  EXPECT_EQ(vocabulary.types[257], TokenType::normal);
  EXPECT_THAT(vocabulary.merges, ElementsAre("a b", "ab c"));
  EXPECT_EQ(vocabulary.bos, 3);
  EXPECT_EQ(vocabulary.eos, 4);
  EXPECT_EQ(vocabulary.unknown, 5);
  EXPECT_THAT(vocabulary.ends, ElementsAre(6, 7, 4, 8));
  EXPECT_EQ(vocabulary.add_bos, true);
  EXPECT_TRUE(vocabulary.add_eos);
  const auto tokenizer = Tokenizer::load(model());
  EXPECT_THAT(tokenizer->encode("abc", {}), ElementsAre(3, 257));
  EXPECT_THAT(tokenizer->encode("abc", {.add_end = true}), ElementsAre(3, 257, 4));
}

TEST_F(VocabularyFile, AbsentIdsAndFlagsStayOpen) {
  leave_out("tokenizer.ggml.token_type");
  const Vocabulary vocabulary = load_vocabulary(model());
  EXPECT_EQ(vocabulary.bos, -1);
  EXPECT_EQ(vocabulary.eos, -1);
  EXPECT_EQ(vocabulary.add_bos, std::nullopt);
  EXPECT_FALSE(vocabulary.add_eos);
  EXPECT_THAT(vocabulary.types, testing::Each(TokenType::normal));
  EXPECT_EQ(vocabulary.types.size(), 258u);
}

TEST_F(VocabularyFile, AnUnsupportedModelIsNamed) {
  set("tokenizer.ggml.model", std::string("llama"));
  EXPECT_EQ(refusal(),
            path_ +
                ": tokenizer.ggml.model is 'llama', which is not supported (supported: gpt2, which is "
                "byte-level BPE)");
}

TEST_F(VocabularyFile, MissingKeysAreNamed) {
  for (const char* key :
       {"tokenizer.ggml.model", "tokenizer.ggml.pre", "tokenizer.ggml.tokens", "tokenizer.ggml.merges"}) {
    const auto change = changes_.at(key);
    leave_out(key);
    EXPECT_THAT(refusal(), testing::AllOf(HasSubstr(path_), HasSubstr(key)));
    changes_[key] = change;
  }
}

TEST_F(VocabularyFile, TypesMustMatchTheTokens) {
  set("tokenizer.ggml.token_type", std::vector<int32_t>(257, 1));
  EXPECT_THAT(refusal(),
              HasSubstr("tokenizer.ggml.token_type has 257 integers, tokenizer.ggml.tokens has 258 tokens"));
  std::vector<int32_t> types(258, 1);
  types[20] = 7;
  set("tokenizer.ggml.token_type", types);
  EXPECT_THAT(refusal(), HasSubstr("tokenizer.ggml.token_type[20] is 7: a type from 0 to 6 is needed"));
}

TEST_F(VocabularyFile, ArraysOfAnotherTypeAreRefused) {
  set("tokenizer.ggml.merges", std::vector<int32_t>{1, 2});
  EXPECT_THAT(refusal(), HasSubstr("tokenizer.ggml.merges is an array of i32: strings are needed"));
}

TEST_F(VocabularyFile, IdsOutOfRangeWarnOnceAndAreNone) {
  for (const char* key :
       {"tokenizer.ggml.bos_token_id", "tokenizer.ggml.eos_token_id", "tokenizer.ggml.unknown_token_id"})
    set(key, 4294967295u);
  set("tokenizer.ggml.eom_token_id", 258u);
  set("tokenizer.ggml.eot_token_id", 4u);
  set("tokenizer.ggml.eos_token_ids", std::vector<int32_t>{-1, 8});
  testing::internal::CaptureStderr();
  const Vocabulary vocabulary = load_vocabulary(model());
  const std::string warnings = testing::internal::GetCapturedStderr();
  EXPECT_EQ(vocabulary.bos, -1);
  EXPECT_EQ(vocabulary.eos, -1);
  EXPECT_EQ(vocabulary.unknown, -1);
  EXPECT_THAT(vocabulary.ends, ElementsAre(4, 8));
  EXPECT_EQ(std::count(warnings.begin(), warnings.end(), '\n'), 5) << warnings;
  EXPECT_THAT(warnings, HasSubstr(path_ + ": tokenizer.ggml.bos_token_id is 4294967295, outside the 258 "
                                          "tokens of the vocabulary: there is no such token"));
  EXPECT_THAT(warnings, HasSubstr("tokenizer.ggml.eos_token_ids is -1"));
  EXPECT_THAT(make_tokenizer(vocabulary)->encode("abc", {.add_end = true}), ElementsAre(257));
}

TEST_F(VocabularyFile, AnUndefinedTypeIsANormalToken) {
  std::vector<int32_t> types(258, 0);
  types[20] = 3;
  set("tokenizer.ggml.token_type", types);
  const Vocabulary vocabulary = load_vocabulary(model());
  EXPECT_EQ(vocabulary.types[0], TokenType::normal);
  EXPECT_EQ(vocabulary.types[20], TokenType::control);
  EXPECT_THAT(make_tokenizer(vocabulary)->encode("abc", {}), ElementsAre(257));
}

}  // namespace
}  // namespace weir
