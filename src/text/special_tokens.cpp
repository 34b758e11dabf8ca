// See special_tokens.h.
#include "text/special_tokens.h"

#include <algorithm>
#include <array>
#include <map>
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

void SpecialTokens::find_at(std::string_view text, size_t at, Parse parse,
                            std::vector<Occurrence>& found) const {
  // [low, high) are the specials that share the `depth` bytes of text at `at`.
  auto low = specials_.begin(), high = specials_.end();
  for (size_t depth = 0; low != high; ++depth) {
    // In byte order a text precedes its continuations, so a full match is the first of the range.
    for (; low != high && low->text.size() == depth; ++low) {
      if (parse == Parse::all || low->user_defined) found.push_back({at, &*low});
    }
    if (at + depth == text.size()) return;
    const auto byte = static_cast<unsigned char>(text[at + depth]);
    auto byte_of = [depth](const Special& special) {
      return static_cast<unsigned char>(special.text[depth]);
    };
    low = std::partition_point(low, high, [&](const Special& special) { return byte_of(special) < byte; });
    high = std::partition_point(low, high, [&](const Special& special) { return byte_of(special) == byte; });
  }
}

std::vector<SpecialTokens::Occurrence> SpecialTokens::find(std::string_view text, Parse parse) const {
  std::array<bool, 256> begins{};
  for (const Special& special : specials_) begins[static_cast<unsigned char>(special.text[0])] = true;
  std::vector<Occurrence> found;
  for (size_t at = 0; at < text.size(); ++at) {
    if (begins[static_cast<unsigned char>(text[at])]) find_at(text, at, parse, found);
  }
  std::sort(found.begin(), found.end(), [](const Occurrence& a, const Occurrence& b) {
    const size_t a_size = a.special->text.size(), b_size = b.special->text.size();
    if (a_size != b_size) return a_size > b_size;
    if (a.special != b.special) return a.special->token < b.special->token;
    return a.at < b.at;
  });
  return found;
}

std::vector<Fragment> SpecialTokens::split(std::string_view text, Parse parse) const {
  std::map<size_t, const Special*> claimed;  // by offset; they do not overlap
  for (const Occurrence& occurrence : find(text, parse)) {
    const size_t end = occurrence.at + occurrence.special->text.size();
    const auto next = claimed.lower_bound(occurrence.at);
    if (next != claimed.end() && next->first < end) continue;
    if (next != claimed.begin()) {
      const auto previous = std::prev(next);
      if (previous->first + previous->second->text.size() > occurrence.at) continue;
    }
    claimed.emplace(occurrence.at, occurrence.special);
  }
  std::vector<Fragment> fragments;
  size_t at = 0;
  for (const auto& [begin, special] : claimed) {
    if (begin > at) fragments.push_back({-1, text.substr(at, begin - at)});
    fragments.push_back({special->token, text.substr(begin, special->text.size())});
    at = begin + special->text.size();
  }
  if (at < text.size()) fragments.push_back({-1, text.substr(at)});
  return fragments;
}

}  // namespace weir
