// Vocabularies and texts that the tests of the text module share.
#pragma once

#include <fstream>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/random.h"
#include "text/byte_alphabet.h"
#include "text/vocabulary.h"

namespace weir {

/// The 256 bytes (id = byte), then the results of `merges` (in the byte alphabet) in order.
inline Vocabulary byte_vocabulary(const std::vector<std::string>& merges = {}) {
  Vocabulary vocabulary;
  vocabulary.source = "tiny.gguf";
  vocabulary.pre = "qwen2";
  for (int byte = 0; byte < 256; ++byte) {
    vocabulary.tokens.push_back(alphabet_character(static_cast<uint8_t>(byte)));
  }
  for (const std::string& merge : merges) {
    const size_t space = merge.find(' ', 1);
    vocabulary.tokens.push_back(merge.substr(0, space) + merge.substr(space + 1));
  }
  vocabulary.merges = merges;
  vocabulary.types.assign(vocabulary.tokens.size(), TokenType::normal);
  return vocabulary;
}

/// Appends a token and returns its id.
inline Token add_token(Vocabulary& vocabulary, const std::string& text, TokenType type) {
  vocabulary.tokens.push_back(text);
  vocabulary.types.push_back(type);
  return static_cast<Token>(vocabulary.tokens.size()) - 1;
}

/// The pocket model's, from the tokenizer file that it was trained with.
inline Vocabulary pocket_vocabulary() {
  std::ifstream file(WEIR_SOURCE_DIR "/models/train/tokenizer.json");
  const nlohmann::json json = nlohmann::json::parse(file);
  Vocabulary vocabulary;
  vocabulary.source = "tokenizer.json";
  vocabulary.pre = "qwen2";
  vocabulary.tokens = json.at("tokens").get<std::vector<std::string>>();
  vocabulary.merges = json.at("merges").get<std::vector<std::string>>();
  vocabulary.types.assign(vocabulary.tokens.size(), TokenType::normal);
  for (size_t i = vocabulary.tokens.size() - 3; i < vocabulary.tokens.size(); ++i) {
    vocabulary.types[i] = TokenType::control;
  }
  vocabulary.eos = static_cast<Token>(vocabulary.tokens.size()) - 1;
  return vocabulary;
}

inline std::string utf8_of(uint32_t code) {
  auto byte = [](uint32_t value) { return static_cast<char>(value); };
  if (code < 0x80) return {byte(code)};
  if (code < 0x800) return {byte(0xc0 | code >> 6), byte(0x80 | (code & 63))};
  if (code < 0x10000)
    return {byte(0xe0 | code >> 12), byte(0x80 | (code >> 6 & 63)), byte(0x80 | (code & 63))};
  return {byte(0xf0 | code >> 18), byte(0x80 | (code >> 12 & 63)), byte(0x80 | (code >> 6 & 63)),
          byte(0x80 | (code & 63))};
}

/// A valid UTF-8 text of up to 60 characters: letters, spaces, newlines, digits, marks, and any code point at
/// all.
inline std::string random_text(uint64_t seed) {
  static const std::vector<std::string> common = {
      "a",   "e", "T",  "he", " ",  "  ",     "\n",     "\r\n",   "\t",     "'s",
      "'LL", "1", "23", ".",  "--", "\u00e9", "\u0301", "\u4e2d", "\u00a0", "\U0001f600"};
  std::string text;
  const uint64_t length = random_u64(seed, 0) % 61;
  for (uint64_t i = 0; i < length; ++i) {
    const uint64_t draw = random_u64(seed, i + 1);
    if (draw % 3 != 0) {
      text += common[draw / 3 % common.size()];
      continue;
    }
    const auto code = static_cast<uint32_t>(draw / 3 % 0x110000);
    if (code < 0xd800 || code > 0xdfff) text += utf8_of(code);
  }
  return text;
}

/// The message of the Error that `call` throws; a note where it throws none.
template <typename F>
std::string message_of(F&& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "(no error)";
}

}  // namespace weir
