// What a GGUF file says about its tokenizer, as plain data, and the tokenizer built from it. The loader is
// the only part of the module that knows GGUF keys.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "text/tokenizer.h"

namespace weir {

/// Values of tokenizer.ggml.token_type.
enum class TokenType : uint8_t {
  normal = 1,
  unknown = 2,
  control = 3,
  user_defined = 4,
  unused = 5,
  byte = 6
};

struct Vocabulary {
  std::string source;               ///< the file, for messages
  std::string pre;                  ///< tokenizer.ggml.pre
  std::vector<std::string> tokens;  ///< by id; in the byte alphabet, or literal text for the special ones
  std::vector<TokenType> types;     ///< as many as tokens
  std::vector<std::string> merges;  ///< "left right", lowest rank first
  Token bos = -1, eos = -1, unknown = -1;  ///< -1: none, or out of range in the file, which was warned about
  std::vector<Token> ends;      ///< further end-of-generation ids that the file names (eot, eom, ...)
  std::optional<bool> add_bos;  ///< absent: the pre-tokenizer's default
  bool add_eos = false;
};

/// Throws Error (input) naming file and key for what is missing, of the wrong type or unsupported. A special
/// id outside the vocabulary is a warning, and none.
Vocabulary load_vocabulary(const gguf::Model& model);

/// Checks the vocabulary's own consistency (Error as above) and builds the byte-level BPE tokenizer.
std::unique_ptr<Tokenizer> make_tokenizer(Vocabulary vocabulary);

}  // namespace weir
