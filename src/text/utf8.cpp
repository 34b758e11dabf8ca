// Well-formedness of UTF-8 (Unicode standard, table 3-7): where a text stops being valid, where its last
// whole character ends, and its repair. Knows no tokens. All functions walk with the same step, so that
// repairing a text in pieces cut at complete_utf8_prefix equals repairing it at once.
#include <cstdint>

#include "base/error.h"
#include "text/tokenizer.h"

namespace weir {
namespace {

/// One character, or the longest invalid sequence that could have begun one (each becomes a single U+FFFD).
struct Step {
  enum class Kind { valid, invalid, truncated } kind;
  size_t length;
};

/// What the first byte asks for: continuation bytes, and the range of the first of them (which is what
/// excludes overlong forms, surrogates and values above U+10FFFF).
struct Lead {
  int continuations;
  uint8_t low = 0x80, high = 0xbf;
};

Lead lead_of(uint8_t byte) {
  if (byte < 0xc2) return {-1};
  if (byte < 0xe0) return {1};
  if (byte == 0xe0) return {2, 0xa0, 0xbf};
  if (byte == 0xed) return {2, 0x80, 0x9f};
  if (byte < 0xf0) return {2};
  if (byte == 0xf0) return {3, 0x90, 0xbf};
  if (byte < 0xf4) return {3};
  if (byte == 0xf4) return {3, 0x80, 0x8f};
  return {-1};
}

Step step(std::string_view text) {
  const auto first = static_cast<uint8_t>(text[0]);
  if (first < 0x80) return {Step::Kind::valid, 1};
  const Lead lead = lead_of(first);
  if (lead.continuations < 0) return {Step::Kind::invalid, 1};
  size_t length = 1;
  for (int i = 0; i < lead.continuations; ++i, ++length) {
    if (length == text.size()) return {Step::Kind::truncated, length};
    const auto byte = static_cast<uint8_t>(text[length]);
    const uint8_t low = i == 0 ? lead.low : 0x80, high = i == 0 ? lead.high : 0xbf;
    if (byte < low || byte > high) return {Step::Kind::invalid, length};
  }
  return {Step::Kind::valid, length};
}

}  // namespace

size_t complete_utf8_prefix(std::string_view bytes) {
  size_t at = 0;
  while (at < bytes.size()) {
    const Step next = step(bytes.substr(at));
    if (next.kind == Step::Kind::truncated) break;
    at += next.length;
  }
  return at;
}

size_t invalid_utf8_at(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const Step next = step(text.substr(at));
    if (next.kind != Step::Kind::valid) return at;
    at += next.length;
  }
  return std::string_view::npos;
}

void require_utf8(std::string_view text, std::string_view what) {
  const size_t at = invalid_utf8_at(text);
  if (at == std::string_view::npos) return;
  throw input_error("{} is not valid UTF-8 at byte {} (0x{:02x}): expected UTF-8 text", what, at,
                    static_cast<uint8_t>(text[at]));
}

std::string replace_invalid_utf8(std::string_view bytes) {
  std::string result;
  result.reserve(bytes.size());
  for (size_t at = 0; at < bytes.size();) {
    const Step next = step(bytes.substr(at));
    if (next.kind == Step::Kind::valid) {
      result.append(bytes, at, next.length);
    } else {
      result += "\xef\xbf\xbd";
    }
    at += next.length;
  }
  return result;
}

}  // namespace weir
