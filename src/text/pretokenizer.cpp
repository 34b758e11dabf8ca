// See pretokenizer.h. Matching is PCRE2's, with UTF and Unicode properties.
#include "text/pretokenizer.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <array>

#include "base/error.h"

namespace weir {
namespace {

constexpr std::string_view gpt2_expression =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S))";

constexpr std::string_view llama3_expression =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|)"
    R"( ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

constexpr std::array<PretokenizerRow, 7> rows = {{
    {.name = "qwen2",
     .expression = R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|)"
                   R"( ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
    {.name = "qwen35",
     .expression = R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}|)"
                   R"( ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
    {.name = "gpt-4o",
     .expression = R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
                   R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
                   R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
                   R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
                   R"(\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
    {.name = "llama-bpe", .expression = llama3_expression, .ignore_merges = true, .adds_bos = true},
    {.name = "dbrx", .expression = llama3_expression},
    {.name = "olmo", .expression = gpt2_expression},
    {.name = "gpt-2", .expression = gpt2_expression},
}};

struct Synonym {
  std::string_view name, row;
};

// What llama.cpp takes for the same expression with the same flags (src/llama-vocab.cpp, late 2026). Not
// here: its names for gpt-2 that append a separator or strip around a mask token (jina-v1-en, jina-v2-code,
// jina-v2-de, jina-v2-es, roberta-bpe, modern-bert).
constexpr std::array<Synonym, 34> synonyms = {{
    {"deepseek-r1-qwen", "qwen2"},
    {"f2llmv2", "qwen2"},
    {"grok-2", "qwen2"},
    {"hunyuan", "qwen2"},
    {"kormo", "qwen2"},
    {"megrez", "qwen2"},
    {"solar-open", "qwen2"},
    {"stablelm2", "qwen2"},
    {"kanana2", "gpt-4o"},
    {"llama4", "gpt-4o"},
    {"minimax-m2", "gpt-4o"},
    {"talkie", "gpt-4o"},
    {"falcon-h1", "llama-bpe"},
    {"falcon3", "llama-bpe"},
    {"jina-v5-nano", "llama-bpe"},
    {"lfm2", "llama-bpe"},
    {"llama-v3", "llama-bpe"},
    {"llama3", "llama-bpe"},
    {"midm-2.0", "llama-bpe"},
    {"pixtral", "llama-bpe"},
    {"chatglm-bpe", "dbrx"},
    {"glm4", "dbrx"},
    {"smaug-bpe", "dbrx"},
    {"a.x-4.0", "gpt-2"},
    {"exaone4", "gpt-2"},
    {"gigachat", "gpt-2"},
    {"granite-docling", "gpt-2"},
    {"jais", "gpt-2"},
    {"jina-de", "gpt-2"},
    {"jina-es", "gpt-2"},
    {"mellum", "gpt-2"},
    {"mpt", "gpt-2"},
    {"phi-2", "gpt-2"},
    {"trillion", "gpt-2"},
}};

// Frames of the interpreter may take this much; our expressions need less at any length of text.
constexpr uint32_t heap_limit_kib = 64;

std::string pcre2_message(int code) {
  std::array<PCRE2_UCHAR, 256> text{};
  pcre2_get_error_message(code, text.data(), text.size());
  return reinterpret_cast<const char*>(text.data());
}

struct Free {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
  void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
};

}  // namespace

std::span<const PretokenizerRow> pretokenizer_rows() { return rows; }

const PretokenizerRow* find_pretokenizer(std::string_view name) {
  for (const Synonym& synonym : synonyms) {
    if (synonym.name == name) return find_pretokenizer(synonym.row);
  }
  for (const PretokenizerRow& row : rows) {
    if (row.name == name) return &row;
  }
  return nullptr;
}

std::string pretokenizer_names() {
  std::string names;
  for (const PretokenizerRow& row : rows) {
    if (!names.empty()) names += ", ";
    names += row.name;
  }
  return names + " and other names of these";
}

std::string Pretokenizer::expand_white_space(std::string_view expression) {
  // White_Space is tab to carriage return, next line, and the separators.
  constexpr std::string_view members = R"(\t-\r\x{85}\p{Z})";
  std::string result;
  bool in_class = false;
  for (size_t i = 0; i < expression.size(); ++i) {
    const char c = expression[i];
    if (c != '\\') {
      if (c == '[') in_class = true;
      if (c == ']') in_class = false;
      result += c;
      continue;
    }
    WEIR_CHECK(i + 1 < expression.size(), "{}", expression);
    const char escaped = expression[++i];
    WEIR_CHECK(escaped != 'S' || !in_class, "a class cannot hold \\S: {}", expression);
    if (escaped == 's') {
      result += in_class ? std::string(members) : fmt::format("[{}]", members);
    } else if (escaped == 'S') {
      result += fmt::format("[^{}]", members);
    } else {
      result += {c, escaped};
    }
  }
  return result;
}

struct Pretokenizer::Compiled {
  std::unique_ptr<pcre2_code, Free> code;
  std::unique_ptr<pcre2_match_context, Free> limits;
};

Pretokenizer::Pretokenizer(const PretokenizerRow& row, Engine engine)
    : compiled_(std::make_unique<Compiled>()) {
  const std::string expression = expand_white_space(row.expression);
  int code = 0;
  PCRE2_SIZE offset = 0;
  compiled_->code.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(expression.data()), expression.size(),
                                      PCRE2_UTF | PCRE2_UCP, &code, &offset, nullptr));
  if (!compiled_->code) {
    throw failure("pre-tokenizer {}: its expression is refused at {}: {}", row.name, offset,
                  pcre2_message(code));
  }
  // Refused where memory may not be made executable; pcre2_match then interprets.
  if (engine == Engine::compiled) pcre2_jit_compile(compiled_->code.get(), PCRE2_JIT_COMPLETE);
  compiled_->limits.reset(pcre2_match_context_create(nullptr));
  if (!compiled_->limits) throw failure("pre-tokenizer {}: out of memory", row.name);
  // The rows backtrack at most once over a run of characters, so time is bounded by the text: a count of
  // steps would only refuse long runs.
  pcre2_set_match_limit(compiled_->limits.get(), UINT32_MAX);
  pcre2_set_depth_limit(compiled_->limits.get(), UINT32_MAX);
  pcre2_set_heap_limit(compiled_->limits.get(), heap_limit_kib);
}

Pretokenizer::~Pretokenizer() = default;

void Pretokenizer::split(std::string_view text, const std::function<void(std::string_view)>& take) const {
  if (text.empty()) return;
  const std::unique_ptr<pcre2_match_data, Free> match(pcre2_match_data_create(1, nullptr));
  if (!match) throw failure("pre-tokenizer: out of memory");
  const auto subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  // Checking the encoding in each call would make the whole quadratic.
  const uint32_t options = PCRE2_NO_UTF_CHECK | PCRE2_NOTEMPTY;
  for (size_t at = 0; at < text.size();) {
    auto attempt = [&](uint32_t extra) {
      return pcre2_match(compiled_->code.get(), subject, text.size(), at, options | extra, match.get(),
                         compiled_->limits.get());
    };
    int found = attempt(0);
    if (found == PCRE2_ERROR_JIT_STACKLIMIT) found = attempt(PCRE2_NO_JIT);
    if (found == PCRE2_ERROR_NOMATCH) {
      take(text.substr(at));
      return;
    }
    if (found < 0) throw failure("pre-tokenizer: matching failed at byte {}: {}", at, pcre2_message(found));
    const PCRE2_SIZE* bounds = pcre2_get_ovector_pointer(match.get());
    if (bounds[0] > at) take(text.substr(at, bounds[0] - at));
    take(text.substr(bounds[0], bounds[1] - bounds[0]));
    at = bounds[1];
  }
}

}  // namespace weir
