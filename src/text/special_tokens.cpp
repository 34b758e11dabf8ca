// See special_tokens.h.
#include "text/special_tokens.h"

#include <algorithm>
#include <array>
#include <unordered_map>

namespace weir {
namespace {

// Texts that end a turn or a document in the chat formats of the supported families, whatever type the file
// gives.
constexpr std::array<std::string_view, 13> end_texts = {
    "<|eot_id|>",      "<|im_end|>", "<|end|>",    "<|return|>",      "<|call|>", "<end_of_turn>",
    "<|endoftext|>",   "</s>",       "<|eom_id|>", "<|end_of_text|>", "<eos>",    "<turn|>",
    "<|tool_response>"};
// Where code models close a file or a repository: nothing that follows belongs to the answer.
constexpr std::array<std::string_view, 8> infill_end_texts = {"<|fim_pad|>",  "<fim-pad>",     "<fim_pad>",
                                                              "<|fim_repo|>", "<|repo_name|>", "<fim-repo>",
                                                              "<reponame>",   "<|file_sep|>"};
// Harmony's structure, which a reader of the stream needs to see.
constexpr std::array<std::string_view, 4> always_printed_texts = {"<|start|>", "<|channel|>", "<|message|>",
                                                                  "<|constrain|>"};

}  // namespace

std::vector<bool> settle_special_types(Vocabulary& vocabulary) {
  std::unordered_map<std::string_view, Token> ids;
  for (size_t i = 0; i < vocabulary.tokens.size(); ++i)
    ids.emplace(vocabulary.tokens[i], static_cast<Token>(i));
  auto find = [&](std::string_view text) {
    const auto found = ids.find(text);
    return found == ids.end() ? Token{-1} : found->second;
  };
  auto set_type = [&](Token id, TokenType type) { vocabulary.types[static_cast<size_t>(id)] = type; };

  std::vector<bool> ends(vocabulary.tokens.size(), false);
  auto mark_texts = [&](auto& texts) {
    for (const std::string_view text : texts) {
      const Token id = find(text);
      if (id < 0) continue;
      ends[static_cast<size_t>(id)] = true;
      set_type(id, TokenType::control);
    }
  };
  mark_texts(end_texts);
  mark_texts(infill_end_texts);
  for (const std::string_view text : always_printed_texts) {
    if (const Token id = find(text); id >= 0) set_type(id, TokenType::user_defined);
  }
  for (const Token id : vocabulary.ends) ends[static_cast<size_t>(id)] = true;
  if (vocabulary.eos >= 0) ends[static_cast<size_t>(vocabulary.eos)] = true;

  // Harmony ends a message with <|end|>, and its answer goes on with the next one.
  if (const Token end = find("<|end|>"); end >= 0 && find("<|return|>") >= 0 && find("<|call|>") >= 0) {
    ends[static_cast<size_t>(end)] = false;
    set_type(end, TokenType::user_defined);
  }
  // In vocabularies with this token, </s> is ordinary mark-up.
  if (const Token mark_up = find("</s>"); mark_up >= 0 && find("<|tool_response>") >= 0) {
    ends[static_cast<size_t>(mark_up)] = false;
    set_type(mark_up, TokenType::normal);
  }
  return ends;
}

SpecialTokens::SpecialTokens(const Vocabulary& vocabulary) {
  for (size_t i = 0; i < vocabulary.tokens.size(); ++i) {
    const TokenType type = vocabulary.types[i];
    const std::string& text = vocabulary.tokens[i];
    const bool special =
        type == TokenType::control || type == TokenType::user_defined || type == TokenType::unknown;
    // One that is not valid UTF-8 can occur in no text, but would match inside characters.
    if (!special || text.empty() || invalid_utf8_at(text) != std::string_view::npos) continue;
    specials_.push_back({text, static_cast<Token>(i), type == TokenType::user_defined});
  }
  std::sort(specials_.begin(), specials_.end(),
            [](const Special& a, const Special& b) { return a.text < b.text; });
}

/// Marks the special tokens that `text` begins with.
void SpecialTokens::find_at(std::string_view text, Parse parse, std::vector<bool>& found) const {
  // [low, high) are the specials that share the first `depth` bytes of text.
  auto low = specials_.begin(), high = specials_.end();
  for (size_t depth = 0; low != high; ++depth) {
    // In byte order a text precedes its continuations, so a full match is the first of the range.
    for (; low != high && low->text.size() == depth; ++low) {
      if (parse == Parse::all || low->user_defined)
        found[static_cast<size_t>(low - specials_.begin())] = true;
    }
    if (depth == text.size()) return;
    const auto byte = static_cast<unsigned char>(text[depth]);
    auto byte_of = [depth](const Special& special) {
      return static_cast<unsigned char>(special.text[depth]);
    };
    low = std::partition_point(low, high, [&](const Special& special) { return byte_of(special) < byte; });
    high = std::partition_point(low, high, [&](const Special& special) { return byte_of(special) == byte; });
  }
}

/// Those that occur in the text, in the order in which they claim.
std::vector<const SpecialTokens::Special*> SpecialTokens::occurring(std::string_view text,
                                                                    Parse parse) const {
  std::array<bool, 256> begins{};
  for (const Special& special : specials_) begins[static_cast<unsigned char>(special.text[0])] = true;
  std::vector<bool> found(specials_.size());
  for (size_t at = 0; at < text.size(); ++at) {
    if (begins[static_cast<unsigned char>(text[at])]) find_at(text.substr(at), parse, found);
  }
  std::vector<const Special*> result;
  for (size_t i = 0; i < found.size(); ++i)
    if (found[i]) result.push_back(&specials_[i]);
  std::sort(result.begin(), result.end(), [](const Special* a, const Special* b) {
    return a->text.size() != b->text.size() ? a->text.size() > b->text.size() : a->token < b->token;
  });
  return result;
}

void SpecialTokens::claim(std::string_view text, const Special& special, Claims& claims) {
  for (size_t at = text.find(special.text), next; at != std::string_view::npos;
       at = text.find(special.text, next)) {
    const auto begin = claims.claimed.begin() + static_cast<std::ptrdiff_t>(at),
               end = begin + static_cast<std::ptrdiff_t>(special.text.size());
    next = at + 1;
    if (std::find(begin, end, true) != end) continue;
    std::fill(begin, end, true);
    claims.begins[at] = true;
    next = at + special.text.size();
  }
}

Token SpecialTokens::token_of(std::string_view special) const {
  const auto found = std::partition_point(specials_.begin(), specials_.end(),
                                          [&](const Special& s) { return s.text < special; });
  return found->token;
}

void SpecialTokens::split(std::string_view text, Parse parse,
                          const std::function<void(const Fragment&)>& take) const {
  const auto specials = occurring(text, parse);
  if (specials.empty()) {
    if (!text.empty()) take({-1, text});
    return;
  }
  Claims claims{std::vector<bool>(text.size()), std::vector<bool>(text.size())};
  for (const Special* special : specials) claim(text, *special, claims);
  for (size_t at = 0, end; at < text.size(); at = end) {
    const bool special = claims.claimed[at];
    for (end = at + 1; end < text.size(); ++end)
      if (claims.claimed[end] != special || claims.begins[end]) break;
    const std::string_view part = text.substr(at, end - at);
    take({special ? token_of(part) : -1, part});
  }
}

}  // namespace weir
