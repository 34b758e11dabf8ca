// See byte_alphabet.h.
#include "text/byte_alphabet.h"

#include <array>

namespace weir {
namespace {

// 256 characters: 188 printable bytes stand for themselves, the other 68 take U+0100..U+0143.
constexpr int first_substitute = 0x100, end_of_alphabet = 0x144;

struct Alphabet {
  std::array<std::string, 256> characters;
  std::array<int, end_of_alphabet> bytes;  ///< by code point; -1 where it is not in the alphabet
};

bool printable(int byte) {
  return (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte <= 0xac) || (byte >= 0xae && byte <= 0xff);
}

Alphabet make_alphabet() {
  Alphabet alphabet;
  alphabet.bytes.fill(-1);
  int substitute = first_substitute;
  for (int byte = 0; byte < 256; ++byte) {
    const int code = printable(byte) ? byte : substitute++;
    alphabet.bytes[static_cast<size_t>(code)] = byte;
    std::string& character = alphabet.characters[static_cast<size_t>(byte)];
    if (code < 0x80) {
      character = {static_cast<char>(code)};
    } else {
      character = {static_cast<char>(0xc0 | (code >> 6)), static_cast<char>(0x80 | (code & 0x3f))};
    }
  }
  return alphabet;
}

const Alphabet& alphabet() {
  static const Alphabet instance = make_alphabet();
  return instance;
}

}  // namespace

const std::string& alphabet_character(uint8_t byte) { return alphabet().characters[byte]; }

std::string to_alphabet(std::string_view bytes) {
  std::string text;
  text.reserve(bytes.size() * 2);
  for (const char byte : bytes) text += alphabet_character(static_cast<uint8_t>(byte));
  return text;
}

std::optional<std::string> from_alphabet(std::string_view text) {
  std::string bytes;
  bytes.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const int first = static_cast<uint8_t>(text[at]);
    int code = first;
    size_t length = 1;
    if (first >= 0x80) {
      // The alphabet ends at U+0143, so only two-byte forms matter.
      if ((first & 0xe0) != 0xc0 || at + 1 == text.size()) return std::nullopt;
      const int second = static_cast<uint8_t>(text[at + 1]);
      if ((second & 0xc0) != 0x80) return std::nullopt;
      code = (first & 0x1f) << 6 | (second & 0x3f);
      length = 2;
    }
    if (code >= end_of_alphabet || alphabet().bytes[static_cast<size_t>(code)] < 0) return std::nullopt;
    bytes += static_cast<char>(alphabet().bytes[static_cast<size_t>(code)]);
    at += length;
  }
  return bytes;
}

}  // namespace weir
