// The prompts that measurements run on: the project's own, frozen and inside the binary, or a user's files.
// Owns reading, checking and fitting them into a context; knows nothing of what is measured.
#pragma once

#include <string>
#include <vector>

#include "engine/engine.h"

namespace weir::lab {

struct Prompt {
  std::string name;  ///< "short", or the file's path
  std::string text;
  bool frozen = false;  ///< one of the project's own: cut where it is longer than the context
};

/// prompts/short.txt, medium.txt and long.txt as they were when the binary was built, in this order.
std::vector<Prompt> frozen_prompts();

/// One file, or every *.txt of a folder, smaller files first. A text that equals a frozen prompt counts as
/// frozen. Throws Error (input) where there is nothing to read, or a file is empty or not
/// UTF-8.
std::vector<Prompt> read_prompts(const std::string& path);

/// A prompt as tokens that leave room for `n` new ones.
struct FittedPrompt {
  std::string name;
  std::vector<Token> tokens;
  int text_tokens = 0;  ///< of the whole text
  bool cut() const { return static_cast<int>(tokens.size()) < text_tokens; }
};

/// A frozen prompt keeps its first context - n tokens; a user's prompt that does not fit is refused (Error,
/// input).
FittedPrompt fit_prompt(const Prompt& prompt, const Engine& engine, int n);

}  // namespace weir::lab
