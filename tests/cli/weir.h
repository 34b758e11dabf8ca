// Running the binary as a user does, and what every answer to bad input must look like.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "support/process.h"
#include "support/temp_dir.h"
#include "support/tiny_model.h"

namespace weir::test {

inline std::string weir_binary() { return std::string(WEIR_BINARY_DIR) + "/weir"; }
inline std::string pocket_model() { return std::string(WEIR_SOURCE_DIR) + "/models/pocket-moe-q4.gguf"; }

using Arguments = std::vector<std::string>;

/// `weir ARGUMENTS...`, without the ledger's variable of the caller's environment.
inline ProcessResult weir(const Arguments& arguments, ProcessOptions options = {}) {
  options.command = {weir_binary()};
  options.command.insert(options.command.end(), arguments.begin(), arguments.end());
  if (options.environment.empty()) options.environment = {{"WEIR_LEDGER", ""}};
  options.timeout_seconds = 120;
  return run_process(options);
}

inline Arguments operator+(Arguments left, const Arguments& right) {
  left.insert(left.end(), right.begin(), right.end());
  return left;
}

inline std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

/// An answer to bad input: no signal, nothing on stdout, and stderr ends with the one line that is the error,
/// which holds every one of `words`.
inline void expect_refused(const ProcessResult& result, const std::vector<std::string>& words) {
  EXPECT_FALSE(result.timed_out);
  EXPECT_EQ(result.signal, 0) << result.err;
  EXPECT_EQ(result.exit_code, 2) << result.err;
  EXPECT_EQ(result.out, "");
  const std::vector<std::string> lines = lines_of(result.err);
  ASSERT_FALSE(lines.empty());
  EXPECT_EQ(lines.back().rfind("weir: error: ", 0), 0u) << "the last line is no error: " << result.err;
  for (const std::string& word : words)
    EXPECT_NE(lines.back().find(word), std::string::npos) << "`" << word << "` is not in: " << lines.back();
}

/// Failed in the midst of work: an exit code of its own, no signal, and `words` on stderr.
inline void expect_failed(const ProcessResult& result, const std::vector<std::string>& words) {
  EXPECT_FALSE(result.timed_out);
  EXPECT_EQ(result.signal, 0) << result.err;
  EXPECT_TRUE(result.exit_code == 1 || result.exit_code == 2) << result.exit_code << ": " << result.err;
  for (const std::string& word : words)
    EXPECT_NE(result.err.find(word), std::string::npos) << "`" << word << "` is not in: " << result.err;
}

/// One line of JSON on stdout and nothing else there.
inline nlohmann::json json_answer(const ProcessResult& result) {
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out.find('\n'), result.out.size() - 1) << result.out;
  nlohmann::json answer = nlohmann::json::parse(result.out, nullptr, /*allow_exceptions=*/false);
  EXPECT_FALSE(answer.is_discarded()) << result.out;
  return answer;
}

class Cli : public testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(weir_binary())) GTEST_SKIP() << weir_binary() << " is not built";
  }
  std::string tiny(const TinyModelOptions& options = {}) {
    return write_tiny_model(dir_.file("tiny.gguf"), options);
  }
  TempDir dir_;
};

}  // namespace weir::test
