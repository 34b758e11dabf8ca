#include "lab/prompts.h"

#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "base/file.h"
#include "text/tokenizer.h"

namespace weir::lab {

namespace {

std::string read_whole(const std::string& path) {
  const InputFile file = InputFile::open(path);
  std::string text(file.size(), '\0');
  file.pread_exact(text.data(), text.size(), 0);
  return text;
}

Prompt read_prompt(const std::string& path) {
  Prompt prompt{path, read_whole(path), false};
  if (prompt.text.empty()) throw input_error("the prompt file {} is empty: expected text", path);
  require_utf8(prompt.text, path);
  for (const Prompt& frozen : frozen_prompts())
    if (frozen.text == prompt.text) return frozen;
  return prompt;
}

}  // namespace

std::vector<Prompt> read_prompts(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::is_directory(path, error)) return {read_prompt(path)};
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(path, error))
    if (entry.path().extension() == ".txt") files.push_back(entry.path().string());
  if (error) throw input_error("{}: cannot be listed: {}", path, error.message());
  if (files.empty()) throw input_error("{}: no prompts: expected at least one file named *.txt", path);
  std::vector<Prompt> prompts;
  for (const auto& file : files) prompts.push_back(read_prompt(file));
  std::sort(prompts.begin(), prompts.end(), [](const Prompt& a, const Prompt& b) {
    return std::pair(a.text.size(), a.name) < std::pair(b.text.size(), b.name);
  });
  return prompts;
}

FittedPrompt fit_prompt(const Prompt& prompt, const Engine& engine, int n) {
  const int room = engine.context() - n;
  if (room < 1)
    throw input_error("-n {} leaves no room for a prompt in a context of {}: use a smaller -n or a larger -c",
                      n, engine.context());
  FittedPrompt fitted{prompt.name, engine.tokenizer().encode(prompt.text, {}), 0};
  fitted.text_tokens = static_cast<int>(fitted.tokens.size());
  if (fitted.text_tokens > room && !prompt.frozen)
    throw input_error(
        "{}: {} tokens and {} new ones do not fit the context of {}: use a shorter prompt, a smaller -n or a "
        "larger -c (the model's own limit is {})",
        prompt.name, fitted.text_tokens, n, engine.context(), engine.config().context);
  if (fitted.text_tokens > room) fitted.tokens.resize(static_cast<size_t>(room));
  return fitted;
}

}  // namespace weir::lab
