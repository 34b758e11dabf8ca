// The pocket model's tokens against those of an independent implementation (tests/golden/PROVENANCE.md).
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "gguf/reader.h"
#include "sha256.h"
#include "vocabularies.h"

namespace weir {
namespace {

nlohmann::json golden() {
  std::ifstream file(WEIR_SOURCE_DIR "/tests/golden/pocket.tokenize.json");
  return nlohmann::json::parse(file);
}

std::unique_ptr<Tokenizer> pocket() {
  return Tokenizer::load(gguf::Model::open(WEIR_SOURCE_DIR "/models/pocket-moe-q4.gguf"));
}

TEST(Golden, ThePocketModelsTokensAreTheReferences) {
  const auto tokenizer = pocket();
  const nlohmann::json cases = golden().at("cases");
  ASSERT_GT(cases.size(), 50u);
  for (const nlohmann::json& item : cases) {
    const auto text = item.at("text").get<std::string>();
    const auto tokens = tokenizer->encode(text, {.add_special = true, .parse_special = true});
    EXPECT_EQ(tokens, item.at("ids").get<std::vector<Token>>()) << text;
    EXPECT_EQ(tokenizer->decode(tokens, true), text);
  }
}

TEST(Golden, AWholeCorpusHasTheReferencesTokens) {
  ASSERT_EQ(Sha256::hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  const nlohmann::json corpus = golden().at("corpus");
  std::ifstream file(WEIR_SOURCE_DIR "/models/" + corpus.at("file").get<std::string>());
  std::stringstream text;
  text << file.rdbuf();
  ASSERT_EQ(Sha256::hex(text.str()), corpus.at("file_sha256"));
  const auto tokenizer = pocket();
  const std::vector<Token> tokens = tokenizer->encode(text.str(), {});
  EXPECT_EQ(tokens.size(), corpus.at("tokens").get<size_t>());
  const auto* bytes = reinterpret_cast<const char*>(tokens.data());
  EXPECT_EQ(Sha256::hex({bytes, tokens.size() * sizeof(Token)}), corpus.at("sha256_of_ids_as_int32_le"));
  EXPECT_EQ(tokenizer->decode(tokens, true), text.str());
}

TEST(Golden, TheFilesVocabularyIsTheOneItWasTrainedWith) {
  const auto tokenizer = pocket();
  const Vocabulary vocabulary = pocket_vocabulary();
  const auto expected = make_tokenizer(vocabulary);
  ASSERT_EQ(tokenizer->size(), expected->size());
  for (Token token = 0; token < tokenizer->size(); ++token) {
    ASSERT_EQ(tokenizer->piece(token, true), expected->piece(token, true)) << token;
    ASSERT_EQ(tokenizer->is_end(token), expected->is_end(token)) << token;
  }
  EXPECT_EQ(tokenizer->eos(), 8191);
  EXPECT_EQ(tokenizer->bos(), -1);
  EXPECT_FALSE(tokenizer->adds_bos());
  EXPECT_TRUE(tokenizer->is_end(8189));   // <|endoftext|>
  EXPECT_FALSE(tokenizer->is_end(8190));  // <|im_start|>
}

}  // namespace
}  // namespace weir
