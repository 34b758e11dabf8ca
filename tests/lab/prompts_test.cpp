// The frozen prompts stay as they were, and prompts are read, cut and refused as documented.
#include "lab/prompts.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <sstream>

#include "base/error.h"
#include "support/paths.h"
#include "support/temp_dir.h"
#include "support/tiny_model.h"
#include "text/sha256.h"

namespace weir::lab {
namespace {

std::string read_text(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::string refusal(const auto& action) {
  try {
    action();
  } catch (const Error& e) {
    EXPECT_EQ(e.exit_code(), 2);
    return e.what();
  }
  ADD_FAILURE() << "not refused";
  return {};
}

TEST(Prompts, FilesAndBinaryHoldTheRecordedBytes) {
  std::istringstream sums(read_text(testing::source_path("prompts/SHA256SUMS")));
  std::string hash, file;
  size_t seen = 0;
  const auto frozen = frozen_prompts();
  ASSERT_EQ(frozen.size(), 3u);
  while (sums >> hash >> file) {
    EXPECT_EQ(Sha256::hex(read_text(testing::source_path("prompts/" + file))), hash) << file << " was edited";
    ASSERT_LT(seen, frozen.size());
    EXPECT_EQ(frozen[seen].name + ".txt", file);
    EXPECT_EQ(Sha256::hex(frozen[seen].text), hash) << file << " in the binary differs";
    ++seen;
  }
  EXPECT_EQ(seen, frozen.size());
}

TEST(Prompts, PocketTokensAreThoseOfTheReadme) {
  EngineOptions options;
  options.model = testing::pocket_model();
  const Engine engine(options);
  const auto frozen = frozen_prompts();
  const int tokens[] = {68, 416, 3111}, kept[] = {68, 416, 1920};
  for (size_t i = 0; i < frozen.size(); ++i) {
    const FittedPrompt fitted = fit_prompt(frozen[i], engine, 128);
    EXPECT_EQ(fitted.text_tokens, tokens[i]);
    EXPECT_EQ(static_cast<int>(fitted.tokens.size()), kept[i]);
    EXPECT_EQ(fitted.cut(), tokens[i] != kept[i]);
  }
}

TEST(Prompts, AFolderGivesItsTextFilesSmallestFirstAndKnowsFrozenOnes) {
  const test::TempDir dir;
  std::ofstream(dir.file("b.txt")) << "a longer prompt";
  std::ofstream(dir.file("z.txt")) << "short";
  std::ofstream(dir.file("notes.md")) << "no prompt";
  std::ofstream(dir.file("c.txt")) << frozen_prompts()[2].text;
  const auto prompts = read_prompts(dir.path().string());
  ASSERT_EQ(prompts.size(), 3u);
  EXPECT_EQ(prompts[0].text, "short");
  EXPECT_FALSE(prompts[0].frozen);
  EXPECT_EQ(prompts[1].text, "a longer prompt");
  EXPECT_EQ(prompts[2].name, "long");
  EXPECT_TRUE(prompts[2].frozen);
}

TEST(Prompts, WhatCannotBeUsedIsNamed) {
  const test::TempDir dir;
  std::ofstream(dir.file("empty.txt")).flush();
  EXPECT_NE(refusal([&] { read_prompts(dir.file("empty.txt")); }).find("empty.txt is empty"),
            std::string::npos);
  EXPECT_NE(refusal([&] { read_prompts(dir.file("none.txt")); }).find("none.txt"), std::string::npos);
  const test::TempDir bare;
  EXPECT_NE(refusal([&] { read_prompts(bare.path().string()); }).find("*.txt"), std::string::npos);
}

TEST(Prompts, AUsersPromptOverTheContextIsRefusedAndAFrozenOneIsCut) {
  const test::TempDir dir;
  EngineOptions options;
  options.model = test::write_tiny_model(dir.file("tiny.gguf"));
  options.context = 64;
  const Engine engine(options);
  const std::string text(100, 'x');
  const std::string message = refusal([&] { fit_prompt({"mine.txt", text, false}, engine, 8); });
  for (const char* word : {"mine.txt", "64", "-c", "-n"})
    EXPECT_NE(message.find(word), std::string::npos) << word << " is not in: " << message;
  EXPECT_EQ(fit_prompt({"ours", text, true}, engine, 8).tokens.size(), 56u);
  EXPECT_NE(refusal([&] { fit_prompt({"ours", text, true}, engine, 64); }).find("-n 64"), std::string::npos);
}

}  // namespace
}  // namespace weir::lab
