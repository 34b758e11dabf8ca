// The "tokenizer.ggml.*" keys that the loader does not read: those that change what byte-level BPE makes of a
// text are refused by name, those that describe are on one list, others are unknown.
#pragma once

#include <string>
#include <vector>

namespace weir::gguf {
class Model;
}

namespace weir {

/// Throws Error (input) naming file, key and value where the file asks for a tokenization that weir does not
/// do.
void refuse_tokenizer_keys(const gguf::Model& model);

/// "tokenizer.ggml.frobnication is unknown and has no effect", a line for each such key.
std::vector<std::string> unknown_tokenizer_keys(const gguf::Model& model);

}  // namespace weir
