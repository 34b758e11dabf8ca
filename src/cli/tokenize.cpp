// weir tokenize: text to token ids and pieces.
#include <fmt/core.h>

#include <nlohmann/json.hpp>
#include <optional>

#include "base/error.h"
#include "base/log.h"
#include "cli/commands.h"
#include "cli/options.h"
#include "cli/result_json.h"
#include "gguf/reader.h"
#include "text/tokenizer.h"
#include "text/tokenizer_keys.h"

namespace weir::cli {

namespace {

/// A token's text, where bytes that are not whole characters (a token can be a part of one) are `<0xC3>`.
std::string shown(std::string_view piece) {
  std::string out;
  for (;;) {
    const size_t at = invalid_utf8_at(piece);
    out += piece.substr(0, at);
    if (at == std::string_view::npos) return out;
    out += fmt::format("<0x{:02X}>", static_cast<uint8_t>(piece[at]));
    piece.remove_prefix(at + 1);
  }
}

}  // namespace

int tokenize(const Arguments& arguments) {
  std::string model_path, positional, file;
  std::optional<std::string> text_option;
  bool json = false, no_special = false, scored = false;
  CommandLine line("tokenize", "Prints the token ids and pieces of a text.");
  line.example("-m model.gguf -p \"The river\"");
  line.option("-m,--model", &model_path, "model file");
  line.positional("MODEL", &positional, "model file, instead of -m");
  line.option("-p,--prompt", &text_option, "the text");
  line.option("-f,--file", &file, "file with the text; -, or neither this nor -p: standard input");
  line.flag("--no-parse-special", &no_special, "control tokens written in the text are text");
  line.flag("--scored", &scored,
            "as perplexity takes it: with the end token that the model asks for (add_eos_token); default: as "
            "run takes a prompt");
  line.group(Group::output);
  line.flag("--json", &json, "one line of JSON on stdout");
  if (!line.parse(arguments)) return 0;
  if (model_path.empty()) model_path = positional;
  if (model_path.empty()) throw input_error("no model: give a GGUF file with -m");
  const std::string text = prompt_text(text_option, file, text_limit());
  const auto model = gguf::Model::open(model_path);
  const auto tokenizer = Tokenizer::load(model);
  for (const auto& warning : unknown_tokenizer_keys(model)) log_warning(warning);
  const auto tokens = tokenizer->encode(text, {.parse_special = !no_special, .add_end = scored});
  if (json) {
    nlohmann::ordered_json pieces = nlohmann::ordered_json::array();
    for (const Token t : tokens) pieces.push_back(shown(tokenizer->piece(t, true)));
    print_json({{"model", model_path}, {"tokens", tokens}, {"pieces", pieces}});
    return 0;
  }
  for (const Token t : tokens)
    fmt::print("{:>7}  {}\n", t, nlohmann::ordered_json(shown(tokenizer->piece(t, true))).dump());
  return 0;
}

}  // namespace weir::cli
